# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT: the first asks to stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from pkg.ctrl import log

_log = log.logger_from("controller-runtime.manager.signals")


@asynccontextmanager
async def setup_signal_handler(
    exit_now: Callable[[int], object] = os._exit,
) -> AsyncIterator[anyio.Event]:
    """Yield an event that the first signal sets; pass it to ``Manager.start``. The second calls ``exit_now(1)``."""
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

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch)
        yield stop
        tasks.cancel_scope.cancel()
