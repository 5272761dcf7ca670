# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A blocked event loop is reported with the code that blocks it, and does not keep a stopping process alive."""

import asyncio
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import log, rest
from controller_runtime.interop import kubernetes_asyncio
from controller_runtime.manager.watchdog import BLOCKED, StopSignal, Watchdog, handled

pytestmark = pytest.mark.real_time
LONG = BLOCKED + 1.5
Lines = list[dict[str, object]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with log.captured() as found:
        yield found


@asynccontextmanager
async def watched() -> AsyncIterator[None]:
    task = asyncio.create_task(Watchdog(30).start())
    await asyncio.sleep(0)
    yield
    task.cancel()
    await asyncio.wait([task])


def sleeps(lines: Lines) -> None:
    while not lines:
        time.sleep(0.05)


def waits_for_a_process(_: Lines) -> None:
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({LONG})"], check=True)


def computes(lines: Lines) -> None:
    while not lines:
        pass


@pytest.mark.parametrize("blocks", [sleeps, waits_for_a_process, computes])
async def test_the_code_that_blocks_the_event_loop_is_reported(
    blocks: Callable[[Lines], None], lines: Lines
) -> None:
    async def call() -> None:
        blocks(lines)

    async with watched():
        await asyncio.create_task(call(), name="controller busy")
    (line,) = lines
    assert str(line["event"]).startswith("The event loop is blocked")
    assert (line["task"], line["seconds"]) == ("controller busy", 1)
    assert str(line["at"]).startswith(f"{blocks.__name__} ({__file__}:")
    if blocks is waits_for_a_process:
        assert "Popen." in str(line["in"])


async def test_a_function_that_blocks_at_several_lines_is_reported_once(lines: Lines) -> None:
    def sleeps_and_then_computes() -> None:
        while not lines:
            time.sleep(0.05)
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            pass

    async with watched():
        for _ in range(2):
            sleeps_and_then_computes()
            await asyncio.sleep(0)
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("transport", "watches"),
    [
        (None, True),
        (rest.Transport(rest.Config("http://127.0.0.1:1")), True),
        (kubernetes_asyncio.transport(cast("Any", SimpleNamespace())), True),
        (rest.FakeTransport(lambda _: rest.FakeResponse()), False),
    ],
    ids=["own", "transport", "kubernetes-asyncio", "in memory"],
)
async def test_a_manager_watches_the_loop_if_its_transport_uses_the_network(
    transport: rest.RoundTripper | None, watches: bool
) -> None:
    earlier = set(threading.enumerate())
    found: set[str] = set()

    class Looks:
        def need_leader_election(self) -> bool:
            return False

        async def start(self) -> None:
            with anyio.move_on_after(30 if watches else 0.2):
                while "watchdog" not in found:
                    found.update(thread.name for thread in threading.enumerate() if thread not in earlier)
                    await anyio.sleep(0.01)
            mgr.stop()

    options = ctrl.Options(metrics_bind_address="0", connect_timeout=0)
    mgr = ctrl.Manager(rest.Config("http://127.0.0.1:1"), options, transport=transport)
    mgr.add(Looks())
    await mgr.start()
    assert ("watchdog" in found) is watches


async def test_a_loop_that_waits_is_not_reported(lines: Lines) -> None:
    async with watched():
        await asyncio.to_thread(time.sleep, LONG)
    assert lines == []


NEVER_FREE = threading.Lock()
"""To acquire it blocks in C, so no frame is added to the stack."""
NEVER_FREE.acquire()


class Slow(selectors.DefaultSelector):
    """A selector that returns late once, as on a machine that is too busy to run the process."""

    late = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.late:
            self.late = False
            NEVER_FREE.acquire(timeout=LONG)
        return super().select(timeout)


def test_a_loop_that_only_waits_for_the_machine_is_neither_reported_nor_ended(lines: Lines) -> None:
    exits: list[int] = []
    selector = Slow()

    async def main() -> None:
        handled.set(StopSignal(exits.append, received_at=0.0))
        async with watched():
            selector.late = True
            await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main())
    assert (lines, exits) == ([], [])


def test_a_library_that_blocks_the_loop_is_reported_if_no_code_of_the_program_runs(lines: Lines) -> None:
    async def main() -> None:
        async with watched():
            asyncio.get_running_loop().call_soon(NEVER_FREE.acquire, True, LONG)
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
    (line,) = lines
    assert str(line["at"]).startswith("Handle._run (")
    assert "in" not in line


async def test_a_blocked_process_is_ended_only_after_a_signal_and_a_grace_period_that_ends() -> None:
    cases = {"ends": (30, 0.0), "no signal": (30, None), "lasting": (1e9, 0.0), "endless": (-1, 0.0)}
    exits: list[str] = []
    tasks = []
    for name, (grace, received_at) in cases.items():
        handled.set(StopSignal(lambda _, name=name: exits.append(name), received_at))  # type: ignore[misc]
        tasks.append(asyncio.create_task(Watchdog(grace).start()))
    handled.set(None)
    await asyncio.sleep(0)
    NEVER_FREE.acquire(timeout=LONG)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert exits == ["ends"]


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
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 1
        assert b"Ending the process: " in process.stderr.read()
