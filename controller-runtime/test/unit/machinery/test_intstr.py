# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers or strings."""

import pytest

from controller_runtime.machinery.intstr import int_value, scaled_value


def test_the_type_tells_numbers_from_strings() -> None:
    assert [int_value(value) for value in (3, "3", "-3", "auto", " 3", "1_0", "٣", "")] == [
        3,
        3,
        -3,
        0,
        0,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(("value", "up", "down"), [(3, 3, 3), ("50%", 3, 2), ("100%", 5, 5), ("0%", 0, 0)])
def test_percentages_are_of_the_total(value: int | str, up: int, down: int) -> None:
    assert (scaled_value(value, 5, round_up=True), scaled_value(value, 5, round_up=False)) == (up, down)


@pytest.mark.parametrize("text", ["5", "%", "x%", "1.5%"])
def test_other_strings_are_no_percentage(text: str) -> None:
    with pytest.raises(ValueError, match="not a percentage"):
        scaled_value(text, 5, round_up=True)
