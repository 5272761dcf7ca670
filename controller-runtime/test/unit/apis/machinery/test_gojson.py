# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Text as Go prints it."""

from typing import Any

import pytest

from controller_runtime.apis.batch.v1 import JobTemplateSpec
from controller_runtime.apis.core.v1 import Affinity, Container, EnvVar, PodSpec, PodTemplateSpec, Volume
from controller_runtime.apis.machinery.base import Struct
from controller_runtime.apis.machinery.gojson import go_json, go_value, quote

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


def test_booleans_are_lower_case() -> None:
    assert (go_value(True), go_value(2), go_value("x")) == ("true", "2", "x")
