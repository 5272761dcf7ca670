# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Base classes of groupers that adjust the default group or read objects other than the top owner."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Object, Unstructured

from pkg.podgrouper.podgroup import OLDEST, Metadata, Rules

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper

_ENDED: Final = frozenset({"Failed", "Succeeded"})


class ReadingGrouper(Grouper):
    """Base of groupers that use the default grouper and its reader."""

    def __init__(self, default: DefaultGrouper, rules: Rules = OLDEST) -> None:
        self._default = default
        self._client = default.reader
        self._rules = rules


class DelegatingGrouper(ReadingGrouper):
    """Returns the default group, adjusted to the kind of the top owner."""

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


def not_ended(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods that have not ended. The manager does not cache ended pods, so groups must not depend on them."""
    return (pod for pod in pods if pod.status.phase not in _ENDED)
