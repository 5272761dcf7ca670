# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make text from untrusted sources safe to print on terminals, in logs and in errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U0010ffff]"
)
"""The characters that are escaped for terminals and logs: control characters, line breaks, marks of text direction and
format, characters that are invisible by default (joiners, variation selectors, fillers, tags), halves of surrogate
pairs, private use and noncharacters. An emoji or a script that needs joiners may therefore be shown with escapes, which
is better than a forged line or name.
"""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

LONGEST_PATH: Final = 250
"""Maximum number of characters of a path in an error. The longest path without user-defined keys has about 150."""
LONGEST_VALUE: Final = 1024
"""Maximum number of characters of a map or list in an error."""


def cut(text: str, longest: int = LONGEST_PATH) -> str:
    """Return ``text`` or, if it is longer than ``longest``, its beginning and an ellipsis.

    Paths through an object of a tenant must be cut: they may have hundreds of steps, and a key may have a megabyte.
    """
    return text if len(text) <= longest else f"{text[:longest]} ..."


def printable_line(text: str) -> str:
    """Return ``text`` on one line, with unprintable characters escaped."""
    return _replaced(text, _escape)


def printable(text: str, indent: str = "") -> str:
    """Return ``text`` with unprintable characters escaped, except tabs and line feeds.

    ``indent`` is put before every line except the first. With an indent, no line of the text can be mistaken for a line
    of the surrounding text.
    """
    lines = ("\t".join(map(printable_line, line.split("\t"))) for line in text.split("\n"))
    return f"\n{indent}".join(lines)


def printable_json(text: str) -> str:
    """Return JSON text with unprintable characters as JSON escapes; its value and its line breaks do not change.

    Text that is not JSON is escaped in the same way.
    """
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(_replaced(line, _json_escape) for line in text.split("\n"))


def _replaced(text: str, escaped: Callable[[re.Match[str]], str]) -> str:
    return text if text.isascii() and text.isprintable() else _UNPRINTABLE.sub(escaped, text)


def _escape(match: re.Match[str]) -> str:
    character, number = match[0], ord(match[0])
    if number < 0x100:
        return _SHORT.get(character) or f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return _SHORT.get(match[0]) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
