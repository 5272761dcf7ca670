# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Notebooks: grouped by default, with the class of builds."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.object import Object, Unstructured

from pkg.constants import kai
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.plugins.grouper import Grouper, Reads
from pkg.podgrouper.podgroup import Metadata


class NotebookGrouper(Grouper):
    """Groups a Notebook; people work in it, so its class is that of builds."""

    name = "Kubeflow Notebook Grouper"
    reads = Reads.METADATA

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group with the priority class of builds where none is named."""
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        metadata.priority_class_name = await self._default.calc_pod_group_priority_class(
            top_owner, pod, kai.BUILD_PRIORITY_CLASS
        )
        return metadata
