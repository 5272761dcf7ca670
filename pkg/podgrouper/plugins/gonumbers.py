# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Go's integers: division towards zero, parsing as in ``strconv.Atoi``."""

from __future__ import annotations

import re
from typing import Final

from controller_runtime.machinery.gojson import quote

_DECIMAL: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


def divide(dividend: int, divisor: int) -> tuple[int, int]:
    """Return quotient and remainder; the quotient is cut towards zero, the remainder has the dividend's sign.

    Raises:
        ZeroDivisionError: the divisor is 0.
    """
    quotient, remainder = divmod(abs(dividend), abs(divisor))
    return (
        quotient if (dividend < 0) == (divisor < 0) else -quotient,
        -remainder if dividend < 0 else remainder,
    )


def atoi(text: str) -> int:
    """Return the number in ``text``: an optional sign and decimal digits, without blanks or underscores.

    Raises:
        ValueError: ``text`` is not a number or exceeds 64 bits; the message is Go's.
    """
    return _parsed(text, "Atoi", 64)


def parse_int32(text: str) -> int:
    """Parse ``text`` as Go's ``strconv.ParseInt(text, 10, 32)`` does. It accepts the same form as :func:`atoi`.

    Raises:
        ValueError: ``text`` is not a number or exceeds 32 bits; the message is Go's.
    """
    return _parsed(text, "ParseInt", 32)


def _parsed(text: str, function: str, bits: int) -> int:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) < 20:  # more digits exceed 64 bits
        number = -int(digits) if text[0] == "-" else int(digits)
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return number
    raise ValueError(f"strconv.{function}: parsing {quote(text)}: value out of range")
