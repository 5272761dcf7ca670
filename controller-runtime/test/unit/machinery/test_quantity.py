# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Quantities: exact, and written as Go writes them."""

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.machinery import quantity
from controller_runtime.machinery.quantity import Amount, Format, int_value, parse


def test_text_and_values_are_those_of_go(go: dict[str, list[list[Any]]]) -> None:
    for text, want in go["q"]:
        if want == "!":
            with pytest.raises(ValueError, match="quantit"):
                quantity.canonical(text)
        else:
            amount = quantity.parse(text.strip())
            got = [quantity.canonical(text), str(amount.value), str(amount.milli_value)]
            assert got == want, text


def test_sums_differences_and_order_are_those_of_go(go: dict[str, list[list[Any]]]) -> None:
    for a, b, want in go["add"]:
        assert [quantity.add(a, b), quantity.sub(a, b), quantity.cmp(a, b)] == want, (a, b)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1.5Gi", "1536Mi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("0.1n", "1n"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("-1.5Gi", "-1536Mi"),
        ("16Ei", "9223372036854775807"),
        ("1.234", "1.234"),
        ("10e3", "10e3"),
        ("Gi", "0"),
        ("-", "0"),
    ],
)
def test_canonical_text(text: str, want: str) -> None:
    assert quantity.canonical(text) == want


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 Gi", "1.2.3", "1e", "1e+", "e", "-+", "1K", "--1", "0x10", "1m3", "1e999999999", "1e-1001"],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        quantity.canonical(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1x", "quantities must match the regular expression"),
        ("100Mb", "quantities must match the regular expression"),
        ("1GI", "quantities must match the regular expression"),
        ("1K", "unable to parse quantity's suffix"),
        ("1mm", "unable to parse quantity's suffix"),
    ],
)
def test_the_problem_of_a_suffix_is_that_of_go(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        quantity.canonical(text)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(-(10**24), 10**24), st.sampled_from(list(Format)))
def test_reading_what_was_written_gives_the_same_number(nanos: int, form: Format) -> None:
    capped = form is Format.BINARY_SI and abs(nanos) > (2**63 - 1) * 10**9
    assert capped or quantity.parse(str(Amount(nanos, form))).nanos == nanos


def test_a_sum_keeps_the_first_format_unless_it_is_zero() -> None:
    assert quantity.add("1Gi", "1M") == "1074741824"
    assert quantity.add("1Gi", "1024Mi") == "2Gi"
    assert quantity.add("0", "1024Mi") == "1Gi"


def test_amounts_are_compared_by_their_numbers() -> None:
    small, large = parse("500m"), parse("1Gi")
    assert small < large
    assert large > small
    assert large >= parse("1073741824") >= large
    assert parse("1073741824") <= large
    assert sorted([large, small, parse("2")]) == [small, parse("2"), large]


def test_values_are_rounded_away_from_zero() -> None:
    assert quantity.value("1500m") == 2
    assert quantity.milli_value("100u") == 1
    assert quantity.value("-1500m") == -2


def test_decoding_canonicalises_strings_and_numbers() -> None:
    got = ResourceRequirements.from_json(b'{"limits":{"cpu":0.5,"memory":"1024Mi","nvidia.com/gpu":8}}')
    assert got.to_dict() == {"limits": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "8"}}


def test_decoding_refuses_what_is_no_quantity() -> None:
    for bad in ("much", True, [1]):
        with pytest.raises(ValueError, match="limits"):
            ResourceRequirements.from_dict({"limits": {"cpu": bad}})


@pytest.mark.parametrize("text", ["0" * 3_000 + "!", "1" * 100_000 + "!", "1." + "0" * 100_000 + "!"])
def test_a_long_wrong_text_costs_no_more_than_a_right_one(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="quantities must match"):
        quantity.canonical(text)
    assert time.process_time() - began < 5  # it took minutes


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
