# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An event loop with a virtual clock, in which one random generator decides the order of the tasks.

asyncio runs callbacks in the order in which they became ready. In a real program, that order depends on when bytes
arrive, so every order may occur. Here the generator chooses which of the ready tasks runs next. The callbacks that one
task schedules keep their order.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Final, Generic, ParamSpec

LOOP_START: Final = 1000.0
"""The time, in seconds, at which a loop's clock begins."""
_MOST: Final = 200_000
"""Maximum number of callbacks at one moment of virtual time. A list of 1000 objects needs a few thousand of them."""
_MASK: Final = (1 << 64) - 1
_PRIME: Final = 1_099_511_628_211
CURRENT_PROCESS: Final[ContextVar[Process | None]] = ContextVar("simtest_process", default=None)
"""The process that the running task belongs to."""
P = ParamSpec("P")


class DeadlockError(AssertionError):
    """Every task waits, and no timer is set."""


class LivelockError(AssertionError):
    """Callbacks run endlessly at one moment of virtual time, so that the clock never advances."""


class LeakError(AssertionError):
    """The program left the simulation: it started a thread, slept, or opened a connection."""


class Process:
    """A simulated process: a test can kill or pause all its tasks together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.delayed: list[tuple[CallbackQueue, asyncio.Handle]] = []
        """Callbacks that became ready while the process was paused."""
        self.drift = 0.0
        """Seconds by which the process's wall clock is ahead."""
        self.rate = 0.0
        """How many seconds the process's wall clock gains in each second."""
        self.ended = asyncio.Event()

    def kill(self) -> None:
        """End the process as SIGKILL does: none of its callbacks runs any more."""
        self.dead = True
        self.ended.set()
        delayed, self.delayed = self.delayed, []
        for _, handle in delayed:
            _drop(handle)


class CallbackQueue:
    """A queue of callbacks that are ready to run."""

    __slots__ = ("handles", "listed")

    def __init__(self) -> None:
        self.handles: deque[asyncio.Handle] = deque()
        self.listed = False


class SimTask(asyncio.Task[Any]):
    """A task whose hash is a number, not its address, so that a set of tasks has the same order in each run."""

    _numbers = itertools.count(1)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        self.queue = CallbackQueue()
        """The ready callbacks of the task."""
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """A loop that chooses at random, with ``rng``, which callback runs next.

    Its clock starts at :data:`LOOP_START` and jumps to the next timer when no callback is ready.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        SimTask._numbers = itertools.count(1)
        self.set_task_factory(lambda loop, coro, **options: SimTask(coro, loop=loop, **options))
        self._rng = rng
        self._clock = LOOP_START
        self._listed: list[CallbackQueue] = []
        self._running_queue = CallbackQueue()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._began_moment = 0
        self.steps = 0
        """How many callbacks have run."""
        self.digest = 14_695_981_039_346_656_037
        """A hash of every decision so far."""
        self.trace: list[str] | None = None
        """If this is a list, the loop appends the name of each callback that it runs."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock

    # Called by asyncio.

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Add a callback at the end of its task's queue. A callback without a task joins the queue of the callback that
        runs now.
        """
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, context)
        owner = getattr(callback, "__self__", None)
        self._append(owner.queue if isinstance(owner, SimTask) else self._running_queue, handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._clock + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at the time ``when``.

        Timers for the same time become ready in the order in which they were set.
        """
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Do the same as ``call_soon``, because there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> Any:
        """Raise LeakError, because a thread's timing cannot be repeated."""
        raise LeakError(f"{func!r} in a thread")

    def _run_once(self) -> None:
        listed, timers = self._listed, self._timers
        if not listed or (timers and timers[0][0] <= self._clock):
            self._take_due()
        number = int(self._rng.random() * len(listed)) if len(listed) > 1 else 0
        queue = listed[number]
        handle = queue.handles.popleft()
        if not queue.handles:
            queue.listed = False
            last = listed.pop()
            if last is not queue:
                listed[number] = last
        if not handle._cancelled and not self._withheld(queue, handle):
            self.steps += 1
            if self.steps - self._began_moment > _MOST:
                raise LivelockError(f"{_MOST} callbacks at one moment; the last was {_name_of(handle)}")
            self.digest = ((self.digest ^ (len(listed) << 8 | number & 0xFF)) * _PRIME) & _MASK
            if self.trace is not None:
                self.trace.append(_name_of(handle))
            self._running_queue = queue
            handle._run()

    def resume(self, process: Process) -> None:
        """Let a paused process continue."""
        process.paused = False
        delayed, process.delayed = process.delayed, []
        for queue, handle in delayed:
            self._append(queue, handle)

    def _withheld(self, queue: CallbackQueue, handle: asyncio.Handle) -> bool:
        """Return True if the callback's process is dead or paused. If it is paused, keep the callback for later."""
        process = handle._context.get(CURRENT_PROCESS)  # type: ignore[attr-defined]
        if process is None or not (process.dead or process.paused):
            return False
        if process.dead:
            _drop(handle)
        else:
            process.delayed.append((queue, handle))
        return True

    def _take_due(self) -> None:
        """If no callback is ready, advance the clock to the first timer. Then make all due timers ready."""
        timers = self._timers
        if not self._listed:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers or math.isinf(timers[0][0]):
                raise DeadlockError("every task waits and no timer is set")
            if timers[0][0] > self._clock:
                self._clock = timers[0][0]
                self._began_moment = self.steps
        while timers and timers[0][0] <= self._clock:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._append(CallbackQueue(), handle)

    def _append(self, queue: CallbackQueue, handle: asyncio.Handle) -> None:
        queue.handles.append(handle)
        if not queue.listed:
            queue.listed = True
            self._listed.append(queue)

    def drop_all(self) -> None:
        """Drop all callbacks, so that nothing runs after the end of a life."""
        self._listed.clear()
        self._timers.clear()

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: the loop watches no files."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop has no selector to wake."""


def _drop(handle: asyncio.Handle) -> None:
    """Close the coroutine of a task that will never begin; otherwise Python warns that it was not awaited."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    work = owner.get_coro() if isinstance(owner, asyncio.Task) else None
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


def _name_of(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_coro().__qualname__}"  # type: ignore[union-attr]
    return str(getattr(callback, "__qualname__", type(callback).__name__))


class Delays(Generic[P]):
    """Functions that return a random delay in seconds. If there are several, the longest of their delays is used."""

    def __init__(self, *always: Callable[P, float]) -> None:
        self._drawn = list(always)

    @contextmanager
    def during(self, draw: Callable[P, float]) -> Iterator[None]:
        """Use ``draw``, too, while the block runs."""
        self._drawn.append(draw)
        try:
            yield
        finally:
            self._drawn.remove(draw)

    def longest(self, *args: P.args, **kwargs: P.kwargs) -> float:
        """Return the longest delay in seconds, or 0 without any function."""
        if len(self._drawn) == 1:
            return self._drawn[0](*args, **kwargs)
        return max((draw(*args, **kwargs) for draw in self._drawn), default=0.0)
