# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JSON that would cost far more to decode than its size suggests is refused, and large ordinary objects are accepted.

``fields`` and ``items`` return the undecoded parts of an object and of a list.
"""

import json
import random
from typing import Any

import msgspec
import pytest

from controller_runtime.machinery import rawjson
from controller_runtime.machinery.rawjson import Limits

LIMITS = Limits(size=200_000, containers=1000, items=2000, depth=20, string=50_000, number=100)
PADDING = {"padding": "x" * rawjson.SMALL}


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
        pytest.param([{}] * 1000, "more than 1000 objects and lists", id="empty objects"),
        pytest.param([[]] * 1000, "more than 1000 objects and lists", id="empty lists"),
        pytest.param([""] * 2002, "more than 2000 items", id="empty strings"),
        pytest.param([1] * 2002, "more than 2000 items", id="numbers"),
        pytest.param({f"k{n}": "" for n in range(2002)}, "more than 2000 items", id="a wide map"),
        pytest.param([""] * 13_000, "more than 2000 items", id="more strings than fit"),
        pytest.param(["\\"] * 8_000, "more than 2000 items", id="strings that end in a backslash"),
        pytest.param(nested(20), "more than 20 objects and lists inside", id="deep"),
        pytest.param("y" * 50_001, "a string of more than 50000 bytes", id="a long string"),
        pytest.param(10**101, "a number of more than 100 digits", id="a long number"),
        pytest.param("y" * 200_000, "at most 200000 are accepted", id="large"),
    ],
)
def test_a_shape_beyond_a_limit_is_named(value: Any, reason: str) -> None:
    found = rawjson.check(text(value), LIMITS)
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
    assert rawjson.check(text(value), LIMITS) is None


def test_a_small_text_is_not_looked_at() -> None:
    assert rawjson.check(b"[" * rawjson.SMALL, LIMITS) is None
    assert rawjson.check(b"[" * (rawjson.SMALL + 1), LIMITS) is not None


@pytest.mark.parametrize("rubbish", [b'"', b"\\", b'\\"', b"}", b"\xff", b'{"a":"', b'"\\\\'])
def test_what_is_not_json_is_left_to_the_decoder(rubbish: bytes) -> None:
    rawjson.check(rubbish * 20_000)
    rawjson.check(rubbish * 20_000 + b"x")


def test_large_ordinary_train_jobs_pass() -> None:
    long_values = [{"name": f"NAME_{n}", "value": "v" * 1000} for n in range(1200)]
    variables = [{"name": f"NAME_{n}", "value": "v" * 30} for n in range(20)]
    mounts = [{"name": f"data-{n}", "mountPath": f"/data/{n}"} for n in range(5)]
    claims = [{"name": f"data-{n}", "persistentVolumeClaim": {"claimName": f"data-{n}"}} for n in range(5)]
    keys = [{"key": f"key-{n}", "operator": "Exists", "effect": "NoSchedule"} for n in range(5)]
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b", "c"]}]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    overrides = [
        {
            "targetJobs": [{"name": f"node-{n}"}],
            "metadata": {"labels": {f"label-{i}": "value" for i in range(5)}},
            "spec": {
                "containers": [{"name": "node", "env": variables, "volumeMounts": mounts}],
                "volumes": claims,
                "tolerations": keys,
                "affinity": affinity,
                "nodeSelector": {"pool": "a"},
            },
        }
        for n in range(100)
    ]
    for spec in ({"trainer": {"env": long_values}}, {"podTemplateOverrides": overrides}):
        assert rawjson.check(text({"spec": spec})) is None
    half = Limits(containers=rawjson.DEFAULT.containers // 2 + 200, items=rawjson.DEFAULT.items // 2 + 200)
    assert rawjson.check(text({"spec": {"podTemplateOverrides": overrides}}), half) is None


@pytest.mark.parametrize("filler", ["{}", "[]", '""', "0", '{"name":""}', '"\\\\"'])
def test_a_stored_object_full_of_small_values_is_refused(filler: str) -> None:
    count = 1_300_000 // (len(filler) + 1)
    assert rawjson.check(b'{"spec":{"x":[' + b",".join([filler.encode()] * count) + b"]}}") is not None


def counted(data: bytes, limits: Limits) -> str | None:
    """Return which bound ``data`` exceeds, by a simple implementation that looks at one byte after the other."""
    depth = containers = items = string = digits = 0
    inside = escaped = False
    for byte in data:
        char = chr(byte)
        if inside:
            inside, escaped = escaped or char != '"', not escaped and char == "\\"
            string = string + 1 if inside else 0
        else:
            inside = char == '"'
            depth += (char in "[{") - (char in "]}")
            containers += char in "[{"
            items += char == ","
            digits = digits + 1 if char.isdecimal() else 0
        if string > limits.string:
            return "a string"
        for name, value in (
            ("number", digits),
            ("containers", containers),
            ("items", items),
            ("depth", depth),
        ):
            if value > getattr(limits, name):
                return name
    return None


PIECES = [
    '{"a":',
    "[",
    "]",
    "}",
    '"x"',
    ",",
    '"{,[\\\\"',
    '"\\"]"',
    "1" * 60,
    "12",
    '"' + "9" * 130 + '"',
    '"\\u00e4,"',
]


def test_texts_of_any_kind_in_pieces_of_any_size_are_counted_exactly() -> None:
    rng = random.Random(14)
    refused = 0
    for _ in range(300):
        data, depth = b"", 0
        for piece in rng.choices(PIECES, weights=[5, 5, 4, 4, 9, 9, 2, 2, 1, 5, 2, 2], k=rng.randrange(900)):
            if depth or piece not in "]}":
                data += piece.encode()
                depth += (piece[0] in "[{") - (piece in "]}")
        limits = Limits(containers=200, items=150, depth=rng.choice([30, 60, 100]), number=100)
        counter, reason, at = rawjson.Counter(limits), None, 0
        while reason is None and at < len(data):
            size = rng.choice([1, 2, 3, 50, 500])
            reason, at = counter.feed(data[at : at + size]), at + size
        exact = counted(data, limits)
        assert (reason is None) == (exact is None), (data, reason, exact)
        refused += reason is not None
    assert 50 < refused < 250


@pytest.mark.parametrize("size", [1000, 5000, rawjson.PIECE - 1, 3 * rawjson.PIECE])
def test_a_long_string_is_counted_across_pieces(size: int) -> None:
    def feed(length: int) -> str | None:
        data = b'["short",{"\\"":"' + b"y" * length + b'\\"","a":"b"}]'
        counter = rawjson.Counter(Limits(string=50_000))
        reasons = [counter.feed(data[at : at + size]) for at in range(0, len(data), size)]
        return next(filter(None, reasons), None)

    assert feed(49_998) is None
    assert feed(49_999) == "a string of more than 50000 bytes"


def test_the_rest_of_a_text_is_not_counted_once_it_exceeds() -> None:
    data = b"[" + b"{}," * 2_000_000
    counter, fed = rawjson.Counter(), 0
    while counter.feed(data[fed : fed + 1000]) is None:
        fed += 1000
    assert fed < 70_000


OBJECTS: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": "x", "b": [1, {"c": "}"}, "]"], "d": {"e": {}}, "f": None},
    {'quote"': "\\", "back\\": '{"', "comma,": ",", "ü": "\n"},
]


@pytest.mark.parametrize("value", OBJECTS, ids=str)
@pytest.mark.parametrize("indent", [0, 2])
def test_fields_and_items_are_those_of_the_decoder(value: dict[str, Any], indent: int) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=indent)
    assert {name: msgspec.json.decode(raw) for name, raw in rawjson.fields(text).items()} == value
    listed = msgspec.json.format(msgspec.json.encode([value, *value.values()]), indent=indent)
    assert [msgspec.json.decode(raw) for raw in rawjson.items(listed)] == [value, *value.values()]


@pytest.mark.parametrize("text", [b"", b"1", b"[]", b"{", b'{"a":[}', b"{1:2}"])
def test_a_text_that_is_not_an_object_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        rawjson.fields(text)
