# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groups the pods of a MyBigDataJob: all of its replicas run at once, or none."""

from collections.abc import Mapping

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import Reader
from controller_runtime.machinery import GVK, Unstructured

from pkg.podgrouper.plugins import Grouper, GroupingError, Reads, fields
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.plugins.delegating import DelegatingGrouper
from pkg.podgrouper.podgroup import Metadata


class MyBigDataGrouper(DelegatingGrouper):
    """Groups a MyBigDataJob."""

    name = "MyBigDataJob Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Require as many pods as the job has replicas."""
        replicas = fields.nested_int32(owner, "spec", "replicas")
        if replicas is None:
            raise GroupingError(f"MyBigDataJob {owner.namespace}/{owner.name}: spec.replicas is missing")
        metadata.min_available = replicas


def groupers(default: DefaultGrouper, reader: Reader) -> Mapping[GVK, Grouper]:
    """Return the rows for the hub; ``reader`` is for groupers that need more than owner and pod."""
    return {GVK("bigdata.example.com", "v1", "MyBigDataJob"): MyBigDataGrouper(default)}
