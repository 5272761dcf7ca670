# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A fixture that keeps one test's set-up of the log from the tests after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


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
