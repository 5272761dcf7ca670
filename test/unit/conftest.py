# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every async unit test runs on a loop whose clock is virtual: a wait costs nothing, and its length is exact.

The clock jumps to the next timer as soon as nothing is ready. A test that waits for what can never come
fails at once, and so does one that blocks the loop: by ``time.sleep``, by a connection, by starting a
process, or by computing for longer than a step may. The few tests that are about real threads, sockets or
processes say ``@pytest.mark.real_time``.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")  # a busy machine is no failure

STEP_SECONDS: Final = 5.0
"""CPU time one pass over the ready callbacks may take. Generous: imports and first validations count too."""
THREAD_GRACE_SECONDS: Final = 0.02
"""Real time given to other threads before the clock jumps over them."""
DEADLOCK_SECONDS: Final = 20.0
"""Real time given to other threads when no timer is set at all."""
FORBIDDEN: Final = frozenset({"socket.connect", "socket.getaddrinfo", "subprocess.Popen"})


class BlockedLoopError(AssertionError):
    """A test blocked its event loop, or waits for what cannot come."""


class _JumpingSelector(selectors.DefaultSelector):
    """Waits by moving the clock instead of the world."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.problems: list[str] = []
        self._step_began: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._judge_the_step()
        try:
            ready = super().select(0)
            if ready or timeout == 0:
                return ready
            others = threading.active_count() > 1
            if timeout is None:
                ready = super().select(DEADLOCK_SECONDS) if others else []
                if not ready:
                    raise BlockedLoopError("every task waits and no timer is set: this test would hang")
                return ready
            if others and (ready := super().select(min(timeout, THREAD_GRACE_SECONDS))):
                return ready
            self.now += timeout
            return []
        finally:
            self._step_began = time.thread_time()

    def _judge_the_step(self) -> None:
        if self._step_began is None:
            return
        spent = time.thread_time() - self._step_began
        if spent > STEP_SECONDS:
            self.problems.append(f"one step of the loop computed for {spent:.2f} s")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on :class:`_JumpingSelector`'s clock, which starts at 1000."""

    def __init__(self) -> None:
        self.clock = _JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def _refuse_in_a_virtual_loop(name: str) -> None:
    loop = asyncio._get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        problem = f"{name} inside the event loop"
        loop.clock.problems.append(problem)
        raise BlockedLoopError(problem)


def _audit(event: str, _args: tuple[Any, ...]) -> None:
    if event in FORBIDDEN:
        _refuse_in_a_virtual_loop(event)


sys.addaudithook(_audit)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_time: runs on an ordinary event loop; about threads, sockets, processes"
    )


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    del config
    if item.get_closest_marker("real_time") is not None:
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def _the_loop_was_never_blocked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail a test whose code swallowed a :class:`BlockedLoopError`, or computed for too long."""
    sleep = time.sleep

    def guarded(seconds: float) -> None:  # time.sleep raises no audit event before Python 3.13
        _refuse_in_a_virtual_loop("time.sleep")
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", guarded)
    loop: asyncio.AbstractEventLoop | None = None
    if "_asyncio_loop_factory" in request.fixturenames:
        runner: asyncio.Runner = request.getfixturevalue("_function_scoped_runner")
        loop = runner.get_loop()
    yield
    if isinstance(loop, VirtualTimeLoop) and loop.clock.problems:
        pytest.fail("; ".join(loop.clock.problems), pytrace=False)


@pytest.fixture(scope="session")
def virtual_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes virtual loops for tests that run several, as property tests do."""
    return VirtualTimeLoop
