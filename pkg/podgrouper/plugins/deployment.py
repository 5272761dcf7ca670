# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds with their own default priority class: Deployments (one group for each pod), Notebooks and SPOTRequests."""

from __future__ import annotations

from typing import ClassVar

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
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
    priority_class: ClassVar[str] = kai.INFERENCE_PRIORITY_CLASS

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Set the default priority class of the kind if the workload names no class."""
        metadata.priority_class_name = await self._default.calc_pod_group_priority_class(
            owner, pod, self.priority_class
        )


class NotebookGrouper(SpotRequestGrouper):
    """Groups a Notebook of Kubeflow, which is interactive."""

    name = "Kubeflow Notebook Grouper"
    priority_class = kai.BUILD_PRIORITY_CLASS


# +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
class DeploymentGrouper(SpotRequestGrouper):
    """Makes a group for each pod of a Deployment, because replicas are independent."""

    name = "Deployment Grouper"

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Make the pod the group's owner, name the group after the pod, and set the priority class."""
        await super().adjust(metadata, owner, pod)
        metadata.owner = OwnerReference(
            api_version=pod.api_version or "", kind=pod.kind or "", name=pod.name, uid=pod.metadata.uid or ""
        )
        metadata.name = f"{kai.POD_GROUP_NAME_PREFIX}-{pod.name}-{pod.metadata.uid or ''}"
