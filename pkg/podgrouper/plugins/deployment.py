# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deployments: one group for each pod, with the priority class ``inference`` as the default."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from .delegating import DelegatingGrouper
from .grouper import Reads


# +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
class DeploymentGrouper(DelegatingGrouper):
    """Makes a group for each pod of a Deployment, because replicas are independent."""

    name = "Deployment Grouper"
    reads = Reads.METADATA

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Make the pod the group's owner, name the group after the pod, and set the priority class."""
        metadata.owner = OwnerReference(
            api_version=pod.api_version or "", kind=pod.kind or "", name=pod.name, uid=pod.metadata.uid or ""
        )
        metadata.priority_class_name = await self._default.calc_pod_group_priority_class(
            owner, pod, kai.INFERENCE_PRIORITY_CLASS
        )
        metadata.name = f"{kai.POD_GROUP_NAME_PREFIX}-{pod.name}-{pod.metadata.uid or ''}"
