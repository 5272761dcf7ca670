# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Knative services: one group for each revision, unless each pod of the revision already has a group of its own."""

from __future__ import annotations

from typing import Final

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import GVK, Object, Unstructured, unstructured
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from . import fields
from .delegating import ReadingGrouper, not_ended
from .errors import UNREADABLE, GroupingError
from .gonumbers import atoi
from .grouper import Reads

REVISION_LABEL: Final = "serving.knative.dev/revision"
MIN_SCALE_ANNOTATION: Final = "autoscaling.knative.dev/min-scale"

_log: Final = log.logger_from("podgrouper")

_REVISION: Final = unstructured(GVK("serving.knative.dev", "v1", "Revision"))


# +kubebuilder:rbac:groups=serving.knative.dev,resources=revisions;configurations;services,verbs=get;list;watch
class KnativeGrouper(ReadingGrouper):
    """Groups the pods of a Knative revision."""

    name = "KNative Grouper"
    reads = Reads.METADATA

    async def get_pod_group_metadata(
        self, _top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the group of the pod's revision, or a group that contains only the pod.

        Raises:
            GroupingError: the pod names no revision, or it is unclear how the other pods of the revision are grouped.
            StatusError: the revision cannot be read.
        """
        name = pod.labels.get(REVISION_LABEL)
        if name is None:
            raise GroupingError(f"revisionName not found for knative service pod {pod.namespace}/{pod.name}")
        if not name:
            # An empty name cannot be requested; the pod refers to a revision that does not exist.
            message = 'revisions.serving.knative.dev "" not found'
            raise NotFoundError(message, code=404, reason="NotFound")
        revision = await self._client.get(_REVISION, (pod.namespace, name))
        if self._default.options.knative_gang_schedule:
            try:
                one_each = await self._has_a_group_for_each_pod(revision)
            except (GroupingError, *UNREADABLE) as error:
                raise GroupingError(
                    f"unable to determine gang behavior for revision {revision.namespace}/{name}"
                    f" and pod {pod.namespace}/{pod.name}: {error}"
                ) from error
            if not one_each:
                priority_class = await self._default.calc_pod_group_priority_class(
                    revision, pod, kai.INFERENCE_PRIORITY_CLASS
                )
                return self._group(revision, revision, pod, priority_class, _min_scale(revision))
        return self._group(pod, revision, pod, kai.INFERENCE_PRIORITY_CLASS, 1)

    def _group(
        self, owner: Object, revision: Unstructured, pod: Pod, priority_class: str, min_available: int
    ) -> Metadata:
        """Return a group that sets neither preemptibility nor topology, as in upstream."""
        uid = owner.metadata.uid or ""
        return Metadata(
            namespace=owner.namespace,
            name=f"{kai.POD_GROUP_NAME_PREFIX}-{owner.name}-{uid}",
            annotations=self._default.calc_pod_group_annotations(revision, pod),
            labels=self._default.calc_pod_group_labels(revision, pod),
            queue=self._default.calc_pod_group_queue(revision, pod),
            priority_class_name=priority_class,
            min_available=min_available,
            owner=OwnerReference(
                api_version=owner.api_version or "", kind=owner.kind or "", name=owner.name, uid=uid
            ),
        )

    async def _has_a_group_for_each_pod(self, revision: Unstructured) -> bool:
        """Return True if each pod of the revision already has its own group, from an older release or another setting.

        Pods that have ended are ignored: a revision with only such pods is grouped as a new one.

        Raises:
            GroupingError: only one group exists, and it cannot be read, or its owner is neither a revision nor a pod.
        """
        pods = await self._client.list(
            Pod, namespace=revision.namespace, labels={REVISION_LABEL: revision.name}
        )
        groups = [
            pod.annotations[kai.POD_GROUP_ANNOTATION_FOR_POD]
            for pod in not_ended(pods)
            if kai.POD_GROUP_ANNOTATION_FOR_POD in pod.annotations
        ]
        if len(set(groups)) < len(groups):  # two pods share a group
            return False
        if len(groups) != 1:
            return len(groups) > 1
        name = groups[0]
        try:
            group = await self._client.get(PodGroup, (revision.namespace, name))
        except NotFoundError:
            return False
        except UNREADABLE as error:
            raise GroupingError(f"failed to get the only podgroup {name}: {error}") from error
        owners = group.metadata.owner_references
        if not owners:
            raise GroupingError(f"podgroup {name} has no owner references")
        if owners[0].kind not in (revision.kind, "Pod"):
            raise GroupingError(
                f"podgroup {name} has unexpected owner reference: {fields.go_owner_reference(owners[0])}"
            )
        return owners[0].kind == "Pod"


def _min_scale(revision: Unstructured) -> int:
    """Return the revision's minimum scale; 1 if it is unset or not a number."""
    text = revision.annotations.get(MIN_SCALE_ANNOTATION, "1")
    try:
        return fields.int32(atoi(text))
    except ValueError:
        _log.debug("Minimum scale is not a number, using 1", minScale=text, name=revision.name)
        return 1
