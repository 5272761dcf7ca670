# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""AmlJobs: all nodes at once, as many as the job's environment says."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.object import Object, Unstructured

from pkg.podgrouper.podgroup import Metadata

from . import fields
from .defaultgrouper import DefaultGrouper
from .errors import AccessorError, GroupingError
from .grouper import Grouper, Reads


# +kubebuilder:rbac:groups=amlarc.azureml.com,resources=amljobs,verbs=get;list;watch
class AmlGrouper(Grouper):
    """Groups the nodes of an AmlJob."""

    name = "AML Grouper"
    reads = Reads.SPEC

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group that needs the job's node count.

        Raises:
            GroupingError: the job says no such number.
        """
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        metadata.min_available = fields.int32(_node_count(top_owner))
        return metadata


def _node_count(job: Unstructured) -> int:
    cause: AccessorError | None = None
    try:
        count = fields.nested_int64(job, "spec", "job", "options", "envs", "AZUREML_NODE_COUNT")
    except AccessorError as error:
        count, cause = None, error
    if count is None:
        raise GroupingError("azureml envs count not found in spec") from cause
    return count
