# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Custom resources by their schema: unknown fields are dropped and defaults are set, at every depth."""

from typing import Any

import pytest

from controller_runtime.fake import completer

NUMBER = {"type": "integer", "default": 1}


@pytest.mark.parametrize(
    ("schema", "given", "stored"),
    [
        pytest.param({"a": {"type": "string"}}, {"a": "x", "b": 1}, {"a": "x"}, id="unknown fields are dropped"),
        pytest.param({"n": NUMBER}, {}, {"n": 1}, id="a default is set"),
        pytest.param({"n": NUMBER}, {"n": None}, {"n": 1}, id="null gets the default"),
        pytest.param({"n": NUMBER | {"nullable": True}}, {"n": None}, {"n": None}, id="null stays where it is allowed"),
        pytest.param(
            {"o": {"type": "object", "properties": {"n": NUMBER}}}, {}, {}, id="no default of an absent object's field"
        ),
        pytest.param(
            {"o": {"type": "object", "default": {}, "properties": {"n": NUMBER}}},
            {},
            {"o": {"n": 1}},
            id="defaults within a default",
        ),
        pytest.param(
            {"l": {"type": "array", "items": {"type": "object", "properties": {"n": NUMBER}}}},
            {"l": [{}, {"n": 2, "x": 3}]},
            {"l": [{"n": 1}, {"n": 2}]},
            id="items of lists",
        ),
        pytest.param(
            {"m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": NUMBER}}}},
            {"m": {"any": {"x": 1}}},
            {"m": {"any": {"n": 1}}},
            id="values of maps",
        ),
        pytest.param(
            {"m": {"type": "object", "additionalProperties": {"type": "string"}}},
            {"m": {"a": None, "b": "x"}},
            {"m": {"b": "x"}},
            id="nulls in maps",
        ),
        pytest.param(
            {"p": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"n": NUMBER}}},
            {"p": {"x": {"y": 1}}},
            {"p": {"x": {"y": 1}, "n": 1}},
            id="preserved fields",
        ),
        pytest.param(
            {"p": {"x-kubernetes-preserve-unknown-fields": True}},
            {"p": [{"a": 1}, [{"b": {"c": 2}}]]},
            {"p": [{"a": 1}, [{"b": {"c": 2}}]]},
            id="preserved lists",
        ),
        pytest.param(
            {"e": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}},
            {"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "x": 1}},
            {"e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}},
            id="embedded objects keep their metadata",
        ),
    ],
)  # fmt: skip
def test_a_custom_resource_is_stored_as_its_schema_says(schema: Any, given: Any, stored: Any) -> None:
    complete = completer({"type": "object", "properties": schema})
    whole = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "k", "labels": {"a": "b"}}}
    once = complete(whole | given)
    assert once == whole | stored
    assert complete(once) == once
