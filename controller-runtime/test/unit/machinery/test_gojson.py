# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Text as Go prints it."""

from typing import Any

import pytest

from controller_runtime.apis.batch.v1 import JobTemplateSpec
from controller_runtime.apis.core.v1 import Affinity, Container, EnvVar, PodSpec, PodTemplateSpec, Volume
from controller_runtime.machinery import Struct
from controller_runtime.machinery.gojson import go_json, go_text, quote

KINDS: dict[str, type[Struct]] = {
    kind.__name__: kind
    for kind in (Affinity, Container, EnvVar, JobTemplateSpec, PodSpec, PodTemplateSpec, Volume)
}


def test_structs_are_written_as_go_writes_them(go: dict[str, list[list[Any]]]) -> None:
    for kind, data, want in go["json"]:
        assert go_json(KINDS[kind].from_dict(data)) == want


def test_strings_are_quoted_as_go_quotes_them(go: dict[str, list[list[Any]]]) -> None:
    for text, want in go["quote"]:
        assert quote(text) == want


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1, 2.5, None], "a": True}, '{"a":true,"b":[1,2.5,null]}'),
        ("a\u2028<b>", '"a\\u2028\\u003cb\\u003e"'),
        ((), "[]"),
        (PodSpec(), '{"containers":null}'),
        (JobTemplateSpec(), '{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert go_json(value) == text


def test_what_the_model_does_not_know_is_left_out() -> None:
    assert go_json(EnvVar.from_dict({"name": "A", "newField": 1})) == '{"name":"A"}'


@pytest.mark.parametrize(
    ("number", "printed", "marshalled"),
    [
        (-0.0, "-0", "-0"),
        (5.0, "5", "5"),
        (999999.0, "999999", "999999"),
        (1e6, "1e+06", "1000000"),
        (1234567.5, "1.2345675e+06", "1234567.5"),
        (123456789012345680000.0, "1.2345678901234568e+20", "123456789012345680000"),
        (1e21, "1e+21", "1e+21"),
        (1e100, "1e+100", "1e+100"),
        (0.00012, "0.00012", "0.00012"),
        (0.000012345, "1.2345e-05", "0.000012345"),
        (1.5e-7, "1.5e-07", "1.5e-7"),
        (-3e8, "-3e+08", "-300000000"),
    ],
)
def test_floats_are_written_as_go_writes_them(number: float, printed: str, marshalled: str) -> None:
    assert (go_text(number), go_json(number)) == (printed, marshalled)


def test_decoded_json_is_printed_as_go_prints_it() -> None:
    assert (
        go_text({"b": [None, True, 12345678, 2.5, "x"], "a": 1e6})
        == "map[a:1e+06 b:[<nil> true 12345678 2.5 x]]"
    )
