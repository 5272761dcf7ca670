# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An event loop that takes every decision from one random generator: its clock is virtual, its order is drawn.

asyncio runs callbacks in the order in which they became ready. A real program does not control that order: it depends
on the arrival of bytes. Here the generator picks among the tasks that are ready. The callbacks that one task schedules
keep their order.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Final

START: Final = 1000.0
"""The time of a loop's clock when it begins, in seconds."""
_MASK: Final = (1 << 64) - 1
_PRIME: Final = 1_099_511_628_211


class DeadlockError(AssertionError):
    """Every task waits, and no timer is set."""


class LeakError(AssertionError):
    """The program left the simulation: it started a thread, slept, or opened a connection."""


class Process:
    """What runs on one machine, and can be killed or stopped from outside; see :meth:`SimLoop.enter`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.held: list[tuple[Lane, asyncio.Handle]] = []
        """What became ready while it was paused."""
        self.drift = 0.0
        """Seconds by which its wall clock is ahead."""
        self.ended = asyncio.Event()


CURRENT: Final[ContextVar[Process | None]] = ContextVar("simtest_process", default=None)
"""The process that the running task belongs to."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    _numbers = itertools.count(1)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class Lane:
    """What waits to run, in order."""

    __slots__ = ("handles", "listed")

    def __init__(self) -> None:
        self.handles: deque[asyncio.Handle] = deque()
        self.listed = False


class SimLoop(asyncio.BaseEventLoop):
    """A loop that draws its order from ``rng``.

    Its clock starts at :data:`START` and jumps to the next timer when no callback is ready.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        SimTask._numbers = itertools.count(1)
        self.set_task_factory(_new_task)
        self._rng = rng
        self._clock = START
        self._lanes: dict[object, Lane] = {}
        self._listed: list[Lane] = []
        self._running_lane = Lane()
        self.steps = 0
        """How many callbacks have run."""
        self.digest = 14_695_981_039_346_656_037
        """A hash of every decision so far."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock

    def note(self, number: int) -> None:
        """Mix a number into the digest."""
        self.digest = ((self.digest ^ number) * _PRIME) & _MASK

    # What asyncio calls.

    def _call_soon(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        owner = getattr(callback, "__self__", None)
        self._append(self._lane_of(owner) if isinstance(owner, asyncio.Task) else self._running_lane, handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """As ``call_soon``: there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> Any:
        """Refuse: a thread's timing cannot be repeated."""
        raise LeakError(f"{func!r} in a thread")

    def _run_once(self) -> None:
        self._take_due()
        listed = self._listed
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
            self.note(len(listed) << 8 | number & 0xFF)
            self._running_lane = lane
            handle._run()

    def resume(self, process: Process) -> None:
        """Let a paused process run on."""
        process.paused = False
        held, process.held = process.held, []
        for lane, handle in held:
            self._append(lane, handle)

    def _withheld(self, lane: Lane, handle: asyncio.Handle) -> bool:
        """Return True if the process that a callback belongs to does not run: a dead one's is dropped."""
        process = handle._context.get(CURRENT)  # type: ignore[attr-defined]
        if process is None or not (process.dead or process.paused):
            return False
        if not process.dead:
            process.held.append((lane, handle))
        return True

    def _take_due(self) -> None:
        """Make the timers ready whose time has come; if nothing else is, go to the time of the first."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        if not self._listed:
            if not scheduled or math.isinf(scheduled[0].when()):
                raise DeadlockError("every task waits and no timer is set")
            self._clock = max(self._clock, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._clock:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            if handle._cancelled:
                self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            else:
                self._append(Lane(), handle)

    def _append(self, lane: Lane, handle: asyncio.Handle) -> None:
        lane.handles.append(handle)
        if not lane.listed:
            lane.listed = True
            self._listed.append(lane)

    def _lane_of(self, task: asyncio.Task[Any]) -> Lane:
        lane = self._lanes.get(task)
        if lane is None:
            lane = self._lanes[task] = Lane()
            task.add_done_callback(self._forget)
        return lane

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._lanes.pop(task, None)

    def _process_events(self, event_list: Any) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""


def _new_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    return SimTask(coro, loop=loop, **options)
