# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""IntOrString: a JSON number or a string, distinguished by its Python type."""

from __future__ import annotations

import re
from typing import Final

IntOrString = int | str

MAX_INT32: Final = 2**31 - 1

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


def int_value(value: IntOrString) -> int:
    """Return the number, or 0 for a string that is not a number, as Go's ``IntValue`` does."""
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) else 0
    return value


def scaled_value(value: IntOrString, total: int, *, round_up: bool) -> int:
    """Return the number itself, or the percentage ``"30%"`` of ``total``.

    Raises:
        ValueError: the string is not a percentage.
    """
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if digits == value or not digits.isascii() or not digits.removeprefix("-").isdigit():
        raise ValueError(
            f'invalid value for IntOrString: invalid type: string is not a percentage: "{value}"'
        )
    product = int(digits) * total
    return -(-product // 100) if round_up else product // 100
