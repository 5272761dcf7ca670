# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the ``conftest.py`` of unit tests imports: a virtual clock, odd exceptions, and a profile of Hypothesis.

The log is set up as before after each test.

Async tests run on a loop with a virtual clock, unless they are marked ``real_time``. Hypothesis tries the same examples
in each run. With ``HYPOTHESIS_PROFILE=drawn``, it draws new ones, or those of ``--hypothesis-seed``.
"""

import os

import hypothesis

from controller_runtime.testing.pytest_virtual_time import (
    fail_if_blocked,
    pytest_asyncio_loop_factories,
    pytest_configure,
    virtual_loop,
)
from ctrl_testkit.logs import log_restored
from ctrl_testkit.odd_exceptions import odd, written

__all__ = [
    "fail_if_blocked",
    "log_restored",
    "odd",
    "pytest_asyncio_loop_factories",
    "pytest_configure",
    "virtual_loop",
    "written",
]

# A busy machine must not fail a test.
_patient = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("fixed", _patient, derandomize=True, database=None)
hypothesis.settings.register_profile("drawn", _patient)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
