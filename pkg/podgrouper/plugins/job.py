# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs. By the rules of v0.13 each pod has its own group; by the rules of v0.17 all pods of a Job share a group.

Each run of a CronJob has one group, and so has each replica of a RunaiJob, whose name is that of the pod without its
last part.
"""

from __future__ import annotations

from typing import Final

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, Object, Unstructured, unstructured
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from . import fields
from .defaultgrouper import DefaultGrouper
from .delegating import DelegatingGrouper, ReadingGrouper
from .errors import AccessorError, GroupingError
from .gonumbers import parse_int32
from .grouper import Reads
from .jobset import pods_of_job

_log: Final = log.logger_from("podgrouper")


# +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
class K8sJobGrouper(DelegatingGrouper):
    """Makes a group for each pod of a Job, because the pods of a Job need not run at the same time."""

    name = "BatchJob Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Name the group after the pod.

        If a group with the name that an older release used exists, the pod stays in that group.

        Raises:
            StatusError: reading the group of an older release failed.
        """
        try:
            parallelism = fields.nested_int64(owner, "spec", "parallelism") or 1
        except AccessorError:  # a malformed Job counts as a Job of one pod
            parallelism = 1
        # Older releases made the name from that of the pod for a parallel Job, else from that of the Job.
        legacy = _name(pod.name if parallelism > 1 else owner.name, owner)
        if await _legacy_group_exists(self._default, pod.namespace, legacy):
            _log.debug("Using legacy pod group", podGroup=f"{pod.namespace}/{legacy}")
            metadata.name = legacy
        else:
            metadata.name = _name(self._base_name(pod), owner)

    def _base_name(self, pod: Pod) -> str:
        """Return the name from which the group's name is made."""
        return pod.name


# +kubebuilder:rbac:groups=run.ai,resources=runaijobs,verbs=get;list;watch
class RunaiJobGrouper(K8sJobGrouper):
    """Groups the pods of a RunaiJob by replica. When a pod is recreated, only the last part of its name changes."""

    name = DefaultGrouper.name

    def _base_name(self, pod: Pod) -> str:
        replica, dash, _ = pod.name.rpartition("-")
        return replica if dash else pod.name


# +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch
class CronJobGrouper(ReadingGrouper):
    """Groups the pods of one run of a CronJob."""

    name = "CronJob Grouper"
    reads = Reads.METADATA

    async def get_pod_group_metadata(
        self, _top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group of the Job that owns the pod.

        Raises:
            GroupingError: no Job is among the pod's owners.
            StatusError: the Job cannot be read.
        """
        owners = pod.metadata.owner_references or ()
        name = next((owner.name for owner in owners if owner.kind == "Job"), None)
        if name is None:
            raise GroupingError("no owner reference of type 'Job'")
        job = await self._client.get(unstructured(GVK("batch", "v1", "Job")), (pod.namespace, name))
        return await self._default.get_pod_group_metadata(job, pod)


class WholeJobGrouper(DelegatingGrouper):
    """Groups all pods of a Job. An annotation sets how many pods the group requires; the default is one.

    The group cannot require more pods than the Job controller creates at once.

    A pod that already has a group of its own, by the rules of v0.13, stays in it.
    """

    name = "BatchJob Grouper"
    reads = Reads.METADATA

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Set the required number of pods, or use the pod's own group if it exists.

        Raises:
            GroupingError: the annotation is not a number.
            StatusError: the Job cannot be read, or looking for the pod's own group failed.
        """
        own = _name(pod.name, owner)
        if own != metadata.name and await _legacy_group_exists(self._default, pod.namespace, own):
            metadata.name = own
        elif (text := owner.annotations.get(kai.MIN_MEMBER_KEY)) is not None:
            try:
                needed = parse_int32(text)
            except ValueError as error:
                raise GroupingError(f"invalid min-member annotation value: {error}") from error
            if needed > 1:
                job = await self._client.get(type(owner), owner.key)
                parallelism = fields.nested_int64(job, "spec", "parallelism")
                completions = fields.nested_int64(job, "spec", "completions")
                if parallelism is not None:
                    needed = min(needed, pods_of_job(parallelism, completions))
            metadata.min_available = needed


def _name(base: str, job: Unstructured) -> str:
    return f"{kai.POD_GROUP_NAME_PREFIX}-{base}-{job.metadata.uid or ''}"


async def _legacy_group_exists(default: DefaultGrouper, namespace: str, name: str) -> bool:
    """Return True if an older release has created the group. If the setting disables the search, return False."""
    if not default.options.search_legacy_pod_groups:
        return False
    try:
        await default.reader.get(PodGroup, (namespace, name))
    except NotFoundError:
        return False
    return True
