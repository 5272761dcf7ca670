# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bounds on the shape of a JSON text, checked on its bytes before anything decodes it.

A decoded object costs up to a thousand times the memory of its text: 1.3 MB of ``{},{},…`` are schema-valid in many kinds,
and hold the event loop for seconds. Counting bytes costs a small part of that and does not depend on the shape.
"""

from __future__ import annotations

import dataclasses
from typing import Final

SMALL: Final = 16 << 10
"""Bytes of a text that is not looked at: whatever its shape, it is decoded in some milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a text may hold."""

    size: int = 3 << 20
    """Bytes of the text; the API server takes no larger request."""
    containers: int = 20_000
    """Objects and lists, empty ones too."""
    items: int = 40_000
    """Commas: elements of lists and fields of objects after the first of each."""
    depth: int = 100
    """Objects and lists inside each other."""
    string: int = 3 << 19
    """Bytes of one string, as etcd bounds an object."""
    number: int = 1024
    """Digits of one number."""


DEFAULT: Final = Limits()
"""For what users write: decoded in 100 ms, into 30 MiB."""
WIDE: Final = Limits(containers=40_000, items=80_000)
"""For what programs derive from that, and for single reads: 200 ms, 60 MiB."""
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_BRACKETS: Final = bytes.maketrans(b"[]", b"{}")
_OTHERS: Final = bytes(set(range(256)) - set(b"[]{}"))


def check(data: bytes, limits: Limits = DEFAULT) -> str | None:
    """Return why a JSON text exceeds ``limits``, on one line, or None if it does not.

    Never raises: what is not JSON is left to whatever decodes it. The time is linear in the size, some milliseconds a
    megabyte; brackets and commas in strings do not count.
    """
    size = len(data)
    if size > limits.size:
        return f"{size} bytes, at most {limits.size} are accepted"
    if size <= SMALL:
        return None
    # A valid text within the limits has no more strings than this, and each at least one quote without a backslash.
    strings = 2 * (limits.containers + limits.items) + 2
    if data.count(b'"') - data.count(b'\\"') > 2 * strings:
        return f"more than {strings} strings"
    if b"\\" in data:
        data = data.replace(b"\\\\", b"--").replace(b'\\"', b"--")
    parts = data.split(b'"')
    longest = max(map(len, parts[1::2]), default=0)
    if longest > limits.string:
        return f"a string of {longest} bytes, at most {limits.string} are accepted"
    return _check_structure(b"".join(parts[::2]), limits)


def _check_structure(text: bytes, limits: Limits) -> str | None:
    """Check a text without its strings."""
    if (containers := text.count(b"{") + text.count(b"[")) > limits.containers:
        return f"{containers} objects and lists, at most {limits.containers} are accepted"
    if (items := text.count(b",")) > limits.items:
        return f"{items} items, at most {limits.items} are accepted"
    if b"0" * (limits.number + 1) in text.translate(_DIGITS):
        return f"a number of more than {limits.number} digits"
    if containers > limits.depth and _deeper(text.translate(_BRACKETS, _OTHERS), limits.depth):
        return f"more than {limits.depth} objects and lists inside each other"
    return None


def _deeper(brackets: bytes, depth: int) -> bool:
    """Return True if brackets of one kind nest deeper than ``depth``; each round takes the innermost away."""
    for _ in range(depth):
        left = brackets.replace(b"{}", b"")
        if len(left) == len(brackets):
            break
        brackets = left
    return bool(brackets)
