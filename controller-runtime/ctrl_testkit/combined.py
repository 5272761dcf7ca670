# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A schema with alternatives, combinations and exclusive bounds, and what API servers say about values."""

from typing import Any, Final

from controller_runtime.envtest import open_crd
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import InvalidError

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_A_AND_B: Final[dict[str, Any]] = {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}}
_EITHER: Final[list[dict[str, Any]]] = [{"required": ["a"]}, {"required": ["b"]}]
_SPEC: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "above": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
        "below": {"type": "number", "maximum": 9, "exclusiveMaximum": True},
        "threes": {"type": "integer", "multipleOf": 3},
        "halves": {"type": "number", "multipleOf": 0.5},
        "one": {**_A_AND_B, "oneOf": _EITHER},
        "any": {**_A_AND_B, "anyOf": _EITHER},
        "all": {**_A_AND_B, "allOf": _EITHER},
        "not": {**_A_AND_B, "not": {"required": ["a"]}},
        "list": {"type": "array", "items": {**_A_AND_B, "oneOf": _EITHER}},
        "text": {**_TEXT, "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        "port": {"x-kubernetes-int-or-string": True},
        "percent": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "some": {"type": "array", "items": _TEXT, "minItems": 2},
        "few": {"type": "object", "additionalProperties": _TEXT, "minProperties": 1},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        "named": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
            "items": {**_A_AND_B, "required": ["a"]},
        },
        "kinds": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["x", "y"]},
                "x": {"type": "integer"},
                "y": {"type": "integer"},
            },
            "required": ["type"],
            "oneOf": [
                {"properties": {"type": {"enum": ["x"]}}, "required": ["x"]},
                {"properties": {"type": {"enum": ["y"]}}, "required": ["y"]},
            ],
        },
    },
}
COMBINED: Final = unstructured(GVK("combined.example.org", "v1", "Combined"))
COMBINED_CRD: Final = open_crd(
    COMBINED.gvk, "combined", schema={"type": "object", "properties": {"spec": _SPEC}}
)

_NO_ONE: Final = "must validate one and only one schema (oneOf). Found"
_TYPE: Final = 'spec.{0}: Invalid value: "{1}": spec.{0} in body must be of type {2}: "{1}"'
CASES: Final[list[tuple[dict[str, Any], str]]] = [
    ({"above": 1}, "spec.above: Invalid value: 1: spec.above in body should be greater than 1"),
    ({"above": 2, "below": 8.5, "threes": 6, "halves": 1.5}, ""),
    ({"below": 9}, "spec.below: Invalid value: 9: spec.below in body should be less than 9"),
    ({"threes": 4}, "spec.threes: Invalid value: 4: spec.threes in body should be a multiple of 3"),
    ({"halves": 0.7}, "spec.halves: Invalid value: 0.7: spec.halves in body should be a multiple of 0.5"),
    (
        {"one": {}},
        f'[<nil>: Invalid value: "": "spec.one" {_NO_ONE} none valid, spec.one.a: Required value]',
    ),
    (
        {"one": {"a": "", "b": ""}},
        f'<nil>: Invalid value: "": "spec.one" {_NO_ONE} 2 valid alternatives',
    ),
    ({"one": {"b": ""}, "any": {"a": "", "b": ""}, "all": {"a": "", "b": ""}, "not": {"b": ""}}, ""),
    (
        {"any": {}},
        (
            '[<nil>: Invalid value: "": "spec.any" must validate at least one schema (anyOf), '
            "spec.any.a: Required value]"
        ),
    ),
    (
        {"all": {}},
        (
            "[spec.all.a: Required value, spec.all.b: Required value, "
            '<nil>: Invalid value: "": "spec.all" must validate all the schemas (allOf). None validated]'
        ),
    ),
    (
        {"all": {"a": ""}},
        (
            "[spec.all.b: Required value, "
            '<nil>: Invalid value: "": "spec.all" must validate all the schemas (allOf)]'
        ),
    ),
    ({"not": {"a": ""}}, '<nil>: Invalid value: "": "spec.not" must not validate the schema (not)'),
    (
        {"list": [{"a": ""}, {}]},
        f'[<nil>: Invalid value: "": "spec.list[1]" {_NO_ONE} none valid, spec.list[1].a: Required value]',
    ),
    (
        {"text": "c"},
        (
            '[<nil>: Invalid value: "": "spec.text" must validate at least one schema (anyOf), '
            "spec.text: Invalid value: \"c\": spec.text in body should match '^a']"
        ),
    ),
    ({"text": "b", "list": [{"a": ""}, {"b": ""}], "kinds": {"type": "y", "y": 1}}, ""),
    ({"port": 80, "percent": "5%", "some": ["", ""], "few": {"": ""}, "named": [{"a": "1"}, {"a": "2"}]}, ""),
    ({"port": 1.5}, _TYPE.format("port", "number", "integer,string")),
    (
        {"percent": True},
        (
            f"[{_TYPE.format('percent', 'boolean', 'integer,string')}, "
            '<nil>: Invalid value: "": "spec.percent" must validate at least one schema (anyOf), '
            f"{_TYPE.format('percent', 'boolean', 'integer')}]"
        ),
    ),
    ({"some": []}, "spec.some: Invalid value: 0: spec.some in body should have at least 2 items"),
    ({"few": {}}, "spec.few: Invalid value: 0: spec.few in body should have at least 1 properties"),
    (
        {"set": [None, "b", None]},
        (
            f"[{_TYPE.format('set[0]', 'null', 'string')}, {_TYPE.format('set[2]', 'null', 'string')}, "
            "spec.set[2]: Duplicate value: null]"
        ),
    ),
    (
        {"named": [{"a": "1"}, "", {"a": "1"}]},
        (
            f"[{_TYPE.format('named[1]', 'string', 'object')}, "
            'spec.named[1]: Invalid value: "": must be an object for an array of list-type map]'
        ),
    ),
    (
        {"named": [{"a": "1"}, None, {"a": "1"}, None]},
        (
            f"[{_TYPE.format('named[1]', 'null', 'object')}, {_TYPE.format('named[3]', 'null', 'object')}, "
            'spec.named[2]: Duplicate value: {"a":"1"}, spec.named[3]: Duplicate value: {}]'
        ),
    ),
    (
        {"kinds": {"type": "y"}},
        (
            f'[<nil>: Invalid value: "": "spec.kinds" {_NO_ONE} none valid, '
            'spec.kinds.type: Unsupported value: "y": supported values: "x", spec.kinds.x: Required value]'
        ),
    ),
    (
        {"kinds": {"type": "z"}},
        (
            f'[<nil>: Invalid value: "": "spec.kinds" {_NO_ONE} none valid, '
            'spec.kinds.type: Unsupported value: "z": supported values: "x", spec.kinds.x: Required value, '
            'spec.kinds.type: Unsupported value: "z": supported values: "x", "y"]'
        ),
    ),
]
"""Specs, and the problems that a server names; an empty text if the server stores the object."""


async def problem_of(client: Any, namespace: str, spec: dict[str, Any]) -> str:
    """Return the problems that the server names when an object with this spec is created, or an empty text."""
    metadata = {"name": "c", "namespace": namespace}
    try:
        await client.create(COMBINED.from_dict({"metadata": metadata, "spec": spec}), dry_run=True)
    except InvalidError as error:
        return str(error).removeprefix('Combined.combined.example.org "c" is invalid: ')
    return ""
