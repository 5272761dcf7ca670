# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""SPOTRequests: the default group, with the priority class ``inference`` as the default."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .delegating import DelegatingGrouper
from .grouper import Reads


# +kubebuilder:rbac:groups=egx.nvidia.io,resources=spotrequests,verbs=get;list;watch
class SpotRequestGrouper(DelegatingGrouper):
    """Groups a SPOTRequest."""

    name = DefaultGrouper.name
    reads = Reads.METADATA

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Set the priority class ``inference`` if the workload names no class."""
        metadata.priority_class_name = await self._default.calc_pod_group_priority_class(
            owner, pod, kai.INFERENCE_PRIORITY_CLASS
        )
