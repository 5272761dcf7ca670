# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A reconciler with scripted results, and the controller that runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from controller_runtime import metrics
from controller_runtime.controller import Controller
from controller_runtime.reconcile import Request, Result

A, B = Request("ns", "a"), Request("ns", "b")


class Script:
    """A reconciler with scripted results that records the time of each call."""

    def __init__(self, *outcomes: Result | Exception) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[str, float]] = []
        self.takes = 0.0
        self.at_once = self.most_at_once = 0

    async def reconcile(self, request: Request) -> Result:
        self.calls.append((request.name, round(anyio.current_time() - 1000, 3)))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await anyio.sleep(self.takes)
        finally:
            self.at_once -= 1
        outcome = self.outcomes.pop(0) if self.outcomes else Result()
        if isinstance(outcome, Exception):
            raise outcome.with_traceback(None)  # each raise of the same error would lengthen its traceback
        return outcome

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.calls]


@asynccontextmanager
async def running(made: Controller) -> AsyncIterator[Controller]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.start)
        await made.ready()
        yield made
        made.stop()


Make = Callable[..., Controller]


Settle = Callable[[], Awaitable[None]]


def total(made: Controller, series: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(
        f"controller_runtime_{series}", {"controller": made.name, **labels}
    )
