# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs by the rules of v0.17: one group for all pods."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from .delegating import EarlierGroupsGrouper
from .errors import GroupingError
from .gonumbers import parse_int32
from .grouper import Reads
from .legacynames import group_exists


class WholeJobGrouper(EarlierGroupsGrouper):
    """Groups the pods of a Job; an annotation sets how many of them are required, by default one.

    A pod that already has a group of its own, by the rules of v0.13, stays in it.
    """

    name = "BatchJob Grouper"
    reads = Reads.METADATA

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Set the required number of pods, or use the pod's own group if it exists.

        Raises:
            GroupingError: the annotation is not a number.
            StatusError: looking for the pod's own group failed.
        """
        own = f"{kai.POD_GROUP_NAME_PREFIX}-{pod.name}-{owner.metadata.uid or ''}"
        searched = self._searches and own != metadata.name
        if searched and await group_exists(self._client, pod.namespace, own):
            metadata.name = own
        elif (text := owner.annotations.get(kai.MIN_MEMBER_KEY)) is not None:
            try:
                metadata.min_available = parse_int32(text)
            except ValueError as error:
                raise GroupingError(f"invalid min-member annotation value: {error}") from error
