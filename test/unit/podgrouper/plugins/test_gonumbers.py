# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from pkg.podgrouper.plugins.gonumbers import atoi, divide


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("+7", 7), ("-7", -7), ("0" * 5000 + "7", 7), ("-9223372036854775808", -(2**63)), ("-0", 0)],
)
def test_atoi_reads_decimal_numbers(text: str, number: int) -> None:
    assert atoi(text) == number


@pytest.mark.parametrize("text", ["", "+", "1_0", " 1", "1\n", "0x1", "1.0", "٣"])
def test_atoi_refuses_all_else_as_go_words_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"strconv\.Atoi: parsing \".*\": invalid syntax"):
        atoi(text)


def test_atoi_refuses_more_than_64_bits() -> None:
    for text in ("9223372036854775808", "9" * 5000):
        with pytest.raises(ValueError, match=f'parsing "{text}": value out of range'):
            atoi(text)


@pytest.mark.parametrize(
    ("dividend", "divisor", "result"),
    [(7, 2, (3, 1)), (-7, 2, (-3, -1)), (7, -2, (-3, 1)), (-7, -2, (3, -1)), (-1, 2, (0, -1))],
)
def test_divide_cuts_towards_zero(dividend: int, divisor: int, result: tuple[int, int]) -> None:
    assert divide(dividend, divisor) == result
