# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Shapes that cost far more to decode than their bytes are refused; large ordinary objects pass."""

import json
from typing import Any

import pytest

from controller_runtime.apis.machinery import shape
from controller_runtime.apis.machinery.shape import Limits

LIMITS = Limits(size=200_000, containers=1000, items=2000, depth=20, string=50_000, number=100)
PADDING = {"padding": "x" * shape.SMALL}


def text(value: Any) -> bytes:
    return json.dumps({**PADDING, "value": value}).encode()


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"a": value, "s": "]}"} if level % 2 else [value, "[{"]
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param([{}] * 1000, "1002 objects and lists, at most 1000", id="empty objects"),
        pytest.param([[]] * 1000, "1002 objects and lists, at most 1000", id="empty lists"),
        pytest.param([""] * 2002, "2002 items, at most 2000", id="empty strings"),
        pytest.param([1] * 2002, "2002 items, at most 2000", id="numbers"),
        pytest.param({f"k{n}": "" for n in range(2002)}, "2002 items, at most 2000", id="a wide map"),
        pytest.param([""] * 13_000, "more than 6002 strings", id="more strings than fit"),
        pytest.param(["\\"] * 8_000, "items", id="strings that end in a backslash"),
        pytest.param(nested(20), "more than 20 objects and lists inside", id="deep"),
        pytest.param("y" * 50_001, "a string of 50001 bytes, at most 50000", id="a long string"),
        pytest.param(10**101, "a number of more than 100 digits", id="a long number"),
        pytest.param("y" * 200_000, "at most 200000 are accepted", id="large"),
    ],
)
def test_a_shape_beyond_a_limit_is_named(value: Any, reason: str) -> None:
    found = shape.check(text(value), LIMITS)
    assert found is not None
    assert reason in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{}] * 998, id="objects up to the limit"),
        pytest.param([1] * 2000, id="items up to the limit"),
        pytest.param(nested(19), id="depth up to the limit"),
        pytest.param("y" * 50_000, id="a string up to the limit"),
        pytest.param(10**99, id="a number up to the limit"),
        pytest.param("[{,}]" * 9_000, id="brackets and commas in a string"),
        pytest.param('"{,[\\' * 6_000, id="escapes in a string"),
        pytest.param(["]}" * 100] * 100, id="brackets in many strings"),
    ],
)
def test_a_shape_within_the_limits_passes(value: Any) -> None:
    assert shape.check(text(value), LIMITS) is None


def test_a_small_text_is_not_looked_at() -> None:
    assert shape.check(b"[" * shape.SMALL, LIMITS) is None
    assert shape.check(b"[" * (shape.SMALL + 1), LIMITS) is not None


@pytest.mark.parametrize("rubbish", [b'"', b"\\", b'\\"', b"}", b"\xff", b'{"a":"', b'"\\\\'])
def test_what_is_not_json_is_left_to_the_decoder(rubbish: bytes) -> None:
    shape.check(rubbish * 20_000)
    shape.check(rubbish * 20_000 + b"x")


def test_large_ordinary_train_jobs_pass() -> None:
    long_values = [{"name": f"NAME_{n}", "value": "v" * 1000} for n in range(1200)]
    overrides = [
        {"targetJobs": [{"name": "node"}], "spec": {"tolerations": [{"key": f"k{n}", "operator": "Exists"}]}}
        for n in range(3000)
    ]
    for spec in ({"trainer": {"env": long_values}}, {"podTemplateOverrides": overrides}):
        assert shape.check(text({"spec": spec})) is None


@pytest.mark.parametrize("filler", ["{}", "[]", '""', "0", '{"name":""}', '"\\\\"'])
def test_a_stored_object_full_of_small_values_is_refused(filler: str) -> None:
    count = 1_300_000 // (len(filler) + 1)
    assert shape.check(b'{"spec":{"x":[' + b",".join([filler.encode()] * count) + b"]}}") is not None
