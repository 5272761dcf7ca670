# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groupers that start from the default group."""

from __future__ import annotations

from abc import abstractmethod

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.object import Object, Unstructured

from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper


class DelegatingGrouper(Grouper):
    """Returns the default group, adjusted to the kind of the top owner."""

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group as :meth:`adjust` leaves it."""
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        await self.adjust(metadata, top_owner, pod)
        return metadata

    @abstractmethod
    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Change ``metadata`` in place; ``owner`` is the top owner.

        Raises:
            GroupingError: the owner is not as its kind says.
            StatusError: something that is needed beside the owner could not be read.
        """
