# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The annotation ``kai.scheduler/top-owner-metadata``, which names a pod group's top owner.

Its value is YAML, byte for byte as upstream's library writes it, because it is compared with the stored value.
"""

from __future__ import annotations

import math
import re
from datetime import date
from functools import lru_cache
from typing import Final, Self

import yaml
from controller_runtime.machinery import Object

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9./-]*")
_WORDS: Final = frozenset(
    word
    for lower in ("true", "false", "null", "y", "n", "yes", "no", "on", "off")
    for word in (lower, lower.capitalize(), lower.upper())
)
_NOT_STRINGS: Final = _WORDS | {"", "~", ".nan", ".NaN", ".NAN"}
_UNPRINTABLE: Final = re.compile("[^\\t\\n\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd]")
_TO_ESCAPE: Final = re.compile(
    "[^\\x20!#-\\x5b\\x5d-\\x7e\\xa0-\\u2027\\u202a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd]"
)
_ESCAPES: Final = {
    "\0": "0",
    "\a": "a",
    "\b": "b",
    "\t": "t",
    "\n": "n",
    "\v": "v",
    "\f": "f",
    "\r": "r",
    "\x1b": "e",
    '"': '"',
    "\\": "\\",
    "\x85": "N",
    "\xa0": "_",
    "\u2028": "L",
    "\u2029": "P",
}
_INFINITY: Final = re.compile(r"[-+]?\.(inf|Inf|INF)")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9](_?[0-9])*([eE][-+]?[0-9](_?[0-9])*)?")
_OTHER_BASES: Final = (
    (16, re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)")),
    (8, re.compile(r"([-+]?)0[oO]([0-7]+)")),
    (2, re.compile(r"([-+]?)0[bB]([01]+)")),
    (8, re.compile(r"0o([-+])([0-7]+)")),
    (2, re.compile(r"0b([-+])([01]+)")),
)
"""Integers of other bases than ten. Go's reader also takes a sign behind the prefix."""
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:(.).*)?", re.DOTALL)
_TIME: Final = re.compile(
    r"([Tt ])([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)

_LONGEST: Final = 253
"""Longest name whose value is cached; only a few kinds permit longer names."""


def top_owner_metadata(owner: Object) -> str:
    """Return the annotation's value for ``owner``."""
    gvk = type(owner).gvk
    render = _remembered if len(owner.name) <= _LONGEST else _render
    return render(owner.name, owner.metadata.uid or "", gvk.group, gvk.version, gvk.kind)


def _render(name: str, uid: str, group: str, version: str, kind: str) -> str:
    return (
        f"name: {_scalar(name)}\nuid: {_scalar(uid)}\ngroup: {_scalar(group)}\n"
        f"version: {_scalar(version)}\nkind: {_scalar(kind)}\n"
    )


_remembered: Final = lru_cache(maxsize=4096)(_render)


def _scalar(text: str) -> str:
    if _UUID.fullmatch(text) or (_PLAIN.fullmatch(text) and text not in _WORDS):
        return text  # the usual case: all but names that begin with a digit
    if _UNPRINTABLE.search(text):
        return _double_quoted(text)
    if "\n" in text:
        return _double_quoted(text) if text[-1] == " " or " \n" in text else _literal(text)
    style = '"' if _reads_as_something_else(text) else ""
    written: str = yaml.dump({"k": _Text(text, style)}, Dumper=_Dumper, allow_unicode=True, width=1 << 30)
    return written.removeprefix("k: ").removesuffix("\n")


def _literal(text: str) -> str:
    """Return multi-line text as a block scalar; a leading line break is merged with the one that ends the header."""
    indent = "4" if text[0] in " \n" else ""
    keep = "+" if text == "\n" or text.endswith("\n\n") else ""
    chomp = keep if text[-1] == "\n" else "-"
    body = "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
    start = "" if text[0] == "\n" else "\n"
    return f"|{indent}{chomp}{start}{body}".removesuffix("\n")


def _double_quoted(text: str) -> str:
    """Return text with unprintable characters escaped; after a leading byte order mark, every character is escaped."""
    if text[0] == "\ufeff":
        return f'"{"".join(map(_escaped, text))}"'
    return f'"{_TO_ESCAPE.sub(lambda found: _escaped(found[0]), text)}"'


def _escaped(character: str) -> str:
    if (short := _ESCAPES.get(character)) is not None:
        return f"\\{short}"
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _reads_as_something_else(text: str) -> bool:
    """Return True if a YAML 1.1 or 1.2 reader would parse the plain text as another type than a string."""
    if text in _NOT_STRINGS or _INFINITY.fullmatch(text) or _BASE_60.fullmatch(text):
        return True
    if text[0] == ".":
        return _FRACTION.fullmatch(text) is not None and _is_float(text)
    return text[0] in "+-0123456789" and (_is_number(text.replace("_", "")) or _is_timestamp(text))


def _is_number(text: str) -> bool:
    """Return True if Go reads the text as a number; a number that Go's types cannot hold is a string."""
    if _DECIMAL.fullmatch(text):
        return _is_float(text)
    for base, form in _OTHER_BASES:
        if found := form.fullmatch(text):
            sign, digits = found.groups()
            number = int(sign + digits, base)
            return -(1 << 63) <= number < 1 << (63 if sign else 64)
    return False


def _is_float(text: str) -> bool:
    return math.isfinite(float(text))


def _is_timestamp(text: str) -> bool:
    if (found := _DATE.fullmatch(text)) is None:
        return False
    year, month, day, separator = found.groups()
    try:
        date(int(year) or 4, int(month), int(day))  # the year 0 of Go is a leap year, as 4 is
    except ValueError:
        return False
    if separator is None:
        return True
    time = _TIME.fullmatch(text[found.end(3) :])
    if time is None:
        return False
    mark, hour, minute, second, _, zone = time.groups()
    return (zone is None) == (mark == " ") and int(hour) < 24 and int(minute) < 60 and int(second) < 60


class _Text(str):
    """Text with its YAML style."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Self:
        made = super().__new__(cls, text)
        made.style = style
        return made


class _Dumper(yaml.SafeDumper):
    """Resolves every plain scalar as a string: the style was chosen before."""

    yaml_implicit_resolvers = {}  # noqa: RUF012


_Dumper.add_representer(
    _Text,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), text.style or None),
)
