# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from controller_runtime.workqueue import LOW_PRIORITY, PriorityQueue, QueueShutDownError, WithDefaultPriority


@pytest.fixture
def queue() -> PriorityQueue[str]:
    return PriorityQueue()


async def drain(queue: PriorityQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


async def timed(step: Awaitable[str]) -> tuple[str, float]:
    began = anyio.current_time()
    return await step, round(anyio.current_time() - began, 6)


async def test_items_of_one_priority_leave_in_the_order_they_came(queue: PriorityQueue[str]) -> None:
    for item in "bac":
        queue.add(item)
    assert await drain(queue) == ["b", "a", "c"]


async def test_an_item_added_again_is_handed_out_once_and_keeps_its_place(queue: PriorityQueue[str]) -> None:
    for item in "abab":
        queue.add(item)
    assert len(queue) == 2
    assert await drain(queue) == ["a", "b"]


async def test_higher_priorities_leave_first(queue: PriorityQueue[str]) -> None:
    queue.add("low", priority=LOW_PRIORITY)
    queue.add("normal")
    queue.add("high", priority=7)
    assert [await queue.get_with_priority() for _ in range(3)] == [("high", 7), ("normal", 0), ("low", -100)]


async def test_a_raised_item_goes_to_the_end_of_its_new_priority_and_is_never_lowered(
    queue: PriorityQueue[str],
) -> None:
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("b", priority=LOW_PRIORITY)
    queue.add("c")
    queue.add("b")
    queue.add("c", priority=LOW_PRIORITY)
    assert [await queue.get_with_priority() for _ in range(3)] == [("c", 0), ("b", 0), ("a", -100)]


async def test_an_item_in_work_is_not_handed_out_again_before_it_is_done(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert await queue.get() == "b"
    with anyio.move_on_after(3600) as waiting:
        await queue.get()
    assert waiting.cancelled_caught
    queue.done("a")
    assert await queue.get() == "a"


async def test_an_item_done_without_being_added_meanwhile_is_gone(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    queue.done(await queue.get())
    queue.done("never taken")
    assert len(queue) == 0


async def test_a_delayed_item_comes_when_its_time_is_up(queue: PriorityQueue[str]) -> None:
    queue.add("a", after=90)
    assert len(queue) == 0
    assert await timed(queue.get()) == ("a", 90)


async def test_the_earlier_of_two_times_holds_whichever_was_said_first(queue: PriorityQueue[str]) -> None:
    queue.add("a", after=90)
    queue.add("a", after=30)
    queue.add("a", after=60)
    queue.add("b", after=20)
    queue.add("b", after=100)
    assert await timed(queue.get()) == ("b", 20)
    assert await timed(queue.get()) == ("a", 10)
    queue.done("a")
    with anyio.move_on_after(3600) as waiting:
        await queue.get()
    assert waiting.cancelled_caught


async def test_a_delayed_item_that_is_added_without_delay_is_ready_now(queue: PriorityQueue[str]) -> None:
    queue.add("a", after=90)
    queue.add("a")
    assert await timed(queue.get()) == ("a", 0)
    queue.done("a")
    await anyio.sleep(200)
    assert len(queue) == 0


async def test_a_ready_item_is_not_delayed_by_being_added_with_a_delay(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    queue.add("a", after=90)
    assert await timed(queue.get()) == ("a", 0)


async def test_whoever_became_ready_first_comes_first(queue: PriorityQueue[str]) -> None:
    queue.add("late", after=10)
    await anyio.sleep(5)
    queue.add("early")
    await anyio.sleep(10)
    assert await drain(queue) == ["early", "late"]


async def test_a_delayed_item_keeps_the_highest_priority_it_was_given(queue: PriorityQueue[str]) -> None:
    queue.add("raised", after=10, priority=LOW_PRIORITY)
    queue.add("raised", after=20, priority=5)
    queue.add("other")
    await anyio.sleep(10)
    assert await queue.get_with_priority() == ("raised", 5)


async def test_an_item_delayed_while_in_work_waits_for_both_its_time_and_the_end_of_work(
    queue: PriorityQueue[str],
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", after=10)
    await anyio.sleep(15)
    assert len(queue) == 1
    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            await anyio.sleep(5)
            queue.done("a")

        tasks.start_soon(work)
        assert await timed(queue.get()) == ("a", 5)


async def test_failures_wait_ever_longer_until_forgotten(queue: PriorityQueue[str]) -> None:
    waits = []
    for _ in range(4):
        queue.add("a", rate_limited=True)
        waits.append((await timed(queue.get()))[1])
        queue.done("a")
    assert waits == [0.005, 0.01, 0.02, 0.04]
    assert queue.num_requeues("a") == 4
    queue.forget("a")
    queue.add("a", rate_limited=True)
    assert await timed(queue.get()) == ("a", 0.005)


async def test_of_a_limit_and_a_delay_the_shorter_holds(queue: PriorityQueue[str]) -> None:
    queue.add("a", rate_limited=True, after=60)
    assert await timed(queue.get()) == ("a", 0.005)
    queue.done("a")
    queue.add("a", rate_limited=True, after=0.001)
    assert await timed(queue.get()) == ("a", 0.001)


async def test_waiting_workers_each_get_one_item(queue: PriorityQueue[str]) -> None:
    got: list[tuple[int, str]] = []

    async def work(number: int) -> None:
        got.append((number, await queue.get()))

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(work, number)
        await checkpoint()
        for item in "abc":
            queue.add(item)
    assert sorted(got) == [(0, "a"), (1, "b"), (2, "c")]


async def test_a_worker_cancelled_just_when_it_is_woken_passes_the_item_on(queue: PriorityQueue[str]) -> None:
    doomed = asyncio.ensure_future(queue.get())
    waiting = asyncio.ensure_future(queue.get())
    await checkpoint()
    queue.add("a")
    doomed.cancel()
    assert await waiting == "a"
    assert doomed.cancelled()


async def test_a_worker_that_does_not_know_yet_that_it_is_cancelled_is_passed_over(
    queue: PriorityQueue[str],
) -> None:
    doomed = asyncio.ensure_future(queue.get())
    waiting = asyncio.ensure_future(queue.get())
    await checkpoint()
    doomed.cancel()
    queue.add("a")
    assert await waiting == "a"
    queue.add("b")
    assert await queue.get() == "b"


async def test_a_worker_cancelled_while_it_waits_is_not_woken(queue: PriorityQueue[str]) -> None:
    doomed = asyncio.ensure_future(queue.get())
    await checkpoint()
    doomed.cancel()
    await checkpoint()
    queue.add("a")
    assert await queue.get() == "a"


async def test_a_queue_that_is_shut_down_takes_and_gives_nothing(queue: PriorityQueue[str]) -> None:
    queue.add("ready")
    queue.add("waiting", after=5)
    queue.shut_down()
    queue.add("late")
    assert queue.shutting_down
    assert len(queue) == 0
    with pytest.raises(QueueShutDownError):
        await queue.get()


async def test_workers_that_wait_are_told_of_the_shutdown(queue: PriorityQueue[str]) -> None:
    told = []

    async def work() -> None:
        with pytest.raises(QueueShutDownError):
            await queue.get()
        told.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        tasks.start_soon(work)
        await checkpoint()
        queue.shut_down()
    assert told == [True, True]


async def test_draining_hands_out_what_is_ready_and_waits_for_all_work(queue: PriorityQueue[str]) -> None:
    done: list[str] = []
    queue.add("in work")
    queue.add("ready")
    queue.add("delayed", after=1)

    async def work() -> None:
        while True:
            try:
                item = await queue.get()
            except QueueShutDownError:
                return
            if item == "in work" and not done:
                queue.add("in work")
            await anyio.sleep(10)
            done.append(item)
            queue.done(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.sleep(0.5)
        began = anyio.current_time()
        await queue.shut_down_with_drain()
        assert anyio.current_time() - began == pytest.approx(29.5)
    assert done == ["in work", "ready", "in work"]


async def test_shutting_down_ends_the_draining_but_not_the_work_in_hand(queue: PriorityQueue[str]) -> None:
    queue.add("in work")
    queue.add("ready")
    item = await queue.get()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.shut_down_with_drain)
        await checkpoint()
        queue.shut_down()
        with pytest.raises(QueueShutDownError):
            await queue.get()
        await anyio.sleep(1)
        queue.done(item)


async def test_draining_an_idle_queue_returns_at_once(queue: PriorityQueue[str]) -> None:
    queue.add("delayed", after=5)
    with anyio.fail_after(1):
        await queue.shut_down_with_drain()


async def test_a_default_priority_gives_way_to_one_that_is_named(queue: PriorityQueue[str]) -> None:
    low = WithDefaultPriority(queue, LOW_PRIORITY)
    low.add("low")
    low.add("named", priority=3)
    low.add("later", after=1)
    assert await queue.get_with_priority() == ("named", 3)
    assert await queue.get_with_priority() == ("low", LOW_PRIORITY)
    assert await queue.get_with_priority() == ("later", LOW_PRIORITY)


async def test_what_is_re_added_for_ever_leaves_no_rubbish_behind(queue: PriorityQueue[str]) -> None:
    for n in range(5000):
        queue.add("hot", after=1000)
        queue.add("raised", priority=n)
        queue.add("hot")
        assert await queue.get() in {"hot", "raised"}
        queue.done("hot")
        queue.done("raised")
        await queue.get()
        queue.done("hot")
        queue.done("raised")
    assert len(queue._waiting) < 200
    assert len(queue._ready) < 200


async def test_what_is_raised_for_ever_leaves_no_rubbish_behind(queue: PriorityQueue[str]) -> None:
    queue.add("other", priority=3)
    for priority in range(5000):
        queue.add("raised", priority=priority)
    assert len(queue._ready) < 200
    assert [await queue.get_with_priority() for _ in range(2)] == [("raised", 4999), ("other", 3)]


@pytest.mark.parametrize("seed", range(5))
async def test_items_that_were_raised_often_leave_in_the_order_of_their_priorities(
    queue: PriorityQueue[str], seed: int
) -> None:
    items = [f"item{number}" for number in range(40)]
    priorities = dict.fromkeys(items, 0)
    chance = random.Random(seed)
    for _ in range(2000):
        item = chance.choice(items)
        priorities[item] += chance.randrange(1, 1_000_000)
        queue.add(item, priority=priorities[item])
    assert await drain(queue) == sorted(items, key=priorities.__getitem__, reverse=True)


async def test_items_whose_times_came_nearer_often_become_ready_in_the_order_of_their_times(
    queue: PriorityQueue[str],
) -> None:
    items = [f"item{number}" for number in range(40)]
    times = dict.fromkeys(items, 10_000.0)
    chance = random.Random(1)
    for _ in range(2000):
        item = chance.choice(items)
        times[item] -= chance.uniform(1, 100)
        queue.add(item, after=times[item])
    taken = [await timed(queue.get()) for _ in times]
    assert [item for item, _ in taken] == sorted(times, key=times.__getitem__)
    assert sum(waited for _, waited in taken) == pytest.approx(max(times.values()))


def flow_of(item: str) -> str:
    """Items are named after their flow: ``a1`` and ``a2`` belong to ``a``."""
    return item[0]


async def test_flows_take_turns_however_many_items_one_of_them_has() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    for number in range(9):
        queue.add(f"a{number}")
    taken = [await queue.get() for _ in range(3)]
    queue.add("b1")
    queue.add("b2")
    taken += [await queue.get() for _ in range(5)]
    assert taken == ["a0", "a1", "a2", "a3", "b1", "a4", "b2", "a5"]


async def test_a_higher_priority_comes_before_the_turn_of_a_flow() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    for item, priority in (("a1", 0), ("a2", 0), ("b1", LOW_PRIORITY), ("b2", 7)):
        queue.add(item, priority=priority)
    assert [await queue.get() for _ in range(4)] == ["b2", "a1", "a2", "b1"]


async def test_an_item_that_waited_and_is_raised_takes_one_turn_of_its_flow() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    queue.add("a1", priority=LOW_PRIORITY, after=10)
    for item in ("a1", "b1", "b2", "a2"):
        queue.add(item)
    assert [await queue.get() for _ in range(4)] == ["a1", "b1", "b2", "a2"]


async def test_an_idle_flow_saves_up_no_turns() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    for number in range(5):
        queue.add(f"a{number}")
        await queue.get()
    for item in ("a8", "b1", "b2", "b3", "a9"):
        queue.add(item)
    assert [await queue.get() for _ in range(5)] == ["a8", "b1", "b2", "a9", "b3"]


async def test_an_item_of_an_idle_flow_is_taken_while_another_flow_occupies_all_workers() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    for number in range(9):
        queue.add(f"a{number}")
    for _ in range(3):
        await queue.get()
    express: list[str] = []

    async def work() -> None:
        while True:
            item, _ = await queue.get_with_priority(express=True)
            express.append(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        assert express == [], "a has three items in progress, and may have no more"
        queue.add("a9")
        for item in ("b1", "b2", "b3", "c1"):
            queue.add(item)
        await anyio.wait_all_tasks_blocked()
        assert express == ["b1", "c1", "b2"], "b3 would make b as greedy as a"
        queue.done("b1")
        queue.add("b4")
        await anyio.wait_all_tasks_blocked()
        assert len(express) == 4
        tasks.cancel_scope.cancel()


async def test_items_that_were_added_before_a_flow_occupied_all_workers_are_taken_then() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    for item in ("a1", "c1", "a2", "a3", "a4"):
        queue.add(item)
    assert [await queue.get() for _ in range(2)] == ["a1", "c1"]
    express: list[str] = []

    async def work() -> None:
        express.append((await queue.get_with_priority(express=True))[0])

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        for item in ("b1", "d1"):
            queue.add(item)
        await anyio.wait_all_tasks_blocked()
        assert express == [], "a and c share the workers"
        queue.done("c1")
        assert await queue.get() == "a2", "a was first"
        await anyio.wait_all_tasks_blocked()
        assert express == ["b1", "d1"]
        tasks.cancel_scope.cancel()


async def test_no_item_is_taken_out_of_turn_while_flows_share_the_workers() -> None:
    queue = PriorityQueue[str](flow=flow_of)
    for item in ("a1", "b1", "c1", "d1", "e1"):
        queue.add(item)
    assert [await queue.get() for _ in range(3)] == ["a1", "b1", "c1"]
    with anyio.move_on_after(1) as waited:
        await queue.get_with_priority(express=True)
    assert waited.cancelled_caught
    assert await queue.get() == "d1"


async def test_thousands_of_flows_leave_no_rubbish_behind() -> None:
    queue = PriorityQueue[str](flow=lambda item: item)
    for number in range(10_000):
        queue.add(str(number))
        queue.done(await queue.get())
    assert len(queue._fair._last) < 1000
    assert not queue._running
    assert not queue._ready_flows
