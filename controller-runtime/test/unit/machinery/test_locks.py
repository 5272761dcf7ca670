# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import anyio

from controller_runtime.machinery.locks import KeyedLocks


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
