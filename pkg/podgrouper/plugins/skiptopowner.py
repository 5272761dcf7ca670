# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owners that wrap another owner: the inner owner determines the group.

Wrappers are Argo's Workflows, run.ai's workloads, TrainJobs, Dynamo's graphs, and NIMServices whose replicas need
several nodes. The inner owner inherits the wrapper's labels and annotations, unless it sets them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, GroupKind, Object, Unstructured, unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import OLDEST, Metadata, Rules

from .defaultgrouper import DefaultGrouper
from .delegating import ReadingGrouper
from .errors import UNREADABLE, GroupingError
from .grouper import Grouper, Reads, runs_in

T = TypeVar("T", bound=Object)

_LWS: Final = GroupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet")


class SkipTopOwnerGrouper(ReadingGrouper):
    """Groups pods by the owner below the top owner."""

    name = "SkipTopOwner Grouper"
    reads = Reads.METADATA

    def __init__(
        self,
        default: DefaultGrouper,
        table: Mapping[GVK, Grouper],
        rules: Rules = OLDEST,
    ) -> None:
        """Kinds are looked up in ``table`` for each pod, so the table may be filled after this call."""
        super().__init__(default, rules)
        self._table = table

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group from the grouper of the owner below ``top_owner``.

        ``other_owners`` lists all owners, nearest first, so the owner below ``top_owner`` is the second last. If there
        is only one owner, the pod itself takes this place. As in upstream, only rows for an exact version are used
        here.

        Raises:
            GroupingError: the inner owner cannot be read or was replaced, or the grouper of the inner owner raises it.
        """
        if not other_owners:
            raise GroupingError(f"no owner of pod {pod.namespace}/{pod.name} to skip")
        below = other_owners[-2] if len(other_owners) > 1 else pod
        try:
            owner = await self._client.get(unstructured(below.gvk), below.key)
        except UNREADABLE as error:
            raise GroupingError(f"failed to get last owner: {error}") from error
        if (owner.metadata.uid or "") != (below.metadata.uid or ""):
            # After the walk, the owner was deleted, and its name was taken by an object that does not own the pod.
            raise GroupingError(
                f"failed to get last owner: uid {below.metadata.uid} of {below.name} not found"
            )
        others = other_owners[:-1]
        if self._rules is not Rules.V0_13:
            # Labels stand for the defaults of the wrapper's kind.
            defaults = await self._default.defaults_for(top_owner)
            labels = {
                kai.PRIORITY_LABEL_KEY: defaults.priority_name,
                kai.PREEMPTIBILITY_LABEL_KEY: defaults.preemptibility,
            }
            labels = {key: value for key, value in labels.items() if value}
            owner = _heir(owner, labels)
            others = (*others[:-1], _heir(others[-1], labels)) if others else ()
        grouper = self._table.get(below.gvk) or self._default
        owner = _heir(owner, top_owner.labels, top_owner.annotations)
        return await grouper.get_pod_group_metadata(owner, pod, *others)


# +kubebuilder:rbac:groups=apps.nvidia.com,resources=nimservices,verbs=get;list;watch
class NimServiceGrouper(Grouper):
    """Groups the pods of a NIMService."""

    name = "NIMService Grouper"
    reads = Reads.METADATA

    def __init__(self, default: DefaultGrouper, skip: SkipTopOwnerGrouper) -> None:
        self._default = default
        self._skip = skip

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group of the pod's replica of the LeaderWorkerSet, or the default group.

        A running pod keeps the default group, which it has from an earlier release.
        """
        whole = await self._default.get_pod_group_metadata(top_owner, pod, *other_owners)
        if runs_in(pod, whole.name) or len(other_owners) < 2 or other_owners[-2].gvk.group_kind != _LWS:
            return whole
        return await self._skip.get_pod_group_metadata(top_owner, pod, *other_owners)


def _heir(obj: T, labels: Mapping[str, str], annotations: Mapping[str, str] = MappingProxyType({})) -> T:
    """Return a shallow copy of ``obj`` with more labels and annotations. Those that it already has are kept."""
    inherited = {
        "labels": {**labels, **obj.labels} or None,
        "annotations": {**annotations, **obj.annotations} or None,
    }
    return obj.model_copy(update={"metadata": obj.metadata.model_copy(update=inherited)})
