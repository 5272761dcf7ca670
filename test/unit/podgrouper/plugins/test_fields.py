# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest
from controller_runtime.machinery import Unstructured

from pkg.podgrouper.plugins import AccessorError, fields
from pkg.podgrouper.plugins.gonumbers import atoi, divide

OWNER = Unstructured.wrap(
    {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {
            "replicas": 3,
            "big": (1 << 31) + 5,
            "bigger": 1 << 63,
            "too big": 10**400,
            "flag": True,
            "none": None,
            "map": {"b": 1, "a": [1.5, None]},
            "names": ["a", 1],
        },
    }
)


@pytest.mark.parametrize(
    "path", [("spec", "missing"), ("status",), ("spec", "none", "deeper"), ("spec", "map", "c")]
)
def test_a_path_that_leads_nowhere_gives_none(path: tuple[str, ...]) -> None:
    assert fields.nested_int32(OWNER, *path) is None
    assert fields.nested_map(OWNER, *path) is None


def test_an_integer_beyond_32_bits_becomes_the_nearest_one_and_never_a_small_one() -> None:
    assert fields.nested_int32(OWNER, "spec", "replicas") == 3
    assert fields.nested_int32(OWNER, "spec", "big") == (1 << 31) - 1
    assert fields.int32(-(1 << 40)) == -(1 << 31)


@pytest.mark.parametrize(
    ("read", "path", "text"),
    [
        (
            fields.nested_int32,
            ("spec", "flag"),
            ".spec.flag accessor error: true is of the type bool, expected int64",
        ),
        (
            fields.nested_string,
            ("spec", "map"),
            ".spec.map accessor error: map[a:[1.5 <nil>] b:1] is of the type map[string]interface {}, expected string",
        ),
        (
            fields.nested_list,
            ("spec", "none"),
            ".spec.none accessor error: <nil> is of the type <nil>, expected []interface{}",
        ),
        (
            fields.nested_int64,
            ("spec", "replicas", "deep", "er"),
            ".spec.replicas.deep accessor error: 3 is of the type int64, expected map[string]interface{}",
        ),
        (
            fields.nested_int64,
            ("spec", "bigger"),
            ".spec.bigger accessor error: 9.223372036854776e+18 is of the type float64, expected int64",
        ),
        (
            fields.nested_int64,
            ("spec", "too big"),
            f".spec.too big accessor error: {10**400} is of the type int64, expected int64",
        ),
        (
            fields.nested_string_list,
            ("spec", "names"),
            ".spec.names accessor error: contains non-string key in the slice: 1 is of the type int64, expected string",
        ),
    ],
)
def test_another_type_than_wanted_is_named_with_its_path(
    read: Callable[..., object], path: tuple[str, ...], text: str
) -> None:
    with pytest.raises(AccessorError) as caught:
        read(OWNER, *path)

    assert str(caught.value) == text


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
