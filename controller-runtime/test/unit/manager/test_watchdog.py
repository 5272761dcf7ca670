# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A blocked event loop is reported with the code that blocks it, and does not keep a stopping process alive."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from controller_runtime import log
from controller_runtime.manager.watchdog import BLOCKED, Watchdog

pytestmark = pytest.mark.real_time
LONG = BLOCKED + 1.5


@pytest.fixture
def lines() -> Iterator[list[dict[str, object]]]:
    with log.captured() as found:
        yield found


@asynccontextmanager
async def watched() -> AsyncIterator[None]:
    task = asyncio.create_task(Watchdog(30).start())
    await asyncio.sleep(0)
    yield
    task.cancel()
    await asyncio.wait([task])


def sleeps() -> None:
    time.sleep(LONG)


def waits_for_a_process() -> None:
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({LONG})"], check=True)


def computes() -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        pass


@pytest.mark.parametrize("blocks", [sleeps, waits_for_a_process, computes])
async def test_the_code_that_blocks_the_event_loop_is_reported_once(
    blocks: Callable[[], None], lines: list[dict[str, object]]
) -> None:
    async with watched():
        for _ in range(2):
            await asyncio.create_task(call(blocks), name="controller busy")
    (line,) = lines
    assert str(line["event"]).startswith("The event loop is blocked")
    assert line["task"] == "controller busy"
    assert str(line["at"]).startswith(f"{blocks.__name__} ({__file__}:")
    if blocks is waits_for_a_process:
        assert "Popen." in str(line["in"])


async def call(blocks: Callable[[], None]) -> None:
    blocks()


async def test_a_loop_that_waits_is_not_reported(lines: list[dict[str, object]]) -> None:
    async with watched():
        await asyncio.to_thread(time.sleep, LONG)
    assert lines == []


_PROGRAM = """
import asyncio, sys, time
from controller_runtime.manager import GracePeriodExceededError, setup_signal_handler, signals
from controller_runtime.manager.watchdog import Watchdog

signals._LAST_MOMENTS = 0.5

async def main():
    async with setup_signal_handler() as stop:
        task = asyncio.create_task(Watchdog(0.5).start())
        await asyncio.sleep(0)
        print("started", flush=True)
        if "{how}" == "blocked":
            time.sleep(60)
        working = asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
        await stop.wait()
        raise GracePeriodExceededError("late")

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["blocked", "in a thread"])
def test_one_signal_ends_a_process_whose_code_does_not_end(how: str) -> None:
    program = [sys.executable, "-c", _PROGRAM.format(how=how)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        time.sleep(BLOCKED + 1)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 1
        assert b"Ending the process: " in process.stderr.read()
