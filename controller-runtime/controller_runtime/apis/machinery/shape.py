# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bounds on the shape of a JSON text, checked on its bytes before anything decodes it.

A decoded object costs up to a thousand times the memory of its text: 1.3 MB of ``{},{},…`` are schema-valid in many
kinds, and hold the event loop for seconds. Counting bytes costs a small part of that and does not depend on the
shape.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Final

SMALL: Final = 16 << 10
"""Bytes of a text that is not looked at: whatever its shape, it is decoded in some milliseconds."""
PIECE: Final = 16 << 10
"""Bytes that are counted without a break, in at most a quarter of a millisecond."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a text may hold."""

    size: int = 3 << 20
    """Bytes of the text; the API server takes no larger request."""
    containers: int = 12_000
    """Objects and lists, empty ones too."""
    items: int = 24_000
    """Commas: elements of lists and fields of objects after the first of each."""
    depth: int = 100
    """Objects and lists inside each other."""
    string: int = 3 << 19
    """Bytes of one string, as etcd bounds an object; not less than :data:`PIECE`."""
    number: int = 1024
    """Digits of one number."""


DEFAULT: Final = Limits()
"""For what users write: decoded in 25 to 50 ms, into 20 MiB. A TrainJob with 100 complete pod overrides has half of it."""
WIDE: Final = Limits(containers=40_000, items=80_000)
"""For what programs derive from that, and for single reads: 200 ms, 60 MiB."""
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_BRACKETS: Final = bytes.maketrans(b"[]", b"{}")
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{},"'))
_STEPS: Final = bytes.maketrans(b"{}", b"\x01\xff")
_SAMPLES: Final = 8
"""Bytes looked at in half of a number that is too long."""


def check(data: bytes, limits: Limits = DEFAULT) -> str | None:
    """Return why a JSON text exceeds ``limits``, on one line, or None if it does not.

    Never raises: what is not JSON is left to whatever decodes it.
    """
    size = len(data)
    if size > limits.size:
        return f"{size} bytes, at most {limits.size} are accepted"
    return None if size <= SMALL else Counter(limits).feed(data)


class Counter:
    """Counts what a JSON text holds while it arrives, exactly: brackets and commas in strings do not count.

    The time is linear in the size: 1 to 10 ms a megabyte by shape. No part of it is uninterrupted for longer than a
    :data:`PIECE` takes. What follows the first error of an invalid text may be counted wrongly.
    """

    __slots__ = ("_backslash", "_containers", "_depth", "_digits", "_items", "_limits", "_string")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._containers = self._items = self._depth = 0
        self._string = (
            -1
        )  # bytes of the string that the text ends in; less than 0 when it does not end in one
        self._backslash = b""  # the text ends in half an escape sequence
        self._digits = 0  # of the number that the text ends in

    def feed(self, data: bytes) -> str | None:
        """Count the next bytes; return why the text exceeds the limits by now, or None if it does not."""
        for at in range(0, len(data), PIECE):
            if (reason := self._count(data[at : at + PIECE])) is not None:
                return reason
        return None

    def _count(self, piece: bytes) -> str | None:
        if self._backslash or b"\\" in piece:
            piece = (self._backslash + piece).replace(b"\\\\", b"--").replace(b'\\"', b"--")
            self._backslash = b"\\" if piece.endswith(b"\\") else b""
            piece = piece.removesuffix(b"\\")
        inside = self._string >= 0
        # A string without brackets and commas leaves two quotes. Without them the other strings are where they were.
        text = piece.translate(None, _OTHERS).replace(b'""', b"")
        if quotes := text.count(b'"'):
            text = b"".join(text.split(b'"')[inside::2])
        elif inside:
            text = b""
        ends_inside = bool(inside ^ quotes & 1)
        if self._longest_string(piece, ends_inside=ends_inside) > self._limits.string:
            return f"a string of more than {self._limits.string} bytes"
        if self._has_long_number(piece, inside=inside, ends_inside=ends_inside):
            return f"a number of more than {self._limits.number} digits"
        return self._count_structure(text)

    def _longest_string(self, piece: bytes, *, ends_inside: bool) -> int:
        """Return the size of the string that the piece begins in, as far as it is known: others are within the piece."""
        size = -1
        if self._string >= 0:
            end = piece.find(b'"')
            size = self._string + (end if end >= 0 else len(piece))
        if ends_inside:
            begin = piece.rfind(b'"')
            self._string = len(piece) - begin - 1 if begin >= 0 else size
        else:
            self._string = -1
        return size

    def _has_long_number(self, piece: bytes, *, inside: bool, ends_inside: bool) -> bool:
        most, before = self._limits.number, self._digits
        tail = 0 if ends_inside else len(piece) - len(piece.rstrip(b"0123456789"))
        self._digits = tail + before if tail == len(piece) else tail
        # Of a number that is too long, one half at least is in one piece.
        step = max(1, most // 2 // _SAMPLES)
        samples = piece[::step].translate(_DIGITS)
        if before <= most // 2 and b"0" * max(1, most // 2 // step) not in samples:
            return False
        outside = b'"'.join(piece.split(b'"')[inside::2])
        return b"0" * (most + 1) in b"0" * before + outside.translate(_DIGITS)

    def _count_structure(self, text: bytes) -> str | None:
        """Count a text without its strings."""
        limits = self._limits
        brackets = text.translate(_BRACKETS, b",")
        opened = brackets.count(b"{")
        self._containers += opened
        self._items += len(text) - len(brackets)
        if self._containers > limits.containers:
            return f"more than {limits.containers} objects and lists"
        if self._items > limits.items:
            return f"more than {limits.items} items"
        depth, self._depth = self._depth, max(0, self._depth + 2 * opened - len(brackets))
        if depth + opened > limits.depth:
            steps = memoryview(brackets.translate(_STEPS)).cast("b")
            if max(itertools.accumulate(steps, initial=depth)) > limits.depth:
                return f"more than {limits.depth} objects and lists inside each other"
        return None
