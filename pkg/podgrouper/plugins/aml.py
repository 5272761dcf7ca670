# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""AmlJobs: one group that requires all nodes at once. An environment variable of the job sets the number of nodes."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.podgrouper.podgroup import Metadata

from . import fields
from .delegating import DelegatingGrouper
from .errors import AccessorError, GroupingError
from .grouper import Reads


# +kubebuilder:rbac:groups=amlarc.azureml.com,resources=amljobs,verbs=get;list;watch
class AmlGrouper(DelegatingGrouper):
    """Groups the nodes of an AmlJob."""

    name = "AML Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Require as many pods as the job has nodes.

        Raises:
            GroupingError: the job has no valid node count.
        """
        cause: AccessorError | None = None
        try:
            count = fields.nested_int64(owner, "spec", "job", "options", "envs", "AZUREML_NODE_COUNT")
        except AccessorError as error:
            count, cause = None, error
        if count is None:
            raise GroupingError("azureml envs count not found in spec") from cause
        metadata.min_available = fields.int32(count)
