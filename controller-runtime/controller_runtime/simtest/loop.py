# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An event loop with a virtual clock, in which one random generator decides the order of the tasks.

asyncio runs callbacks in the order in which they became ready. A real program does not control that order, because the
order depends on when bytes arrive. Here the generator picks among the tasks that are ready. The callbacks that one task
schedules keep their order.
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
"""Maximum number of callbacks at one moment of virtual time; a list of a thousand objects takes a few thousand
callbacks."""
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
    """A simulated process: its tasks can be killed or paused together, from outside."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.held: list[tuple[Lane, asyncio.Handle]] = []
        """Callbacks that became ready while the process was paused."""
        self.drift = 0.0
        """Seconds by which the process's wall clock is ahead."""
        self.rate = 0.0
        """Seconds that the process's wall clock gains in a second."""
        self.ended = asyncio.Event()

    def kill(self) -> None:
        """End the process as SIGKILL does: none of its callbacks runs any more."""
        self.dead = True
        self.ended.set()
        held, self.held = self.held, []
        for _, handle in held:
            _drop(handle)


class Lane:
    """Callbacks that wait to run, in order."""

    __slots__ = ("handles", "listed")

    def __init__(self) -> None:
        self.handles: deque[asyncio.Handle] = deque()
        self.listed = False


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    _numbers = itertools.count(1)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        self.lane = Lane()
        """The callbacks that run the task."""
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """A loop that draws its order from ``rng``.

    Its clock starts at :data:`LOOP_START` and jumps to the next timer when no callback is ready.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        SimTask._numbers = itertools.count(1)
        self.set_task_factory(lambda loop, coro, **options: SimTask(coro, loop=loop, **options))
        self._rng = rng
        self._clock = LOOP_START
        self._listed: list[Lane] = []
        self._running_lane = Lane()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._began_moment = 0
        self.steps = 0
        """How many callbacks have run."""
        self.digest = 14_695_981_039_346_656_037
        """A hash of every decision so far."""
        self.trace: list[str] | None = None
        """If this is a list, it receives the name of each callback that runs."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock

    # Called by asyncio.

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Add a callback at the end of its task's lane. A callback without a task goes to the lane of the callback that
        runs now.
        """
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, context)
        owner = getattr(callback, "__self__", None)
        self._append(owner.lane if isinstance(owner, SimTask) else self._running_lane, handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._clock + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at the time ``when``; timers of the same time become ready in the order of these calls."""
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
        lane = listed[number]
        handle = lane.handles.popleft()
        if not lane.handles:
            lane.listed = False
            last = listed.pop()
            if last is not lane:
                listed[number] = last
        if not handle._cancelled and not self._withheld(lane, handle):
            self.steps += 1
            if self.steps - self._began_moment > _MOST:
                raise LivelockError(f"{_MOST} callbacks at one moment; the last was {_name_of(handle)}")
            self.digest = ((self.digest ^ (len(listed) << 8 | number & 0xFF)) * _PRIME) & _MASK
            if self.trace is not None:
                self.trace.append(_name_of(handle))
            self._running_lane = lane
            handle._run()

    def resume(self, process: Process) -> None:
        """Let a paused process continue."""
        process.paused = False
        held, process.held = process.held, []
        for lane, handle in held:
            self._append(lane, handle)

    def _withheld(self, lane: Lane, handle: asyncio.Handle) -> bool:
        """Return True if a callback must not run: drop it if its process is dead, keep it if its process is paused."""
        process = handle._context.get(CURRENT_PROCESS)  # type: ignore[attr-defined]
        if process is None or not (process.dead or process.paused):
            return False
        if process.dead:
            _drop(handle)
        else:
            process.held.append((lane, handle))
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
                self._append(Lane(), handle)

    def _append(self, lane: Lane, handle: asyncio.Handle) -> None:
        lane.handles.append(handle)
        if not lane.listed:
            lane.listed = True
            self._listed.append(lane)

    def drop_all(self) -> None:
        """Drop all callbacks: nothing of a life runs after its end."""
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
    """Functions that each draw a delay in seconds. When several functions are in effect, the longest delay counts."""

    def __init__(self, *always: Callable[P, float]) -> None:
        self._drawn = list(always)

    @contextmanager
    def during(self, draw: Callable[P, float]) -> Iterator[None]:
        """Add a function while the block runs."""
        self._drawn.append(draw)
        try:
            yield
        finally:
            self._drawn.remove(draw)

    def longest(self, *args: P.args, **kwargs: P.kwargs) -> float:
        """Return the longest delay in seconds; 0 if no function is in effect."""
        if len(self._drawn) == 1:
            return self._drawn[0](*args, **kwargs)
        return max((draw(*args, **kwargs) for draw in self._drawn), default=0.0)
