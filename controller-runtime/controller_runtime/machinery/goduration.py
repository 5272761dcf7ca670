# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Durations as Go's ``time.Duration`` reads and writes them: whole nanoseconds in 64 bits."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer

from .crd.markers import Markers
from .gojson import quote

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^.0-9]+)", re.ASCII)
_MOST: Final = 2**63
_LONGEST: Final = 64
"""Longer texts are rejected. Every valid duration can be written in fewer characters."""


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration such as ``1h30m`` or ``-1.5s``.

    Raises:
        ValueError: the text is not a duration or exceeds 64 bits.
    """
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0
    if not rest or len(rest) > _LONGEST:
        raise _invalid(text)
    total = position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise _invalid(text)
        total += _nanoseconds(part, text)
        position = part.end()
    if total > _MOST - (sign != "-"):
        raise _invalid(text)
    return -total if sign == "-" else total


def seconds(text: str | None) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: the text is not a valid duration, or the duration is longer than Go can represent (about 292 years).
    """
    try:
        return parse_duration(text or "") / 10**9
    except ValueError:
        raise ValueError(f'"{text or ""}" is not a duration; write it as 15s or 1m30s') from None


def _nanoseconds(part: re.Match[str], text: str) -> int:
    whole, fraction, name = part.groups()
    unit = _NANOSECONDS.get(name)
    if unit is None or not (whole or fraction):
        raise _invalid(text)
    scale: int = 10 ** len(fraction or "")
    return int(whole or "0") * unit + int(fraction or "0") * unit // scale


def format_duration(nanoseconds: int) -> str:
    """Return the text of a duration: ``1h30m0s``, ``300ms``, ``0s``."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    for name in ("ns", "µs", "ms"):
        if rest < _NANOSECONDS[name] * 1000:
            return f"{sign}{_decimal(rest, _NANOSECONDS[name])}{name}"
    minutes, seconds = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    larger = (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "")
    return f"{sign}{larger}{_decimal(seconds, 10**9)}s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _invalid(text: str) -> ValueError:
    return ValueError(f"time: invalid duration {quote(text[:_LONGEST])}")


_MICROSECOND: Final = timedelta(microseconds=1)


def _read(value: object) -> object:
    if not isinstance(value, str):
        return value
    return timedelta(microseconds=round(parse_duration(value) / 1000))


def _write(value: timedelta) -> str:
    nanoseconds = value // _MICROSECOND * 1000
    if not -_MOST <= nanoseconds < _MOST:
        raise ValueError(f"the duration {value} is longer than Go can represent (about 292 years)")
    return format_duration(nanoseconds)


Duration = Annotated[
    timedelta,
    BeforeValidator(_read),
    PlainSerializer(_write, return_type=str, when_used="json"),
    Markers(
        max_length=_LONGEST,
        pattern=r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$",
    ),
]
"""A timedelta that is a text such as ``1h30m`` in JSON, like Go's metav1.Duration; it is rounded to microseconds."""
