# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""NIMServices: if a replica of the service needs several nodes, the LeaderWorkerSet below determines the groups."""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GroupKind, Object, Unstructured

from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper, Reads, runs_in
from .skiptopowner import SkipTopOwnerGrouper

_LWS: Final = GroupKind("leaderworkerset.x-k8s.io", "LeaderWorkerSet")


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
