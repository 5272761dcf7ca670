# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A work queue: it contains each item once, hands an item to one worker at a time, and delays items until they are due.
Rate limiters decide how long an item waits before it is tried again. Nothing here depends on Kubernetes.

An item is waiting (for its time), ready, or in progress. An item in progress may also be waiting or ready again, but it
is not handed out again before :meth:`PriorityQueue.done` is called for it. If an item is added that is in the queue
already, it keeps the higher of the two priorities and the earlier of the two times. Ready items are handed out in the
order of their priorities. Items of the same priority and flow are handed out in the order in which they became ready,
and flows take turns: an item of a flow that was idle waits for about one item of each other flow. The flows of a
controller's queue are namespaces. An item that is raised to a higher priority goes to the end of that priority.

Everything happens on one event loop; only coroutine methods yield to the loop.

Workers get only items. The triggers of an item are texts that say why the item was added. They are kept separately, for
logs and spans, and only while the log level is debug or spans are recorded. They do not influence any work.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import anyio
import msgspec
from prometheus_client.metrics import Gauge

from controller_runtime import metrics
from controller_runtime.machinery.backoff import exponential
from controller_runtime.machinery.lru import LRU
from controller_runtime.machinery.tokenbucket import TokenBucket

T = TypeVar("T", bound=Hashable)
T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)

_MOST_ITEMS: Final = 4096
"""Maximum number of items whose triggers are kept. If there are more, the oldest are dropped."""
_MOST_TRIGGERS: Final = 8
"""Maximum number of triggers that are kept for an item; the most recent ones are kept."""
LOW_PRIORITY: Final = -100
"""The priority of work that is not urgent: objects of the first list, and resyncs."""
_GONE: Final = -1
_SLACK: Final = 64
_FLOWS: Final = 256
_EXPRESS: Final = 32
"""How many of the first items are searched for an express item."""
_MAX_PRIORITIES: Final = 25
"""Maximum number of priorities that have their own depth series; all other priorities share one series."""
_OTHER_PRIORITIES: Final = "exceeded_cardinality_limit"
_NORMAL_PRIORITY: Final = ""
"""The label of priority 0. Go managers without priority queues (the default up to v0.22) use the same label."""
_BASE_DELAY: Final = 0.005
_MAX_DELAY: Final = 1000.0
_OVERALL_QPS: Final = 10.0
_OVERALL_BURST: Final = 100


class QueueShutDownError(Exception):
    """The queue was shut down: it hands out no more work."""


