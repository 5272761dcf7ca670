# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Work on large objects: which work runs next, and who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import fairness, metrics, offload

SIZE = 2 * offload.LARGE


async def work_for(
    namespace: str, work: Callable[[], Any], *, size: int = SIZE, is_review: bool = False
) -> Any:
    with (
        fairness.working_for(fairness.Tenant(namespace, is_review=is_review)),
        offload.object_size(size),
    ):
        return await offload.run(work)


@asynccontextmanager
async def occupied(*namespaces: str, is_review: bool = False) -> AsyncIterator[dict[str, threading.Event]]:
    """Occupy a thread for each of the namespaces; yield the events that end the work."""
    ends = {namespace: threading.Event() for namespace in namespaces}
    begun = {namespace: threading.Event() for namespace in namespaces}

    def occupy(namespace: str) -> None:
        begun[namespace].set()
        assert ends[namespace].wait(60)

    async with anyio.create_task_group() as tasks:
        for namespace in namespaces:
            tasks.start_soon(partial(work_for, namespace, partial(occupy, namespace), is_review=is_review))
        try:
            while not all(event.is_set() for event in begun.values()):
                await anyio.lowlevel.checkpoint()
            yield ends
        finally:
            for end in ends.values():
                end.set()


@pytest.mark.parametrize("is_review", [False, True])
async def test_work_of_a_namespace_does_not_wait_for_a_long_piece_of_work_of_another(is_review: bool) -> None:
    async with occupied("greedy", is_review=is_review):
        assert await work_for("other", lambda: "done", is_review=is_review) == "done"


async def test_a_review_does_not_wait_for_reconciles() -> None:
    async with occupied("a", "b"):
        assert await work_for("a", lambda: "done", is_review=True) == "done"


async def test_a_namespace_uses_one_thread_at_a_time_and_its_smallest_work_comes_first() -> None:
    order: list[str] = []
    async with occupied("greedy") as ends, anyio.create_task_group() as tasks:
        for name, size in (("large", 9 * SIZE), ("small", SIZE), ("medium", 3 * SIZE)):
            tasks.start_soon(partial(work_for, "greedy", partial(order.append, name), size=size))
        await anyio.wait_all_tasks_blocked()
        assert order == []
        ends["greedy"].set()
    assert order == ["small", "medium", "large"]


async def test_waiting_namespaces_take_turns() -> None:
    order: list[str] = []
    async with occupied("a", "b") as ends, anyio.create_task_group() as tasks:
        for namespace in ("greedy", "greedy", "greedy", "other"):
            tasks.start_soon(work_for, namespace, partial(order.append, namespace))
            await anyio.wait_all_tasks_blocked()
        ends["a"].set()
    assert order.index("other") <= 1


async def test_cancelled_work_that_waited_gives_its_turn_to_the_next() -> None:
    async with occupied("greedy") as ends, anyio.create_task_group() as tasks:
        with anyio.move_on_after(1):
            await work_for("greedy", lambda: pytest.fail("it was cancelled"))
        done = anyio.Event()

        async def following() -> None:
            await work_for("greedy", lambda: None)
            done.set()

        tasks.start_soon(following)
        await anyio.wait_all_tasks_blocked()
        ends["greedy"].set()
        await done.wait()


async def test_a_long_wait_is_measured_and_logged_with_the_namespace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def waits() -> float:
        return (
            metrics.REGISTRY.get_sample_value(
                "controller_runtime_turn_wait_seconds_count", {"resource": "thread"}
            )
            or 0.0
        )

    before = waits()
    caplog.set_level("INFO")
    # A wait is logged once a minute for a namespace, so no other test may make this one wait.
    async with occupied("patient") as ends, anyio.create_task_group() as tasks:
        tasks.start_soon(work_for, "patient", lambda: None)
        await anyio.sleep(3)
        ends["patient"].set()
    assert waits() == before + 1
    (record,) = [vars(each) for each in caplog.records if each.getMessage() == "Waited for a turn"]
    assert (record["namespace"], record["resource"], round(record["seconds"])) == ("patient", "thread", 3)
