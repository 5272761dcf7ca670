# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from controller_runtime.machinery.goduration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0", "0s"),
        ("-0s", "0s"),
        ("1ns", "1ns"),
        ("1.5us", "1.5µs"),
        ("300ms", "300ms"),
        ("90s", "1m30s"),
        ("1.5h", "1h30m0s"),
        (".5s", "500ms"),
        ("1.s", "1s"),
        ("2h45m30.5s", "2h45m30.5s"),
        ("-1h1s", "-1h0m1s"),
        ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(text: str, written: str) -> None:
    assert format_duration(parse_duration(text)) == written


@pytest.mark.parametrize(
    "text", ["", "s", "5", "5 s", " 5s", "1d", ".s", "+", "-", "1h-1m", "99999999h", "٣s", "1" * 100 + "s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)
