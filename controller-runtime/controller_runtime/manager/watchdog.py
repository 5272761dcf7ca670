# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A thread that notices when the event loop is blocked, for example by ``time.sleep`` or a computation in a reconcile.

While the loop is blocked, no other reconcile, no probe and no webhook is answered. One warning names the code. If a
signal has asked the process to stop, and the loop is still blocked when the grace period is over, the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import anyio

from controller_runtime import log
from controller_runtime.machinery.lru import LRU

BLOCKED: Final = 1.0
"""A loop that does not run for this many seconds is reported."""
_PERIOD: Final = 0.5
_LAST_MOMENTS: Final = 2.0
"""Seconds after the grace period in which cancelled runnables may end."""
_MOST_PLACES: Final = 64
_DEEPEST: Final = 200
_NOT_OURS: Final = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]))
_log = log.logger_from("controller-runtime.manager.watchdog")


@dataclass
class StopSignal:
    """Whether a signal has asked the process to stop, and how to end the process at once."""

    exit_now: Callable[[int], object]
    received_at: float | None = None
    """When the first signal came, on the monotonic clock."""


handled: Final[ContextVar[StopSignal | None]] = ContextVar("controller-runtime.stop-signal", default=None)
"""The signals that are handled where the manager runs."""


class Watchdog:
    """A runnable of the manager. ``grace`` is the manager's grace period."""

    name = "watchdog of the event loop"

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._reported: LRU[str, None] = LRU(_MOST_PLACES)

    async def start(self) -> None:
        """Watch the running loop until cancelled."""
        ended = threading.Event()
        arguments = (asyncio.get_running_loop(), threading.get_ident(), handled.get(), ended)
        threading.Thread(target=self._watch, args=arguments, name="watchdog", daemon=True).start()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    # Below, in the thread.

    def _watch(
        self, loop: asyncio.AbstractEventLoop, thread: int, stop: StopSignal | None, ended: threading.Event
    ) -> None:
        while not ended.wait(_PERIOD):
            beat = threading.Event()
            try:
                loop.call_soon_threadsafe(beat.set)
            except RuntimeError:  # the loop is closed
                return
            if beat.wait(BLOCKED):
                continue
            place = self._report(loop, thread)
            while not beat.wait(_PERIOD):
                if not place or stop is None or stop.received_at is None or self._grace < 0:
                    continue
                if time.monotonic() - stop.received_at > self._grace + _LAST_MOMENTS:
                    _log.error(
                        "Ending the process: the event loop is blocked after the grace period", at=place
                    )
                    stop.exit_now(1)
                    return

    def _report(self, loop: asyncio.AbstractEventLoop, thread: int) -> str:
        """Return where the loop's thread is, after a warning if it was not found in this function before.

        Return an empty string if the loop waits for events: then the machine is too busy to run it.
        """
        task = None
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task(loop)
        frame = sys._current_frames().get(thread)
        if frame is None or (task is None and frame.f_code.co_name == "select"):
            return ""
        own_frame = _own_frame(frame)
        innermost, own = _place(frame), _place(own_frame)
        # A computation is found at another line each time, so each function is reported once.
        function = f"{own_frame.f_code.co_filename}:{own_frame.f_code.co_firstlineno}"
        if function not in self._reported:
            below = {"in": innermost} if innermost != own else {}
            _log.warning(
                "The event loop is blocked: call slow code with asyncio.to_thread",
                seconds=BLOCKED,
                at=own,
                **below,
                task=task.get_name() if task is not None else "",
            )
        self._reported[function] = None
        return own


def _own_frame(frame: FrameType) -> FrameType:
    """Return the innermost frame of the program's own code, or ``frame`` if there is none."""
    caller: FrameType | None = frame
    for _ in range(_DEEPEST):
        if caller is None:
            break
        file = caller.f_code.co_filename
        if "site-packages" not in file and not file.startswith((*_NOT_OURS, "<frozen")):
            return caller
        caller = caller.f_back
    return frame


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
