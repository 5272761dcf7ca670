# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Text from files and servers made safe to print: characters that control a terminal become escapes."""

from __future__ import annotations

import re
from typing import Final

# Control characters but tab and newline, marks of text direction, line separators, and halves of surrogate pairs.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return ``text`` with control characters as escapes; tabs and newlines stay."""
    return _UNPRINTABLE.sub(_escaped, text)


def printable_line(text: str) -> str:
    """Return ``text`` with control characters, tabs and newlines as escapes."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
