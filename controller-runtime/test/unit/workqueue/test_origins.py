# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The table of origins: bounded, and empty unless the log level is debug."""

import pytest

from controller_runtime import log
from controller_runtime.workqueue import Origins, PriorityQueue, WithOrigin
from controller_runtime.workqueue.priorityqueue import MOST_ITEMS, MOST_ORIGINS


@pytest.fixture(autouse=True)
def debug() -> None:
    log.limit(log.DEBUG)


def test_origins_are_taken_once_in_order_and_without_repetition() -> None:
    origins: Origins[str] = Origins()
    for origin in ("a", "b", "a"):
        origins.note("item", origin)

    assert origins.take("item") == ["b", "a"]
    assert origins.take("item") == []


def test_the_table_keeps_the_last_origins_of_the_last_items() -> None:
    origins: Origins[int] = Origins()
    for item in range(MOST_ITEMS + 10):
        origins.note(item, "x")
    for number in range(MOST_ORIGINS + 2):
        origins.note(MOST_ITEMS, str(number))

    assert len(origins) == MOST_ITEMS
    assert origins.take(0) == []
    assert origins.take(MOST_ITEMS) == [str(number) for number in range(2, MOST_ORIGINS + 2)]


async def test_a_noting_queue_passes_work_on() -> None:
    queue: PriorityQueue[str] = PriorityQueue("")
    WithOrigin(queue, queue.origins, "watch").add("item", priority=3)

    assert await queue.get_with_priority() == ("item", 3)
    assert queue.origins.take("item") == ["watch"]


def test_nothing_is_noted_at_info() -> None:
    log.limit(log.INFO)
    origins: Origins[str] = Origins()
    origins.note("item", "a")

    assert len(origins) == 0
