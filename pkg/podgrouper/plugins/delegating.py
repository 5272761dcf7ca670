# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Base classes of groupers that adjust the default group or read objects other than the top owner."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import Reader
from controller_runtime.machinery import Object, Unstructured

from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper

_ENDED: Final = frozenset({"Failed", "Succeeded"})


class DelegatingGrouper(Grouper):
    """Returns the default group, adjusted to the kind of the top owner."""

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group after :meth:`adjust` has changed it."""
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        await self.adjust(metadata, top_owner, pod)
        return metadata

    @abstractmethod
    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Change ``metadata`` in place; ``owner`` is the top owner.

        Raises:
            GroupingError: the owner is malformed.
            StatusError: another object that the grouper needs could not be read.
        """


class LegacyGroupsGrouper(DelegatingGrouper):
    """Base of groupers that keep using an existing group whose name an older release chose.

    If ``search_for_legacy_pod_groups`` is False, they do not look for such groups.
    """

    def __init__(
        self, default: DefaultGrouper, client: Reader, *, search_for_legacy_pod_groups: bool = True
    ) -> None:
        super().__init__(default)
        self._client = client
        self._searches = search_for_legacy_pod_groups


class ReadingGrouper(Grouper):
    """Base of groupers that use the default grouper, and read objects other than the top owner through ``client``."""

    def __init__(self, default: DefaultGrouper, client: Reader) -> None:
        self._default = default
        self._client = client


def not_ended(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods that have not ended. The manager does not cache ended pods, so groups must not depend on them."""
    return (pod for pod in pods if pod.status.phase not in _ENDED)
