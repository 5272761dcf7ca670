# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An event loop with a virtual clock: a wait takes no real time, and its length is exact.

The clock advances to the next timer as soon as no callback is ready. A test that waits for an event that cannot occur
fails instead of hanging. A test also fails if it blocks the loop: if it calls ``time.sleep``, opens a connection,
starts a process, or computes for a long time.
"""

from __future__ import annotations

import asyncio
import queue
import selectors
import sys
import threading
import time
from typing import Final

STEP_SECONDS: Final = 5.0
"""Maximum CPU time for one pass over the ready callbacks. It is long because the first pass may import modules."""
THREAD_GRACE_SECONDS: Final = 0.02
"""Real time that other threads get before the clock advances."""
WORKER_GRACE_SECONDS: Final = 0.5
"""Real time that other threads get while a worker thread of anyio computes; a busy machine may run it late."""
GRACE_WAITS: Final = 10
"""The time for other threads is divided into this many waits, so that a short stall of the machine costs only one."""
SHORTEST_WAIT: Final = 0.002
DEADLOCK_SECONDS: Final = 20.0
"""Real time that other threads get if every task waits and no timer is set."""
FORBIDDEN: Final = frozenset({"socket.connect", "socket.getaddrinfo", "subprocess.Popen"})


class BlockedLoopError(AssertionError):
    """A test blocked its event loop, or waits for an event that cannot occur."""


def _computes(thread: threading.Thread) -> bool:
    """Return True for a worker thread of anyio that has work."""
    work = getattr(thread, "queue", None)
    return isinstance(work, queue.Queue) and work.unfinished_tasks > 0


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that advances the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.problems: list[str] = []
        self._step_began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._judge_the_step()
        try:
            ready = super().select(0)
            if ready or timeout == 0:
                return ready
            others = threading.active_count() > 1
            if timeout is None:
                ready = super().select(DEADLOCK_SECONDS) if others else []
                if not ready:
                    raise BlockedLoopError("every task waits and no timer is set: this test would hang")
                return ready
            grace = (
                WORKER_GRACE_SECONDS
                if others and any(map(_computes, threading.enumerate()))
                else THREAD_GRACE_SECONDS
            )
            left = min(timeout, grace) if others else 0.0
            wait = max(left / GRACE_WAITS, SHORTEST_WAIT)
            while left > 0:
                if ready := super().select(min(left, wait)):
                    return ready
                left -= wait
            self.now += timeout
            return []
        finally:
            self._step_began = time.thread_time()

    def _judge_the_step(self) -> None:
        if self._step_began is None:
            return
        spent = time.thread_time() - self._step_began
        if spent > STEP_SECONDS:
            self.problems.append(f"one step of the loop computed for {spent:.2f} s")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on :class:`_JumpingSelector`'s clock, which starts at 1000."""

    def __init__(self) -> None:
        self.clock = _JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def refuse_in_virtual_loop(name: str) -> None:
    """Raise BlockedLoopError if this thread runs a virtual loop, because the function ``name`` would block the loop."""
    loop = asyncio._get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        problem = f"{name} inside the event loop"
        loop.clock.problems.append(problem)
        raise BlockedLoopError(problem)


def _audit(event: str, _args: tuple[object, ...]) -> None:
    if event in FORBIDDEN:
        refuse_in_virtual_loop(event)


def install_audit_hook() -> None:
    """Make blocking calls fail in every virtual loop of this process. This cannot be undone."""
    sys.addaudithook(_audit)
