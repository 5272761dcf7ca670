# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics of a queue, and their default provider for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, Protocol, TypeVar

from prometheus_client.metrics import Gauge

from controller_runtime import metrics

T = TypeVar("T", bound=Hashable)

MAX_PRIORITIES: Final = 25
"""Maximum number of priorities that have their own depth series; all other priorities share one series."""
OTHER_PRIORITIES: Final = "exceeded_cardinality_limit"
NORMAL_PRIORITY: Final = ""
"""The label of priority 0. Go managers without priority queues (the default up to v0.22) use the same label."""


class QueueSeries(Protocol):
    """The metric series of one queue. All calls must be cheap, and must not raise errors."""

    def added(self) -> None:
        """Count an item that became ready to be taken."""
        ...

    def retried(self) -> None:
        """Count an item that was added with a delay."""
        ...

    def deepened(self, priority: int, by: int) -> None:
        """Change the number of ready items of a priority."""
        ...

    def waited(self, seconds: float) -> None:
        """Observe how many seconds an item was ready before it was taken."""
        ...

    def worked(self, seconds: float) -> None:
        """Observe how many seconds an item was in progress."""
        ...

    def watch(self, ages: Callable[[], Iterable[float]]) -> None:
        """At each scrape, call ``ages``, which returns the age in seconds of each item in progress."""
        ...


class MetricsProvider(Protocol):
    """Makes the series of a queue."""

    def __call__(self, name: str) -> QueueSeries:
        """Return the series of the queue of that name."""
        ...


class PrometheusProvider:
    """Series in :data:`controller_runtime.metrics.REGISTRY`."""

    def __call__(self, name: str) -> QueueSeries:
        """Return the series with the label ``name``. Queues with the same name share the series."""
        return _PrometheusSeries(name)


class _PrometheusSeries:
    def __init__(self, name: str) -> None:
        self._name = name
        self._adds = metrics.WORKQUEUE_ADDS.labels(name, name)
        self._retries = metrics.WORKQUEUE_RETRIES.labels(name, name)
        self._queue_duration = metrics.WORKQUEUE_QUEUE_DURATION.labels(name, name)
        self._work_duration = metrics.WORKQUEUE_WORK_DURATION.labels(name, name)
        self._unfinished = metrics.WORKQUEUE_UNFINISHED_WORK.labels(name, name)
        self._longest = metrics.WORKQUEUE_LONGEST_RUNNING.labels(name, name)
        self._depths: dict[int, Gauge] = {}
        self._depth_of(0)

    def added(self) -> None:
        self._adds.inc()

    def retried(self) -> None:
        self._retries.inc()

    def deepened(self, priority: int, by: int) -> None:
        depth = self._depths.get(priority)
        if depth is None:
            depth = self._depth_of(priority)
        depth.inc(by)

    def _depth_of(self, priority: int) -> Gauge:
        # A priority keeps its series, so that additions and removals change the same series.
        if len(self._depths) >= MAX_PRIORITIES:
            return metrics.WORKQUEUE_DEPTH.labels(self._name, self._name, OTHER_PRIORITIES)
        label = str(priority) if priority else NORMAL_PRIORITY
        depth = self._depths[priority] = metrics.WORKQUEUE_DEPTH.labels(self._name, self._name, label)
        return depth

    def waited(self, seconds: float) -> None:
        self._queue_duration.observe(seconds)

    def worked(self, seconds: float) -> None:
        self._work_duration.observe(seconds)

    def watch(self, ages: Callable[[], Iterable[float]]) -> None:
        self._unfinished.set_function(lambda: float(sum(ages())))
        self._longest.set_function(lambda: max(ages(), default=0.0))


class Stopwatch(Generic[T]):
    """Measures how long each item is ready, and how long the work on it takes."""

    def __init__(self, series: QueueSeries | None, clock: Callable[[], float]) -> None:
        self._series = series
        self._clock = clock
        self._ready: dict[T, float] = {}
        self._taken: dict[T, float] = {}
        if series is not None:
            series.watch(self._ages)

    def retried(self) -> None:
        """Record that an item was added with a delay."""
        if self._series is not None:
            self._series.retried()

    def added(self, item: T, priority: int) -> None:
        """Record that ``item`` became ready."""
        if self._series is not None:
            self._series.added()
            self._series.deepened(priority, 1)
            self._ready.setdefault(item, self._clock())

    def moved(self, old: int, new: int) -> None:
        """Record that a ready item changed its priority."""
        if self._series is not None:
            self._series.deepened(old, -1)
            self._series.deepened(new, 1)

    def taken(self, item: T, priority: int) -> None:
        """Record that ``item`` was handed out."""
        if self._series is None:
            return
        now = self._taken[item] = self._clock()
        self._series.deepened(priority, -1)
        if (since := self._ready.pop(item, None)) is not None:
            self._series.waited(now - since)

    def done(self, item: T) -> None:
        """Record that the work on ``item`` ended."""
        if self._series is not None and (since := self._taken.pop(item, None)) is not None:
            self._series.worked(self._clock() - since)

    def dropped(self, item: T, priority: int) -> None:
        """Record that a ready item was dropped at shutdown."""
        if self._series is not None:
            self._ready.pop(item, None)
            self._series.deepened(priority, -1)

    def _ages(self) -> Iterable[float]:
        if not self._taken:  # also when the loop has ended: then nothing is in progress
            return ()
        now = self._clock()
        return tuple(now - since for since in self._taken.values())
