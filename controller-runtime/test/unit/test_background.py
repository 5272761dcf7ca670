# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``start_in_background`` returns when the service is ready, and raises the error of a service that does not start."""

import asyncio
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from controller_runtime.testing.background import start_in_background


async def test_a_service_is_ready_and_runs_until_it_is_cancelled() -> None:
    lived: list[str] = []

    async def serve(*, task_status: TaskStatus[None]) -> None:
        await anyio.sleep(3)
        lived.append("ready")
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            lived.append("ended")

    task = await start_in_background(serve)
    assert lived == ["ready"]
    task.cancel()
    await asyncio.wait([task])
    assert lived == ["ready", "ended"]


async def test_a_failure_before_the_start_is_raised() -> None:
    async def fail(*, task_status: Any) -> None:
        raise OSError("address in use")

    with pytest.raises(OSError, match="address in use"):
        await start_in_background(fail)


async def test_an_end_before_the_start_is_an_error() -> None:
    async def leave(*, task_status: Any) -> None:
        await anyio.sleep(1)

    with pytest.raises(RuntimeError, match="ended before it had started"):
        await start_in_background(leave)


async def test_a_start_that_is_given_up_leaves_nothing_behind() -> None:
    ended = asyncio.Event()

    async def hang(*, task_status: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.move_on_after(1):
        await start_in_background(hang)
    await asyncio.wait_for(ended.wait(), 1)
