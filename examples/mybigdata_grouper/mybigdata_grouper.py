# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groups the pods of a MyBigDataJob: all of its replicas run at once, or none."""

from collections.abc import Mapping

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Object, Unstructured
from controller_runtime.client import Reader

from pkg.podgrouper.plugins import Grouper, GroupingError, Reads, fields
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.podgroup import Metadata


class MyBigDataGrouper(Grouper):
    """Groups a MyBigDataJob."""

    name = "MyBigDataJob Grouper"
    reads = Reads.SPEC

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the default group, with as many pods needed as the job has replicas."""
        metadata = await self._default.get_pod_group_metadata(top_owner, pod, *other_owners)
        replicas = fields.nested_int32(top_owner, "spec", "replicas")
        if replicas is None:
            raise GroupingError(
                f"MyBigDataJob {top_owner.namespace}/{top_owner.name}: spec.replicas is missing"
            )
        metadata.min_available = replicas
        return metadata


def groupers(default: DefaultGrouper, reader: Reader) -> Mapping[GVK, Grouper]:
    """Return the rows for the hub; ``reader`` is for groupers that need more than owner and pod."""
    return {GVK("bigdata.example.com", "v1", "MyBigDataJob"): MyBigDataGrouper(default)}
