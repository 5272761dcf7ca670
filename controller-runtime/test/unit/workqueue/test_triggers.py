# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The table of triggers: bounded, and empty unless the log level is debug."""

import pytest

from controller_runtime import log
from controller_runtime.workqueue import PriorityQueue, Triggers, WithTrigger

MOST_ITEMS, MOST_TRIGGERS = 4096, 8


@pytest.fixture(autouse=True)
def debug() -> None:
    log.limit(log.DEBUG)


def test_triggers_are_taken_once_in_order_and_without_repetition() -> None:
    triggers: Triggers[str] = Triggers()
    for trigger in ("a", "b", "a"):
        triggers.note("item", trigger)

    assert triggers.take("item") == ["b", "a"]
    assert triggers.take("item") == []


def test_the_table_keeps_the_last_triggers_of_the_last_items() -> None:
    triggers: Triggers[int] = Triggers()
    for item in range(MOST_ITEMS + 10):
        triggers.note(item, "x")
    for number in range(MOST_TRIGGERS + 2):
        triggers.note(MOST_ITEMS, str(number))

    assert len(triggers) == MOST_ITEMS
    assert triggers.take(0) == []
    assert triggers.take(MOST_ITEMS) == [str(number) for number in range(2, MOST_TRIGGERS + 2)]


async def test_a_noting_queue_passes_work_on() -> None:
    queue: PriorityQueue[str] = PriorityQueue("")
    WithTrigger(queue, queue.triggers, "watch").add("item", priority=3)

    assert await queue.get_with_priority() == ("item", 3)
    assert queue.triggers.take("item") == ["watch"]


def test_nothing_is_noted_at_info() -> None:
    log.limit(log.INFO)
    triggers: Triggers[str] = Triggers()
    triggers.note("item", "a")

    assert len(triggers) == 0
