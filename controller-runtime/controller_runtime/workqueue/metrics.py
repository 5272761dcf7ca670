# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics of a queue."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from prometheus_client.metrics import Gauge

from controller_runtime import metrics

T = TypeVar("T", bound=Hashable)

MAX_PRIORITIES: Final = 25
"""Maximum number of priorities that have their own depth series; all other priorities share one series."""
OTHER_PRIORITIES: Final = "exceeded_cardinality_limit"
NORMAL_PRIORITY: Final = ""
"""The label of priority 0. Go managers without priority queues (the default up to v0.22) use the same label."""


class Metrics(Generic[T]):
    """The series of one queue in :data:`controller_runtime.metrics.REGISTRY`; a queue without a name has none.

    Queues of the same name add up. No call raises anything.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._ready: dict[T, float] = {}
        """When each item became ready."""
        self._taken: dict[T, float] = {}
        """When each item in progress was taken."""
        if not name:
            return
        self._adds = metrics.WORKQUEUE_ADDS.labels(name, name)
        self._retries = metrics.WORKQUEUE_RETRIES.labels(name, name)
        self._queue_duration = metrics.WORKQUEUE_QUEUE_DURATION.labels(name, name)
        self._work_duration = metrics.WORKQUEUE_WORK_DURATION.labels(name, name)
        self._depths: dict[int, Gauge] = {}
        self._depth(0)
        metrics.WORKQUEUE_UNFINISHED_WORK.labels(name, name).set_function(lambda: float(sum(self._ages())))
        longest = metrics.WORKQUEUE_LONGEST_RUNNING.labels(name, name)
        longest.set_function(lambda: max(self._ages(), default=0.0))

    def retried(self) -> None:
        """Record that an item was added with a delay."""
        if self._name:
            self._retries.inc()

    def added(self, item: T, priority: int) -> None:
        """Record that ``item`` became ready."""
        if self._name:
            self._adds.inc()
            self._depth(priority).inc()
            self._ready.setdefault(item, self._clock())

    def moved(self, old: int, new: int) -> None:
        """Record that a ready item changed its priority."""
        if self._name:
            self._depth(old).dec()
            self._depth(new).inc()

    def taken(self, item: T, priority: int) -> None:
        """Record that ``item`` was handed out."""
        if self._name:
            now = self._taken[item] = self._clock()
            self._depth(priority).dec()
            if (since := self._ready.pop(item, None)) is not None:
                self._queue_duration.observe(now - since)

    def done(self, item: T) -> None:
        """Record that the work on ``item`` ended."""
        if (since := self._taken.pop(item, None)) is not None:
            self._work_duration.observe(self._clock() - since)

    def dropped(self, item: T, priority: int) -> None:
        """Record that a ready item was dropped at shutdown."""
        if self._name:
            self._ready.pop(item, None)
            self._depth(priority).dec()

    def _depth(self, priority: int) -> Gauge:
        depth = self._depths.get(priority)
        if depth is not None:
            return depth
        # A priority keeps its series, so that additions and removals change the same series.
        if len(self._depths) >= MAX_PRIORITIES:
            return metrics.WORKQUEUE_DEPTH.labels(self._name, self._name, OTHER_PRIORITIES)
        label = str(priority) if priority else NORMAL_PRIORITY
        depth = self._depths[priority] = metrics.WORKQUEUE_DEPTH.labels(self._name, self._name, label)
        return depth

    def _ages(self) -> Iterable[float]:
        if not self._taken:  # also when the loop has ended: then nothing is in progress
            return ()
        now = self._clock()
        return tuple(now - since for since in self._taken.values())
