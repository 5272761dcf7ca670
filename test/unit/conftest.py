# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Async unit tests run on a loop with a virtual clock, unless they are marked ``real_time``."""

import hypothesis
from controller_runtime.testing.pytest_virtual_time import fail_if_blocked as fail_if_blocked
from controller_runtime.testing.pytest_virtual_time import (
    pytest_asyncio_loop_factories as pytest_asyncio_loop_factories,
)
from controller_runtime.testing.pytest_virtual_time import pytest_configure as pytest_configure
from controller_runtime.testing.pytest_virtual_time import virtual_loop as virtual_loop
from ctrl_testkit.odd_exceptions import odd as odd
from ctrl_testkit.odd_exceptions import written as written

hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")  # a busy machine must not fail a test
