# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Free memory is returned when there is much of it, and is not looked for otherwise."""

import anyio

from pkg.app import trim

MIB = 1 << 20


class Process:
    """Memory in use and free memory that the C library keeps."""

    def __init__(self) -> None:
        self.used, self.free, self.calls = 60 * MIB, 0, 0

    def resident(self) -> int:
        return self.used + self.free

    def give_back(self) -> None:
        self.free, self.calls = 0, self.calls + 1


async def test_free_memory_is_returned_within_seconds_and_what_is_in_use_is_looked_through_once() -> None:
    process = Process()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trim.Trimmer(process.resident, process.give_back).start)
        await anyio.sleep(100)
        assert process.calls == 0
        process.free = 30 * MIB
        await anyio.sleep(2)
        assert (process.free, process.calls) == (0, 1)
        process.used = 100 * MIB
        await anyio.sleep(100)
        assert process.calls == 2
        process.used = 60 * MIB
        await anyio.sleep(2)
        process.free = 30 * MIB
        await anyio.sleep(2)
        assert process.free == 0
        tasks.cancel_scope.cancel()


def test_the_memory_of_this_process_can_be_read_and_returned() -> None:
    trim.give_back()
    assert trim.resident() > 10 * MIB
