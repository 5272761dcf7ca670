# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Notebooks: the default group, with the priority class ``build`` as the default."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.plugins.delegating import DelegatingGrouper
from pkg.podgrouper.plugins.grouper import Reads
from pkg.podgrouper.podgroup import Metadata


class NotebookGrouper(DelegatingGrouper):
    """Groups a Notebook. It is interactive, so its default priority class is ``build``."""

    name = "Kubeflow Notebook Grouper"
    reads = Reads.METADATA

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Set the priority class ``build`` if the workload names no class."""
        metadata.priority_class_name = await self._default.calc_pod_group_priority_class(
            owner, pod, kai.BUILD_PRIORITY_CLASS
        )
