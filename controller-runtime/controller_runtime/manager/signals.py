# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Signals: the first SIGTERM or SIGINT requests a stop, the second ends the process; SIGUSR1 and SIGUSR2 change the
verbosity of the log.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from controller_runtime import log

from . import watchdog
from .lifecycle import GracePeriodExceededError

_LAST_MOMENTS: Final = 10.0
"""Seconds in which the process may end by itself after the grace period was exceeded."""
_log = log.logger_from("controller-runtime.manager.signals")


@asynccontextmanager
async def setup_signal_handler(
    exit_now: Callable[[int], object] = os._exit,
) -> AsyncIterator[anyio.Event]:
    """Yield an event for ``Manager.start``. The first SIGTERM or SIGINT sets the event; the second calls
    ``exit_now(1)``, even if code such as ``time.sleep`` in a reconcile blocks the event loop.

    Meanwhile SIGUSR1 raises the log's verbosity by one level, up to trace, and SIGUSR2 restores the initial level.
    If the loop is still blocked when the manager's grace period is over, or if runnables that did not end in time keep
    the process alive, the process ends, too.

    Signals that the process ignored before are handled, too, as by Go's ``signal.Notify``. At the end, the previous
    handlers are restored. While they are restored, signals are delayed, so none raises KeyboardInterrupt.
    """
    stop, configured = anyio.Event(), log.verbosity()

    def end(number: int) -> None:
        _log.info("Stopping", signal=signal.Signals(number).name)
        stop.set()

    def follow(number: int) -> None:
        wanted = more(log.verbosity()) if number == signal.SIGUSR1 else configured
        log.set_verbosity(max(wanted, log.INFO))
        _log.info("Log level changed", verbosity=wanted)  # written at any level
        log.set_verbosity(wanted)

    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    asked = watchdog.StopSignal(exit_now)
    watchdog.handled.set(asked)

    def ask(number: int, _: object) -> None:
        # Python calls this function even if a reconcile blocks the event loop.
        if asked.received_at is not None:
            exit_now(1)
        asked.received_at = time.monotonic()
        loop.call_soon_threadsafe(end, number, context=context)

    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGUSR1: follow, signal.SIGUSR2: follow}
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handle in handlers.items():
        if handle is follow:
            loop.add_signal_handler(number, handle, number)
        else:
            loop.add_signal_handler(number, int)  # a signal must wake the loop
            signal.signal(number, ask)
            signal.siginterrupt(number, False)
    try:
        yield stop
    except GracePeriodExceededError:
        if asked.received_at is not None:
            # The loop and the interpreter would wait for tasks and threads that do not end.
            timer = threading.Timer(_LAST_MOMENTS, _end_late, (exit_now,))
            timer.daemon = True
            timer.start()
        raise
    finally:
        watchdog.handled.set(None)
        # remove_signal_handler sets Python's default handlers: block signals until the previous ones are restored.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_late(exit_now: Callable[[int], object]) -> None:
    _log.error("Ending the process: tasks or threads still run after the grace period")
    exit_now(1)


def more(verbosity: int) -> int:
    """Return the lowest of info, debug and trace that is above ``verbosity``; if none is, return ``verbosity``."""
    return next(
        (level for level in (log.INFO, log.DEBUG, log.TRACE) if level > verbosity), max(verbosity, log.TRACE)
    )
