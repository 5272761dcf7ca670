# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of a queue for producers, and the queue's only error."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol, TypeVar

T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)

LOW_PRIORITY: Final = -100
"""The priority of work without urgency: the first list, resyncs."""


class QueueShutDownError(Exception):
    """The queue was shut down: it hands out no more work."""


class Adder(Protocol[T_contra]):
    """Takes work."""

    def add(
        self, item: T_contra, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item``, unless it waits already; see :meth:`PriorityQueue.add`."""
        ...


class DefaultPriority(Adder[T_contra]):
    """Passes work on, with a default priority."""

    def __init__(self, queue: Adder[T_contra], priority: int) -> None:
        self._queue = queue
        self._priority = priority

    def add(
        self, item: T_contra, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item`` to the queue behind."""
        if priority is None:
            priority = self._priority
        self._queue.add(item, priority=priority, after=after, rate_limited=rate_limited)