class Adder(Protocol[T_contra]):
    """Accepts items for a queue."""

    def add(
        self, item: T_contra, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item``, or change it if it is in the queue already; see :meth:`PriorityQueue.add`."""


class WithDefaultPriority(Adder[T_contra]):
    """Adds items to a queue with a default priority."""

    def __init__(self, queue: Adder[T_contra], priority: int) -> None:
        self._queue = queue
        self._priority = priority

    def add(
        self, item: T_contra, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item`` to the wrapped queue."""
        if priority is None:
            priority = self._priority
        self._queue.add(item, priority=priority, after=after, rate_limited=rate_limited)


class Triggers(Generic[T]):
    """The last triggers of each item that waits in a queue: texts that say why the item was added."""

    wanted: Callable[[], bool] = staticmethod(
        functools.partial(logging.getLogger(__name__).isEnabledFor, logging.DEBUG)
    )
    """Returns True if triggers are kept now: while the log level is debug."""

    def __init__(self) -> None:
        self._kept: LRU[T, dict[str, None]] = LRU(_MOST_ITEMS)

    def __len__(self) -> int:
        return len(self._kept)

    def note(self, item: T, trigger: str) -> None:
        """Record a trigger of an item. Do nothing if triggers are not kept now."""
        if not self.wanted():
            return
        if (triggers := self._kept.get(item)) is None:
            triggers = self._kept[item] = {}
        triggers.pop(trigger, None)
        triggers[trigger] = None
        if len(triggers) > _MOST_TRIGGERS:
            del triggers[next(iter(triggers))]

    def take(self, item: T) -> list[str]:
        """Return the triggers of an item, oldest first, and forget them."""
        return list(self._kept.pop(item, ()))


class WithTrigger(Adder[T]):
    """Adds items to a queue, and notes their trigger."""

    def __init__(self, queue: Adder[T], triggers: Triggers[T], trigger: str) -> None:
        self._queue = queue
        self._triggers = triggers
        self._trigger = trigger

    def add(
        self, item: T, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item`` to the wrapped queue."""
        self._triggers.note(item, self._trigger)
        self._queue.add(item, priority=priority, after=after, rate_limited=rate_limited)


class _FairTurns:
    """Numbers items so that flows take turns if the items are taken in the order of their numbers (fair queuing)."""

    __slots__ = ("_last", "_prune_at", "now")

    def __init__(self) -> None:
        self.now = 0
        """The number of the last item that was taken."""
        self._last: dict[str, int] = {}
        """The last number of each flow. Numbers up to ``now`` do not matter, and may be missing."""
        self._prune_at = _FLOWS

    def next(self, flow: str) -> int:
        """Return the number of a new item, which follows the flow's last item and the last item that was taken."""
        last, now = self._last.get(flow, 0), self.now
        turn = self._last[flow] = (max(now, last)) + 1
        if len(self._last) > self._prune_at:
            self._last = {flow: number for flow, number in self._last.items() if number > now}
            self._prune_at = max(_FLOWS, 2 * len(self._last))
        return turn


class _Item(msgspec.Struct, Generic[T], eq=False):
    """An item in the queue. A row of a heap is outdated if its ``turn`` or ``ready_at`` differs from the entry's."""

    key: T
    priority: int
    turn: int
    ready_at: float | None
    """When the item becomes ready; None if it is ready."""
    fair_turn: int = 0
    """The place of a ready item among the items of its priority."""


class _Metrics(Generic[T]):
    """The series of one queue in :data:`controller_runtime.metrics.REGISTRY`; a queue without a name has none.

    Queues of the same name add up. No call raises anything.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._ready: dict[T, float] = {}
        """When each item became ready."""
        self._handed_out: dict[T, float] = {}
        """When each item in progress was handed out."""
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

    def handed_out(self, item: T, priority: int) -> None:
        """Record that ``item`` was handed out."""
        if self._name:
            now = self._handed_out[item] = self._clock()
            self._depth(priority).dec()
            if (since := self._ready.pop(item, None)) is not None:
                self._queue_duration.observe(now - since)

    def done(self, item: T) -> None:
        """Record that the work on ``item`` ended."""
        if (since := self._handed_out.pop(item, None)) is not None:
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
        if len(self._depths) >= _MAX_PRIORITIES:
            return metrics.WORKQUEUE_DEPTH.labels(self._name, self._name, _OTHER_PRIORITIES)
        label = str(priority) if priority else _NORMAL_PRIORITY
        depth = self._depths[priority] = metrics.WORKQUEUE_DEPTH.labels(self._name, self._name, label)
        return depth

    def _ages(self) -> Iterable[float]:
        if not self._handed_out:  # also when the loop has ended: then nothing is in progress
            return ()
        now = self._clock()
        return tuple(now - since for since in self._handed_out.values())


class _LoopClock:
    """The time of the event loop in which the clock is first used."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> float:
        """Return the loop's time. Raises RuntimeError if the first call is made outside an event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()


class PriorityQueue(Generic[T]):
    """A deduplicating, delaying, rate limiting priority queue."""

    def __init__(
        self,
        name: str = "",
        *,
        rate_limiter: RateLimiter[T] | None = None,
        clock: Callable[[], float] | None = None,
        flow: Callable[[T], str] = lambda _item: "",
    ) -> None:
        """Make an empty queue. Without a name it has no metrics. ``flow`` returns the flow of an item."""
        self.name = name
        self.triggers: Triggers[T] = Triggers()
        self._limiter = rate_limiter if rate_limiter is not None else ItemExponentialFailureRateLimiter()
        self._clock = clock if clock is not None else _LoopClock()
        self._metrics: _Metrics[T] = _Metrics(name, self._clock)
        self._flow = flow
        self._fair = _FairTurns()
        self._running: dict[str, int] = {}
        """The number of items in progress of each flow."""
        self._entries: dict[T, _Item[T]] = {}
        self._ready: list[tuple[int, int, int, _Item[T]]] = []
        self._waiting: list[tuple[float, int, int, _Item[T]]] = []
        self._working: set[T] = set()
        self._ready_count = 0
        self._ready_flows: dict[str, int] = {}
        """The number of ready items of each flow."""
        self._turns = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._express_getters: deque[asyncio.Future[None]] = deque()
        self._shutting_down = False
        self._draining = False
        self._idle = anyio.Event()

    def __len__(self) -> int:
        """Return the number of ready items, including those that are also in progress."""
        return self._ready_count

    @property
    def shutting_down(self) -> bool:
        """Whether the queue was shut down, with or without draining."""
        return self._shutting_down

    @property
    def in_progress(self) -> int:
        """The number of items that were handed out and are not done."""
        return len(self._working)

    def overdue(self, late: float) -> Iterator[tuple[T, float | None]]:
        """Yield the items that wait too long, each with the time when it should have become ready, or None if it is.

        An item waits too long if its time passed more than ``late`` seconds ago, or if it is ready and not in progress
        although a task waits in :meth:`get`. In a correct queue, no item stays in either state.
        """
        before = self._clock() - late
        for entry in self._entries.values():
            if entry.ready_at is not None:
                is_overdue = entry.ready_at < before
            else:
                is_overdue = bool(self._getters) and entry.key not in self._working
            if is_overdue:
                yield entry.key, entry.ready_at

    def add(
        self, item: T, *, priority: int | None = None, after: float = 0.0, rate_limited: bool = False
    ) -> None:
        """Add ``item``, which becomes ready after ``after`` seconds. After a shutdown of the queue, do nothing.

        With ``rate_limited``, a failure of the item is counted, and the item waits as long as the rate limiter says. If
        ``after`` is shorter than that and not zero, the item waits for ``after`` seconds instead. The default of
        ``priority`` is 0.
        """
        if self._shutting_down:
            return
        if rate_limited:
            limit = self._limiter.when(item)
            after = limit if after <= 0 else min(after, limit)
        ready_at = self._clock() + after if after > 0 else None
        if ready_at is not None:
            self._metrics.retried()
        entry = self._entries.get(item)
        if entry is None:
            entry = self._entries[item] = _Item(item, priority or 0, next(self._turns), ready_at)
            if ready_at is None:
                self._became_ready(entry)
            else:
                self._start_wait(entry, ready_at)
        else:
            self._merge(entry, priority or 0, ready_at)

    def _merge(self, entry: _Item[T], priority: int, ready_at: float | None) -> None:
        """Merge a repeated addition of an item: keep the higher priority and the earlier time."""
        raised = priority > entry.priority
        if raised:
            if entry.ready_at is None:
                self._metrics.moved(entry.priority, priority)
                entry.fair_turn = self._fair.next(self._flow(entry.key))
            entry.priority = priority
            entry.turn = next(self._turns)
        if entry.ready_at is None:
            if raised:
                self._line_up(entry)
        elif ready_at is None:
            self._end_wait(entry)
        elif ready_at < entry.ready_at or raised:
            self._start_wait(entry, min(ready_at, entry.ready_at))

    async def get(self) -> T:
        """Wait for the next item and return it. Call :meth:`done` when the work on the item has ended.

        Raises:
            QueueShutDownError: the queue is shut down, and hands out no more items.
        """
        return (await self.get_with_priority())[0]

    async def get_with_priority(self, *, express: bool = False) -> tuple[T, int]:
        """Return the next item and its priority. Waits and raises like :meth:`get`.

        With ``express``, wait for an item that would have to wait for a greedy flow: another flow has at least two more
        items in progress than the item's flow, and no task waits without ``express``.
        """
        while True:
            if self._shutting_down and not (self._draining and self._ready_count):
                raise QueueShutDownError(f"work queue {self.name or '(unnamed)'} is shut down")
            if express:
                if (entry := self._next_express()) is not None:
                    return entry.key, entry.priority
            else:
                while self._ready:
                    _, fair_turn, turn, entry = heapq.heappop(self._ready)
                    if turn == entry.turn:
                        self._fair.now = max(self._fair.now, fair_turn)
                        self._hand_out(entry)
                        return entry.key, entry.priority
            woken = asyncio.get_running_loop().create_future()
            getters = self._express_getters if express else self._getters
            getters.append(woken)
            try:
                await woken
            except BaseException:
                # A cancelled waiter must pass on its wake-up, or an item would stay in the queue.
                if woken.done() and not woken.cancelled():
                    self._wake_one(getters)
                elif woken in getters:
                    getters.remove(woken)
                raise

    def done(self, item: T) -> None:
        """Report that the work on ``item`` has ended. If it was added during the work, it may be handed out again."""
        if item in self._working:
            self._working.discard(item)
            flow = self._flow(item)
            if running := self._running.pop(flow) - 1:
                self._running[flow] = running
        self._metrics.done(item)
        entry = self._entries.get(item)
        if entry is not None and entry.ready_at is None:
            self._line_up(entry)
        self._check_idle()

    def forget(self, item: T) -> None:
        """Forget the failures of ``item``. If the item is in the queue, it stays there."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return how often ``item`` failed since it was last forgotten."""
        return self._limiter.num_requeues(item)

    def shut_down(self) -> None:
        """Accept and hand out no more items, and wake tasks that wait in :meth:`get`. Work in progress continues."""
        self._shutting_down = True
        self._draining = False
        for entry in self._entries.values():
            entry.turn = _GONE
            if entry.ready_at is None:
                self._metrics.dropped(entry.key, entry.priority)
        self._entries.clear()
        self._ready.clear()
        self._ready_count = 0
        self._ready_flows.clear()
        self._drop_waiting()
        self._wake_all()
        self._check_idle()

    async def shut_down_with_drain(self) -> None:
        """Accept no more items, and return when all ready items have been handed out and are done.

        Delayed items are dropped. If :meth:`shut_down` is called meanwhile, ready items are dropped, too, and this call
        returns when the work in progress is done.
        """
        self._shutting_down = True
        self._draining = self._draining or bool(self._ready_count)
        for entry in [entry for entry in self._entries.values() if entry.ready_at is not None]:
            entry.turn = _GONE
            del self._entries[entry.key]
        self._drop_waiting()
        self._wake_all()
        while self._working or self._ready_count:
            await self._idle.wait()

    def _end_wait(self, entry: _Item[T]) -> None:
        # Items are served in the order in which they became ready, not in which they were added.
        entry.ready_at = None
        entry.turn = next(self._turns)
        self._became_ready(entry)

    def _became_ready(self, entry: _Item[T]) -> None:
        flow = self._flow(entry.key)
        self._ready_count += 1
        self._ready_flows[flow] = self._ready_flows.get(flow, 0) + 1
        entry.fair_turn = self._fair.next(flow)
        self._metrics.added(entry.key, entry.priority)
        self._line_up(entry)

    def _line_up(self, entry: _Item[T]) -> None:
        """Put a ready item in line. If the item is in progress, do nothing: :meth:`done` will put it in line."""
        if entry.key in self._working:
            return
        if len(self._ready) > 2 * self._ready_count + _SLACK:
            self._ready = [row for row in self._ready if row[2] == row[3].turn]
            heapq.heapify(self._ready)
        heapq.heappush(self._ready, (-entry.priority, entry.fair_turn, entry.turn, entry))
        if not self._wake_one(self._getters) and self._express_getters and self._is_express(entry):
            self._wake_one(self._express_getters)

    def _next_express(self) -> _Item[T] | None:
        """Return an item as described at :meth:`get_with_priority`. It is among the first, because flows take turns."""
        if self._getters:
            return None
        passed: list[tuple[int, int, int, _Item[T]]] = []
        entry: _Item[T] | None = None
        while self._ready and entry is None and len(passed) < _EXPRESS:
            row = heapq.heappop(self._ready)
            if row[2] != row[3].turn:
                continue
            if self._is_express(row[3]):
                entry = row[3]
            else:
                passed.append(row)
        for row in passed:
            heapq.heappush(self._ready, row)
        if entry is not None:
            self._hand_out(entry)
        return entry

    def _is_express(self, entry: _Item[T]) -> bool:
        running = self._running.get(self._flow(entry.key), 0)
        return running + 2 <= max(self._running.values(), default=0)

    def _hand_out(self, entry: _Item[T]) -> None:
        entry.turn = _GONE
        del self._entries[entry.key]
        self._ready_count -= 1
        self._working.add(entry.key)
        flow = self._flow(entry.key)
        if ready := self._ready_flows.pop(flow) - 1:
            self._ready_flows[flow] = ready
        self._running[flow] = self._running.get(flow, 0) + 1
        self._metrics.handed_out(entry.key, entry.priority)
        if self._express_getters:
            self._wake_express()

    def _start_wait(self, entry: _Item[T], ready_at: float) -> None:
        entry.ready_at = ready_at
        if len(self._waiting) > 2 * len(self._entries) + _SLACK:
            self._waiting = [row for row in self._waiting if _is_current(row)]
            heapq.heapify(self._waiting)
        heapq.heappush(self._waiting, (ready_at, -entry.priority, entry.turn, entry))
        if self._waiting[0][3] is entry:
            self._set_timer(ready_at)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + max(0.0, when - self._clock()), self._end_due_waits)

    def _end_due_waits(self) -> None:
        """Make due items ready, in the order of their times, and set the timer for the next item."""
        self._timer = None
        now = self._clock()
        while self._waiting:
            row = self._waiting[0]
            if not _is_current(row):
                heapq.heappop(self._waiting)
            elif row[0] <= now:
                heapq.heappop(self._waiting)
                self._end_wait(row[3])
            else:
                self._set_timer(row[0])
                return

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_one(self, getters: deque[asyncio.Future[None]]) -> bool:
        while getters:
            woken = getters.popleft()
            if not woken.done():  # otherwise its waiter was cancelled
                woken.set_result(None)
                return True
        return False

    def _wake_express(self) -> None:
        """Wake a task that waits with ``express`` if an item must wait for a greedy flow since the last item was taken.

        The item was added before, when no flow was greedy, so that its addition woke no such task.
        """
        most = max(self._running.values())
        if any(self._running.get(flow, 0) + 2 <= most for flow in self._ready_flows):
            self._wake_one(self._express_getters)

    def _wake_all(self) -> None:
        for getters in (self._getters, self._express_getters):
            while getters:
                self._wake_one(getters)

    def _check_idle(self) -> None:
        """After a shutdown, wake all tasks that wait in :meth:`get` or for the drain: they check the queue again."""
        if not self._shutting_down:
            return
        self._idle.set()
        self._idle = anyio.Event()
        self._wake_all()


def _is_current(row: tuple[float, int, int, _Item[T]]) -> bool:
    """Return True if a row of the waiting heap is still valid."""
    ready_at, _, turn, entry = row
    return turn == entry.turn and ready_at == entry.ready_at


class RateLimiter(ABC, Generic[T]):
    """Decides on delays, for each item or for all items together."""

    @abstractmethod
    def when(self, item: T) -> float:
        """Return how long ``item`` waits this time; each call counts as one more failure."""

    @abstractmethod
    def forget(self, item: T) -> None:
        """Forget the failures of ``item``, because it succeeded or was given up."""

    @abstractmethod
    def num_requeues(self, item: T) -> int:
        """Return how often ``item`` has failed since it was last forgotten."""


class _PerItem(RateLimiter[T]):
    """Counts the failures of each item."""

    def __init__(self) -> None:
        self._failures: dict[T, int] = {}

    def forget(self, item: T) -> None:
        """Forget the failures of ``item``."""
        self._failures.pop(item, None)

    def num_requeues(self, item: T) -> int:
        """Return the failures counted."""
        return self._failures.get(item, 0)


class ItemExponentialFailureRateLimiter(_PerItem[T]):
    """Delays an item by ``base`` after its first failure, twice as long after each further one, up to ``maximum``."""

    def __init__(self, base: float = _BASE_DELAY, maximum: float = _MAX_DELAY) -> None:
        super().__init__()
        self._base = base
        self._maximum = maximum

    def when(self, item: T) -> float:
        """Return the next delay of ``item``."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return exponential(failures, self._base, self._maximum)


class ItemFastSlowRateLimiter(_PerItem[T]):
    """Delays an item by ``fast`` after each of its first ``attempts`` failures, then by ``slow``."""

    def __init__(self, fast: float, slow: float, attempts: int) -> None:
        super().__init__()
        self._fast = fast
        self._slow = slow
        self._attempts = attempts

    def when(self, item: T) -> float:
        """Return the next delay of ``item``."""
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        return self._fast if failures <= self._attempts else self._slow


class BucketRateLimiter(RateLimiter[T]):
    """A token bucket that all items share: ``burst`` items at once, then ``qps`` a second. It counts no failures."""

    def __init__(self, qps: float, burst: int, *, clock: Callable[[], float] | None = None) -> None:
        self._bucket = TokenBucket(qps, burst, clock)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this limiter: the items of its copies share the bucket, too."""
        del memo
        return self

    def when(self, item: T) -> float:
        """Take a token, or a future token if none is left, and return the time until that token is available."""
        del item
        return self._bucket.take()

    def forget(self, item: T) -> None:
        """Do nothing: a token is not returned."""

    def num_requeues(self, item: T) -> int:
        """Return 0."""
        del item
        return 0


class MaxOfRateLimiter(RateLimiter[T]):
    """Uses the longest delay of several limiters."""

    def __init__(self, *limiters: RateLimiter[T]) -> None:
        self._limiters = limiters

    def when(self, item: T) -> float:
        """Return the longest delay; every limiter counts the failure."""
        return max((limiter.when(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: T) -> None:
        """Make every limiter forget."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return the highest count."""
        return max((limiter.num_requeues(item) for limiter in self._limiters), default=0)


class WithMaxWaitRateLimiter(RateLimiter[T]):
    """Limits the delays of another limiter to ``maximum``."""

    def __init__(self, limiter: RateLimiter[T], maximum: float) -> None:
        self._limiter = limiter
        self._maximum = maximum

    def when(self, item: T) -> float:
        """Return the delay of the wrapped limiter, at most the maximum."""
        return min(self._limiter.when(item), self._maximum)

    def forget(self, item: T) -> None:
        """Forget the item in the wrapped limiter."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return the count of the wrapped limiter."""
        return self._limiter.num_requeues(item)


def default_controller_rate_limiter() -> RateLimiter[T]:
    """Return a controller's limiter: 5 ms to 1000 s for each item, and 10 retries a second for all items after a burst
    of 100.
    """
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(_BASE_DELAY, _MAX_DELAY),
        BucketRateLimiter(_OVERALL_QPS, _OVERALL_BURST),
    )
