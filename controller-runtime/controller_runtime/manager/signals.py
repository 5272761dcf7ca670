# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT: the first asks to stop, the second ends the process. SIGUSR1 and SIGUSR2: the log level."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from controller_runtime import log

_log = log.logger_from("controller-runtime.manager.signals")


@asynccontextmanager
async def setup_signal_handler(
    exit_now: Callable[[int], object] = os._exit,
) -> AsyncIterator[anyio.Event]:
    """Yield an event that the first signal sets; pass it to ``Manager.start``. The second calls ``exit_now(1)``.

    Meanwhile SIGUSR1 raises the log's verbosity by one level, up to trace, and SIGUSR2 restores the initial level.
    """
    stop = anyio.Event()

    async def watch(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            task_status.started()
            async for number in received:
                if stop.is_set():
                    exit_now(1)
                    return
                _log.info("Stopping", signal=signal.Signals(number).name)
                stop.set()

    async def follow(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        configured = log.verbosity()
        with anyio.open_signal_receiver(signal.SIGUSR1, signal.SIGUSR2) as received:
            task_status.started()
            async for number in received:
                wanted = more(log.verbosity()) if number == signal.SIGUSR1 else configured
                log.set_verbosity(max(wanted, log.INFO))
                _log.info("Log level changed", verbosity=wanted)  # written at any level
                log.set_verbosity(wanted)

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch)
        await tasks.start(follow)
        yield stop
        tasks.cancel_scope.cancel()


def more(verbosity: int) -> int:
    """Return the next of info, debug and trace above ``verbosity``; trace for all that is above that already."""
    return next(
        (level for level in (log.INFO, log.DEBUG, log.TRACE) if level > verbosity), max(verbosity, log.TRACE)
    )
