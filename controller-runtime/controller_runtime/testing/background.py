# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Services that run while a fixture is in use.

pytest may run the part of an async fixture after its ``yield`` in another task than the part before it. A fixture can
therefore not hold a task group open across its ``yield``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class _Started:
    """The ``task_status`` that a service gets."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def started(self, _value: object = None) -> None:
        self.event.set()


async def start_in_background(start: Callable[..., Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Run ``start(task_status=…)`` in a new task; return the task when it has called ``task_status.started()``.

    The caller must cancel the task. If ``start`` raises an error before it calls ``started()``, the error is raised
    here.

    Raises:
        RuntimeError: ``start`` returned without calling ``started()``.
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
