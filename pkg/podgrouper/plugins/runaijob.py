# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RunaiJobs: a group for each replica, by the pod's name without its last part."""

from __future__ import annotations

from pkg.apis.core.v1 import Pod
from pkg.apis.machinery.object import Object, Unstructured
from pkg.constants import kai
from pkg.ctrl.client import Reader
from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper, Reads
from .legacynames import existing_legacy_name


# +kubebuilder:rbac:groups=run.ai,resources=runaijobs,verbs=get;list;watch
class RunaiJobGrouper(Grouper):
    """Groups the pods of a RunaiJob by replica."""

    name = DefaultGrouper.name
    reads = Reads.SPEC

    def __init__(
        self, default: DefaultGrouper, client: Reader, *, search_for_legacy_pod_groups: bool = True
    ) -> None:
        self._default = default
        self._client = client
        self._search_for_legacy_pod_groups = search_for_legacy_pod_groups

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group under the replica's name, or under an older release's while it exists.

        A pod that is made again gets another last part and so the same group.

        Raises:
            StatusError: looking for a group of an older release failed.
        """
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        legacy = None
        if self._search_for_legacy_pod_groups:
            legacy = await existing_legacy_name(self._client, top_owner, pod)
        replica, dash, _ = pod.name.rpartition("-")
        base = replica if dash else pod.name
        metadata.name = legacy or f"{kai.POD_GROUP_NAME_PREFIX}-{base}-{top_owner.metadata.uid or ''}"
        return metadata
