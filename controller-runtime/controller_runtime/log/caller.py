# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The place in the code that writes a line, as zap names it: ``folder/file.py:line``."""

from __future__ import annotations

import sys
from functools import lru_cache
from types import FrameType
from typing import Final

_OF_LOGS: Final = (__package__, "structlog", "logging")


def caller() -> str:
    """Return the first place outside of logging itself on the stack of the caller, or an empty string."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_of_logs(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return f"{_shortened(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


@lru_cache(maxsize=512)
def _is_of_logs(module: str) -> bool:
    return module in _OF_LOGS or module.startswith(tuple(f"{each}." for each in _OF_LOGS))


@lru_cache(maxsize=512)
def _shortened(path: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(path.rsplit("/", 2)[-2:])
