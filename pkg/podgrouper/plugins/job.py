# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs: every pod is a group of its own."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.object import Object, Unstructured
from controller_runtime.client import Reader

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper, Reads
from .legacynames import existing_legacy_name


# +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
class K8sJobGrouper(Grouper):
    """Groups each pod of a Job alone: a Job does not need its pods at once."""

    name = "BatchJob Grouper"
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
        """Return the default group under the pod's name, or under an older release's while it exists.

        Raises:
            StatusError: looking for a group of an older release failed.
        """
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        legacy = None
        if self._search_for_legacy_pod_groups:
            legacy = await existing_legacy_name(self._client, top_owner, pod)
        base = self._base_name(pod)
        metadata.name = legacy or f"{kai.POD_GROUP_NAME_PREFIX}-{base}-{top_owner.metadata.uid or ''}"
        return metadata

    def _base_name(self, pod: Pod) -> str:
        """Return what the group is named after."""
        return pod.name
