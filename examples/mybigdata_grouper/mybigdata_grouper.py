# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groups the pods of a MyBigDataJob: all of its replicas run at once, or none."""

from collections.abc import Mapping

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import Pod

from pkg.podgrouper.plugins import Grouper, GroupingError, Reads, fields
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.plugins.delegating import DelegatingGrouper
from pkg.podgrouper.podgroup import Metadata


class MyBigDataGrouper(DelegatingGrouper):
    """Groups a MyBigDataJob."""

    name = "MyBigDataJob Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: ctrl.Unstructured, pod: Pod) -> None:
        """Require as many pods as the job has replicas."""
        replicas = fields.nested_int32(owner, "spec", "replicas")
        if replicas is None:
            raise GroupingError(f"MyBigDataJob {owner.namespace}/{owner.name}: spec.replicas is missing")
        metadata.min_available = replicas


def groupers(default: DefaultGrouper, reader: ctrl.Reader) -> Mapping[ctrl.GVK, Grouper]:
    """Return the rows for the hub; ``reader`` is for groupers that need more than owner and pod."""
    return {ctrl.GVK("bigdata.example.com", "v1", "MyBigDataJob"): MyBigDataGrouper(default)}
