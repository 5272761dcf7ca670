# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Services that a fixture starts and ends.

The parts of an asynchronous fixture before and after its ``yield`` may run in different tasks, so no task group can
span them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class _Started:
    """The ``task_status`` of a service."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def started(self, _value: object = None) -> None:
        self.event.set()


async def start_in_background(start: Callable[..., Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Run ``start(task_status=…)`` in a task, and return the task once ``start`` has called ``task_status.started()``.

    The caller must cancel the task. An error that ``start`` raises before that call is raised here.

    Raises:
        RuntimeError: ``start`` returned before that call.
    """
    status = _Started()
    task = asyncio.create_task(start(task_status=status))
    waiting = asyncio.create_task(status.event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        task.cancel()
        raise
    finally:
        waiting.cancel()
    if not status.event.is_set():
        await task
        raise RuntimeError("the service ended before it had started")
    return task
