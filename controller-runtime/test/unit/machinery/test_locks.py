# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Locks by key, and values that several tasks refresh together."""

from __future__ import annotations

import anyio
import pytest

from controller_runtime.machinery.locks import KeyedLocks
from controller_runtime.machinery.refreshed import Refreshed


async def test_one_a_key_at_a_time_first_come_first_served() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    events: list[str] = []

    async def work(key: str, name: str) -> None:
        async with locks.holding(key):
            events.append(f"{name} begins")
            await anyio.lowlevel.checkpoint()
            events.append(f"{name} ends")

    async with anyio.create_task_group() as tasks:
        for key, name in (("a", "first"), ("a", "second"), ("b", "other"), ("a", "third")):
            tasks.start_soon(work, key, name)

    assert [line for line in events if "other" not in line] == [
        "first begins",
        "first ends",
        "second begins",
        "second ends",
        "third begins",
        "third ends",
    ]
    assert events.index("other begins") < events.index("first ends")


async def test_who_gives_up_waiting_does_not_keep_the_next_one_out() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    got: list[str] = []

    async def wait(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            async with locks.holding("a"):
                got.append(name)

    quitter, stayer = anyio.CancelScope(), anyio.CancelScope()
    async with anyio.create_task_group() as tasks, locks.holding("a"):
        tasks.start_soon(wait, "quitter", quitter)
        tasks.start_soon(wait, "stayer", stayer)
        await anyio.lowlevel.checkpoint()
        quitter.cancel()

    assert got == ["stayer"]


class Source:
    """Returns 1, 2, 3 and so on, each valid for ten seconds, or raises ``error``."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.refreshed: Refreshed[int] = Refreshed(self.read)

    async def read(self) -> tuple[int, float]:
        await anyio.sleep(1)
        if self.error is not None:
            raise self.error
        self.reads += 1
        return self.reads, 10.0


async def test_a_value_is_read_once_by_many_tasks_and_again_after_its_time() -> None:
    source = Source()
    first = source.refreshed.value
    assert first is None

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(source.refreshed.current)
        await anyio.sleep(0.5)
        assert source.refreshed.is_being_read
    read_at = anyio.current_time() - 1
    assert (source.reads, source.refreshed.value, source.refreshed.read_at) == (1, 1, read_at)

    await anyio.sleep(9.9)
    assert await source.refreshed.current() == 1
    await anyio.sleep(0.1)
    assert await source.refreshed.current() == 2


async def test_a_value_that_is_not_usable_is_read_before_its_time() -> None:
    source = Source()

    assert await source.refreshed.current() == 1
    assert await source.refreshed.current(lambda value: value > 1) == 2
    assert await source.refreshed.refresh() == 3


async def test_an_error_leaves_the_value_and_the_next_call_reads_again() -> None:
    source = Source()
    await source.refreshed.current()
    source.error = ValueError("no")
    await anyio.sleep(10)

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await source.refreshed.current()
    assert source.refreshed.value == 1

    source.error = None
    assert await source.refreshed.current() == 2
