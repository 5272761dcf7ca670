# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs: one group for each pod."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from .delegating import EarlierGroupsGrouper
from .grouper import Reads
from .legacynames import existing_legacy_name


# +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
class K8sJobGrouper(EarlierGroupsGrouper):
    """Groups each pod of a Job alone: a Job does not need its pods at the same time."""

    name = "BatchJob Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Name the group after the pod, or keep the name from an older release while that group exists.

        Raises:
            StatusError: reading the group of an older release failed.
        """
        legacy = None
        if self._searches:
            legacy = await existing_legacy_name(self._client, owner, pod)
        base = self._base_name(pod)
        metadata.name = legacy or f"{kai.POD_GROUP_NAME_PREFIX}-{base}-{owner.metadata.uid or ''}"

    def _base_name(self, pod: Pod) -> str:
        """Return the base of the group's name."""
        return pod.name
