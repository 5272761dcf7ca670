# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of a queue for producers, the queue's only error, and the origins of its items.

Only an item crosses the queue. Its origins stand beside it, are kept only while the log level is debug or spans are
recorded, and a lost origin changes no work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from controller_runtime import log
from controller_runtime.log import Written

T = TypeVar("T", bound=Hashable)
T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)

MOST_ITEMS: Final = 4096
"""Items whose origins are kept; the oldest are dropped."""
MOST_ORIGINS: Final = 8
"""Last origins that are kept for an item."""
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


class Origins(Generic[T]):
    """The last origins of each item that waits in a queue."""

    kept_from: ClassVar[int] = log.DEBUG
    """The verbosity of the log from which on origins are kept. Tracing lowers it for the process: spans show them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[T, dict[str, None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @staticmethod
    def wanted() -> bool:
        """Return True if origins are kept now."""
        return Written.up_to >= Origins.kept_from

    def note(self, item: T, origin: str) -> None:
        """Keep one more origin of an item, if origins are kept now."""
        if Written.up_to < Origins.kept_from:
            return
        origins = self._kept.setdefault(item, {})
        origins.pop(origin, None)
        origins[origin] = None
        if len(origins) > MOST_ORIGINS:
            del origins[next(iter(origins))]
        if len(self._kept) > MOST_ITEMS:
            self._kept.popitem(last=False)

    def take(self, item: T) -> list[str]:
        """Return the origins of an item, oldest first, and forget them."""
        return list(self._kept.pop(item, ()))


class Noting(Adder[T]):
    """Passes work on, and notes its origin."""

    def __init__(self, queue: Adder[T], origins: Origins[T], origin: str) -> None:
        self._queue = queue
        self._origins = origins
        self._origin = origin

    def add(
        self, item: T, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item`` to the queue behind."""
        self._origins.note(item, self._origin)
        self._queue.add(item, priority=priority, after=after, rate_limited=rate_limited)
