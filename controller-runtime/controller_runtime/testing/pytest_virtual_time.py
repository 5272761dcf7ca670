# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: async tests run on a loop with a virtual clock, unless marked ``real_time``.

Import the plugin's names in the ``conftest.py`` of the directory whose tests use it::

    from controller_runtime.testing.pytest_virtual_time import *
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from .virtual_time import VirtualTimeLoop, install_audit_hook, refuse_in_virtual_loop

__all__ = ["fail_if_blocked", "pytest_asyncio_loop_factories", "pytest_configure", "virtual_loop"]

install_audit_hook()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_time: runs on an ordinary event loop; for threads, sockets and processes"
    )


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Select the event loop of a test."""
    del config
    if item.get_closest_marker("real_time") is not None:
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def fail_if_blocked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose code suppressed a ``BlockedLoopError`` or computed for too long."""
    sleep = time.sleep

    def guarded(seconds: float) -> None:  # time.sleep raises no audit event before Python 3.13
        refuse_in_virtual_loop("time.sleep")
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
    """Return a function that creates virtual loops, for tests that run several, such as property tests."""
    return VirtualTimeLoop
