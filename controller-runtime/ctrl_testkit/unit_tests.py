# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the ``conftest.py`` of unit tests imports: a virtual clock, odd exceptions, and a profile of Hypothesis.

The log is set up as before after each test.

Async tests run on a loop with a virtual clock, unless they are marked ``real_time``. Hypothesis tries the same examples
in each run. With ``HYPOTHESIS_PROFILE=drawn``, it draws new ones, or those of ``--hypothesis-seed``.
"""

import logging
import os
from collections.abc import Iterator

import hypothesis
import pytest

from controller_runtime.testing.pytest_virtual_time import (
    fail_if_blocked,
    pytest_asyncio_loop_factories,
    pytest_configure,
    virtual_loop,
)
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


@pytest.fixture(autouse=True)
def log_restored() -> Iterator[None]:
    """Restore levels and handlers after the test: those of the root logger, and those of the library's loggers."""
    before = _levels()
    handlers = list(logging.root.handlers)
    yield
    for name in _levels():
        logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))
    logging.root.handlers[:] = handlers


def _levels() -> dict[str | None, int]:
    """Return the level of the root logger, under None, and those of the library's loggers."""
    ours = (
        (name, logger.level)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "controller_runtime"
    )
    return {None: logging.root.level, **dict(ours)}
