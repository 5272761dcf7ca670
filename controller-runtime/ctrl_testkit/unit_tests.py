# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the ``conftest.py`` of unit tests imports: a virtual clock, odd exceptions, and a profile of Hypothesis.

Async tests run on a loop with a virtual clock, unless they are marked ``real_time``.
"""

import hypothesis

from controller_runtime.testing.pytest_virtual_time import (
    fail_if_blocked,
    pytest_asyncio_loop_factories,
    pytest_configure,
    virtual_loop,
)
from ctrl_testkit.odd_exceptions import odd, written

__all__ = [
    "fail_if_blocked",
    "odd",
    "pytest_asyncio_loop_factories",
    "pytest_configure",
    "virtual_loop",
    "written",
]

hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("here")  # a busy machine must not fail a test
