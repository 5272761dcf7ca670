# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Values that are a number or a string in JSON: quantities, and IntOrString.

A quantity is an exact number with a suffix. Models store it as its canonical text (``Quantity``, a ``str``): decoding
accepts JSON strings and numbers and rewrites them as Go does. Equal quantities can still have different texts, such as
``1.234`` and ``1234m``: compare them with :func:`cmp`. Arithmetic uses :class:`Amount`. The smallest unit is one
billionth (``n``); finer values are rounded away from zero.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from pydantic import BeforeValidator

_NANO: Final = 10**9
_MAX_BINARY: Final = 2**63 - 1
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
# The quantifiers never give characters back, so a long wrong text costs no more than a right one.
_TEXT: Final = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+)([+-]?[0-9]*+)", re.ASCII)
_FAST_DIGITS: Final = 18


class Format(StrEnum):
    """A family of suffixes. A quantity is written in the format in which it was read."""

    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"


def _round_away(number: int, unit: int) -> int:
    return -(-number // unit) if number >= 0 else number // unit


class Amount(msgspec.Struct, frozen=True):
    """An exact number in billionths, and the format in which it is written."""

    nanos: int
    format: Format = Format.DECIMAL_SI

    def __add__(self, other: Amount) -> Amount:
        """Return the sum, in this amount's format or, if this amount is zero, in the format of ``other``."""
        return Amount(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: Amount) -> Amount:
        """Return the difference, in this amount's format or, if this amount is zero, in the format of ``other``."""
        return Amount(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __mul__(self, factor: int) -> Amount:
        """Return the product."""
        return Amount(self.nanos * factor, self.format)

    def __lt__(self, other: Amount) -> bool:
        """Compare the numbers, whatever the formats. Only amounts of one format are equal, as ``==`` compares both."""
        return self.nanos < other.nanos

    def __le__(self, other: Amount) -> bool:
        """Compare the numbers, whatever the formats."""
        return self.nanos <= other.nanos

    def __gt__(self, other: Amount) -> bool:
        """Compare the numbers, whatever the formats."""
        return self.nanos > other.nanos

    def __ge__(self, other: Amount) -> bool:
        """Compare the numbers, whatever the formats."""
        return self.nanos >= other.nanos

    @property
    def value(self) -> int:
        """The whole number, rounded away from zero."""
        return _round_away(self.nanos, _NANO)

    @property
    def milli_value(self) -> int:
        """Thousandths, rounded away from zero."""
        return _round_away(self.nanos, _NANO // 1000)

    def __str__(self) -> str:
        """Return the canonical text: a whole number with the largest possible suffix."""
        if self.nanos == 0:
            return "0"
        if self.format is Format.BINARY_SI and abs(self.nanos) >= 1024 * _NANO and self.nanos % _NANO == 0:
            return _binary_text(self.nanos // _NANO)
        return _decimal_text(self.nanos, exponent=self.format is Format.DECIMAL_EXPONENT)


def _binary_text(whole: int) -> str:
    power = 0
    while abs(whole) >= 1024 and whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY[power]}"


_SHORT: Final = 64
"""Results are cached only for texts up to this length, so that long texts from users do not stay in memory."""


def _decimal_text(nanos: int, *, exponent: bool) -> str:
    power = -9
    while nanos % 1000 == 0 and (exponent or power < 18):
        nanos //= 1000
        power += 3
    if exponent:
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[power]}"


def parse(text: str) -> Amount:
    """Parse a quantity.

    Raises:
        ValueError: ``text`` is not a valid quantity.
    """
    return _parse(text) if len(text) <= _SHORT else _read(text)[0]


def canonical(text: str) -> str:
    """Return ``text`` as Go writes it back after reading it.

    A text that Go considers canonical is returned unchanged, including ``1.234`` and ``10e3``.

    Raises:
        ValueError: ``text`` is not a valid quantity.
    """
    return _canonical(text) if len(text) <= _SHORT else _written_back(text)


def _written_back(text: str) -> str:
    text = text.strip()
    amount, keep = _read(text)
    return text if keep else str(amount)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Amount:
    return _read(text)[0]


_canonical = lru_cache(maxsize=4096)(_written_back)


def _read(text: str) -> tuple[Amount, bool]:
    """Return the amount, and True if Go keeps the text unchanged."""
    # Go reads a non-empty text without digits as zero.
    match = _TEXT.fullmatch(text)
    if match is None or not text:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, number, fraction, suffix, power = match.groups()
    number, fraction = number or "0", fraction or ""
    base, exponent, form = _suffix(suffix, power)
    digits = number + fraction
    mantissa = int(digits)
    if base == 2:
        keep = not fraction and mantissa & 7 != 0 and len(number) + exponent * 3 // 10 <= _FAST_DIGITS - 4
        scaled, unit = (mantissa << exponent) * _NANO, 10 ** len(fraction)
    else:
        scale = exponent - len(fraction)
        keep = (
            len(digits) <= _FAST_DIGITS
            and scale >= -9
            and scale % 3 == 0
            and not digits.endswith("000")
            and digits[0] != "0"
        )
        scaled, unit = (mantissa * 10 ** (scale + 9), 1) if scale >= -9 else (mantissa, 10 ** (-9 - scale))
    nanos = _round_away(scaled, unit)
    if base == 2:
        nanos = min(nanos, _MAX_BINARY * _NANO)
        if 0 < nanos < _NANO:
            form = Format.DECIMAL_SI
    return Amount(-nanos if sign == "-" else nanos, form), keep or text == "0"


def _suffix(suffix: str, power: str) -> tuple[int, int, Format]:
    if not power:
        if suffix in _DECIMAL:
            return 10, _DECIMAL[suffix], Format.DECIMAL_SI
        if suffix in _BINARY:
            return 2, 10 * _BINARY.index(suffix), Format.BINARY_SI
    elif suffix in ("e", "E") and power not in ("+", "-") and abs(int(power)) <= 1000:
        return 10, int(power), Format.DECIMAL_EXPONENT
    raise ValueError("unable to parse quantity's suffix")


def add(a: str, b: str) -> str:
    """Return the sum, in the format of ``a`` or, if ``a`` is zero, in the format of ``b``."""
    return str(parse(a) + parse(b))


def sub(a: str, b: str) -> str:
    """Return the difference."""
    return str(parse(a) - parse(b))


def mul(a: str, factor: int) -> str:
    """Return ``a`` multiplied by a whole number."""
    return str(parse(a) * factor)


def cmp(a: str, b: str) -> int:
    """Return -1 if ``a`` is less than ``b``, 0 if the two are equal, and 1 if ``a`` is greater."""
    left, right = parse(a).nanos, parse(b).nanos
    return (left > right) - (left < right)


def value(text: str) -> int:
    """Return the whole number, rounded away from zero: ``1500m`` is 2."""
    return parse(text).value


def milli_value(text: str) -> int:
    """Return thousandths, rounded away from zero."""
    return parse(text).milli_value


def of_json(raw: object) -> object:
    """Return the canonical text of a JSON string or number; other values are returned unchanged.

    Raises like :func:`canonical`.
    """
    if isinstance(raw, str):
        return _canonical(raw) if len(raw) <= _SHORT else _written_back(raw)
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return canonical(repr(raw))
    return raw


CANONICAL: Final = BeforeValidator(of_json)
"""The annotation that marks a field as a quantity."""

Quantity = Annotated[str, CANONICAL]
"""The canonical text of a quantity; JSON strings and numbers are accepted."""

ResourceList = dict[str, Quantity]
"""Quantities by resource name."""


IntOrString = int | str
"""A number or a string, such as a port or a percentage, distinguished by its Python type."""

MAX_INT32: Final = 2**31 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")


def int_value(value: IntOrString) -> int:
    """Return the number, or 0 for a string that is not a number, as Go's ``IntValue`` does."""
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else 0
    return value
