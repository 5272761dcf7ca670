# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A problem of an object, with its path. Both have the form that the API server uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

Path = tuple[str | int, ...]

_MAX_INT64: Final = (1 << 63) - 1
_MIN_INT64: Final = -_MAX_INT64 - 1
_MAX_EXACT: Final = (1 << 53) - 1
"""The server accepts floating-point numbers up to this one as integers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid value and its path. If a problem is ``grave``, the server does not evaluate the CEL rules."""

    path: Path | None
    text: str
    grave: bool = False

    def __str__(self) -> str:
        return f"{render(self.path) if self.path else '<nil>'}: {self.text}"


def render(path: Path) -> str:
    """Return a path in the form that the server uses."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def parse(text: str) -> Path | None:
    """Convert text that :func:`render` has made back to a path. Convert ``<nil>``, which means no path, to None."""
    steps = re.findall(r"\[(\d+)\]|([^.\[\]]+)", text)
    return None if text == "<nil>" else tuple(int(index) if index else name for index, name in steps)


def kind_of(value: object) -> str:
    """Return the JSON type of a value. As on the server, an integer that does not fit into 64 bits is a number."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer" if _MIN_INT64 <= value <= _MAX_INT64 else "number"
        case float():
            return "integer" if value.is_integer() and abs(value) <= _MAX_EXACT else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
