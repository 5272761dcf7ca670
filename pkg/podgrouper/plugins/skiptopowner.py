# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owners that wrap another owner, which determines the group.

These are Argo's Workflows, run.ai's workloads, TrainJobs and Dynamo's graphs. The inner owner inherits labels and
annotations of the wrapper that it does not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Object, Unstructured, unstructured
from controller_runtime.client import Reader

from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .delegating import ReadingGrouper
from .errors import GroupingError
from .grouper import Grouper, Reads
from .reading import UNREADABLE


class SkipTopOwnerGrouper(ReadingGrouper):
    """Groups by the owner below the top one."""

    name = "SkipTopOwner Grouper"
    reads = Reads.METADATA

    def __init__(self, default: DefaultGrouper, client: Reader, table: Mapping[GVK, Grouper]) -> None:
        """Look up kinds in ``table`` for each pod, so the table may be filled later."""
        super().__init__(default, client)
        self._table = table

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group from the grouper of the owner below ``top_owner``; ``other_owners`` are all, nearest first.

        The pod itself is below the last owner. Only rows of the exact version are used: upstream ignores rows for
        any version here.

        Raises:
            GroupingError: the inner owner cannot be read, or its grouper raises it.
        """
        if not other_owners:
            raise GroupingError(f"no owner of pod {pod.namespace}/{pod.name} to skip")
        below = other_owners[-2] if len(other_owners) > 1 else pod
        try:
            owner = await self._client.get(unstructured(below.gvk), below.key)
        except UNREADABLE as error:
            raise GroupingError(f"failed to get last owner: {error}") from error
        grouper = self._table.get(below.gvk, self._default)
        return await grouper.get_pod_group_metadata(_heir(owner, top_owner), pod, *other_owners[:-1])


def _heir(owner: Unstructured, skipped: Unstructured) -> Unstructured:
    """Return ``owner`` with the labels and annotations of ``skipped`` that it lacks; the rest is shared."""
    metadata = owner.metadata.model_copy(
        update={
            "labels": {**skipped.labels, **owner.labels} or None,
            "annotations": {**skipped.annotations, **owner.annotations} or None,
        }
    )
    return owner.model_copy(update={"metadata": metadata})
