# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deployments: every pod is a group of its own, with the class of inference."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.object import Object, OwnerReference, Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper, Reads


# +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
class DeploymentGrouper(Grouper):
    """Groups each pod of a Deployment alone: replicas serve without each other."""

    name = "Deployment Grouper"
    reads = Reads.METADATA

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return a group owned by the pod and named after it; the rest is the Deployment's."""
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        metadata.owner = OwnerReference(
            api_version=pod.api_version or "", kind=pod.kind or "", name=pod.name, uid=pod.metadata.uid or ""
        )
        metadata.priority_class_name = await self._default.calc_pod_group_priority_class(
            top_owner, pod, kai.INFERENCE_PRIORITY_CLASS
        )
        metadata.name = f"{kai.POD_GROUP_NAME_PREFIX}-{pod.name}-{pod.metadata.uid or ''}"
        return metadata
