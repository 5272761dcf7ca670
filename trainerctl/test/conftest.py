# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: one real API server, a namespace for each test, and programs that can be interrupted."""

import signal
from collections.abc import Iterator

import pytest
from controller_runtime.testing.pytest_envtest import control_plane as control_plane
from controller_runtime.testing.pytest_envtest import live_client as live_client
from controller_runtime.testing.pytest_envtest import namespace as namespace
from controller_runtime.testing.pytest_envtest import rest_config as rest_config
from ctrl_testkit.programs import pytest_configure as pytest_configure
from ctrl_testkit.programs import pytest_runtest_makereport as pytest_runtest_makereport


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let processes that a test starts receive SIGINT, even if the tests run in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
