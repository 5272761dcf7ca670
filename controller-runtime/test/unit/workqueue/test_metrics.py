# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from controller_runtime import metrics
from controller_runtime.workqueue import PriorityQueue

MOST = 25
"""So many priorities have a series of their own."""
OTHERS = "exceeded_cardinality_limit"
"""The label of all other priorities, which dashboards know."""


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Iterator[PriorityQueue[str]]:
    made: PriorityQueue[str] = PriorityQueue(request.node.name)
    yield made
    made.shut_down()


def sample(queue: PriorityQueue[str], series: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(
        f"workqueue_{series}", {"name": queue.name, "controller": queue.name, **labels}
    )


async def test_depth_is_there_from_the_start_without_a_priority_as_in_go(queue: PriorityQueue[str]) -> None:
    assert sample(queue, "depth", priority="") == 0
    assert sample(queue, "depth", priority="0") is None


async def test_depth_counts_what_is_ready_by_priority(queue: PriorityQueue[str]) -> None:
    queue.add("a", priority=-100)
    queue.add("b")
    queue.add("c", after=5)
    queue.add("b")
    assert sample(queue, "depth", priority="-100") == 1
    assert sample(queue, "depth", priority="") == 1
    queue.add("a")
    assert (sample(queue, "depth", priority="-100"), sample(queue, "depth", priority="")) == (0, 2)
    await anyio.sleep(5)
    assert sample(queue, "depth", priority="") == 3
    await queue.get()
    assert sample(queue, "depth", priority="") == 2
    queue.shut_down()
    assert sample(queue, "depth", priority="") == 0


async def test_adds_count_items_that_became_ready_and_retries_those_with_a_delay(
    queue: PriorityQueue[str],
) -> None:
    queue.add("a")
    queue.add("a")
    queue.add("b", rate_limited=True)
    assert (sample(queue, "adds_total"), sample(queue, "retries_total")) == (1, 1)
    await anyio.sleep(1)
    assert (sample(queue, "adds_total"), sample(queue, "retries_total")) == (2, 1)


async def test_times_in_the_queue_and_in_work_are_observed(queue: PriorityQueue[str]) -> None:
    queue.add("a", after=7)
    await anyio.sleep(10)
    item = await queue.get()
    assert sample(queue, "queue_duration_seconds_sum") == 3
    await anyio.sleep(2)
    queue.done(item)
    assert sample(queue, "work_duration_seconds_sum") == 2
    assert sample(queue, "work_duration_seconds_count") == 1


async def test_unfinished_work_is_as_old_as_it_is_when_asked(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    queue.add("b")
    await queue.get()
    await anyio.sleep(3)
    await queue.get()
    await anyio.sleep(1)
    assert sample(queue, "unfinished_work_seconds") == 5
    assert sample(queue, "longest_running_processor_seconds") == 4
    queue.done("a")
    assert sample(queue, "longest_running_processor_seconds") == 1
    queue.done("b")
    assert sample(queue, "unfinished_work_seconds") == 0
    assert sample(queue, "longest_running_processor_seconds") == 0


async def test_priorities_beyond_a_limit_share_one_series(queue: PriorityQueue[str]) -> None:
    for priority in range(MOST + 5):
        queue.add(str(priority), priority=priority)
    assert sample(queue, "depth", priority="") == 1
    assert sample(queue, "depth", priority=OTHERS) == 5
    for _ in range(MOST + 5):
        await queue.get()
    assert sample(queue, "depth", priority=OTHERS) == 0
    assert sample(queue, "depth", priority="") == 0


async def test_a_queue_without_a_name_shows_nothing() -> None:
    queue: PriorityQueue[str] = PriorityQueue()
    queue.add("a")
    queue.done(await queue.get())
    assert sample(queue, "adds_total") is None
