# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The guarantees of the unit tests' event loop."""

import asyncio
import selectors
import threading
import time
from typing import Any

import anyio
import anyio.to_thread
import pytest

from controller_runtime.testing import virtual_time

pytest_plugins = ["pytester"]


def problems() -> list[str]:
    found: list[str] = asyncio.get_running_loop().clock.problems  # type: ignore[attr-defined]  # the virtual loop's
    return found


async def test_a_day_passes_at_once_and_exactly() -> None:
    began, really = anyio.current_time(), time.monotonic()
    await anyio.sleep(86400)
    assert anyio.current_time() - began == 86400
    assert time.monotonic() - really < 60


async def test_timers_fire_in_the_order_of_their_times() -> None:
    order: list[int] = []

    async def after(seconds: int) -> None:
        await anyio.sleep(seconds)
        order.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (30, 10, 20):
            tasks.start_soon(after, seconds)
    assert order == [10, 20, 30]


async def test_a_thread_is_given_time_before_the_clock_jumps() -> None:
    with anyio.fail_after(60):
        assert await anyio.to_thread.run_sync(threading.get_ident) != threading.get_ident()


async def test_the_clock_stands_while_a_worker_thread_computes_longer_than_other_threads_may() -> None:
    before = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, 60)
        await anyio.to_thread.run_sync(threading.Event().wait, 5 * virtual_time.THREAD_GRACE_SECONDS)
        assert anyio.current_time() == before


async def test_a_machine_that_stands_still_does_not_take_the_time_of_a_worker_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    select = selectors.DefaultSelector.select

    def over_at_once(selector: selectors.DefaultSelector, timeout: float | None = None) -> Any:
        """End the first wait at once without an event, as if its time had passed while the machine stood still."""
        if not timeout or go_on.is_set():
            return select(selector, timeout)
        go_on.set()
        return []

    before = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, 60)
        monkeypatch.setattr(selectors.DefaultSelector, "select", over_at_once)
        await anyio.to_thread.run_sync(go_on.wait)
        assert anyio.current_time() == before


async def test_sleeping_in_the_loop_fails_even_when_the_error_is_swallowed() -> None:
    with pytest.raises(AssertionError, match=r"time.sleep inside the event loop"):
        time.sleep(0)  # noqa: ASYNC251  # the call that must fail
    assert problems() == ["time.sleep inside the event loop"]
    problems().clear()


async def test_connecting_in_the_loop_fails() -> None:
    with pytest.raises(AssertionError, match=r"socket.connect inside the event loop"):
        await asyncio.open_connection("127.0.0.1", 9)
    problems().clear()


def test_waiting_for_what_cannot_come_fails_at_once(
    pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    conftest = request.path.parent / "conftest.py"
    pytester.makeconftest(conftest.read_text())
    support = request.path.parents[1] / "support"
    pytester.makeini(
        f"[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\npythonpath = {support}\n"
    )
    pytester.makepyfile(
        """
        import anyio

        async def test_hangs():
            await anyio.Event().wait()
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*every task waits and no timer is set*"])
