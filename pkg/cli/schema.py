# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What an API server with our CRDs makes of an object before anybody else sees it.

Unknown fields go, defaults come, and what the schema does not allow is refused. CEL rules and patterns are left to the
server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from pkg.apis.machinery.gvk import GVK
from pkg.config.document import PathSteps

from . import resources, yamljson
from .documents import Document

Schema = dict[str, Any]
Problem = tuple[PathSteps, str]

_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "array": (list, "a list is expected"),
    "boolean": (bool, "true or false is expected"),
    "integer": (int, "a whole number is expected"),
    "number": ((int, float), "a number is expected"),
    "object": (dict, "a map is expected"),
    "string": (str, "a string is expected"),
}
_SIZES: Final = {"int32": 2**31, "int64": 2**63}


def as_stored(document: Document) -> tuple[Document, list[str]]:
    """Return a document as the server would store it, and a warning for each field that it would drop.

    A kind that is none of ours is returned as it is.

    Raises:
        InputError: the server would refuse it.
    """
    schema = _schemas().get(document.gvk)
    if schema is None:
        return document, []
    data = copy.deepcopy(document.data)
    dropped = list(_prune(data, schema, ()))
    _default(data, schema)
    for path, problem in _problems(data, schema, ()):
        raise document.error(path, problem)
    if not (data.get("metadata") or {}).get("name"):
        raise document.error(("metadata", "name"), "a name is required")
    stored = Document(data, document.source, document.number, document.inside, document.text)
    return stored, [str(document.error(path, "unknown field, a server drops it")) for path in dropped]


@cache
def _schemas() -> dict[GVK, Schema]:
    found = {}
    for crd in resources.crds():
        spec = crd["spec"]
        for version in spec["versions"]:
            gvk = GVK(spec["group"], version["name"], spec["names"]["kind"])
            found[gvk] = version["schema"]["openAPIV3Schema"]
    return found


def _fields(data: dict[str, Any], schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the fields of a map that the schema says something about."""
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    for name in data:
        if name in properties:
            yield name, properties[name]
        elif isinstance(additional, dict):
            yield name, additional


def _prune(data: Any, schema: Schema, path: PathSteps) -> Iterator[PathSteps]:
    """Drop, and yield, the fields that the schema does not name."""
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from _prune(item, schema.get("items", {}), (*path, index))
    if not isinstance(data, dict):
        return
    if not path:
        schema = {**schema, "properties": {**schema.get("properties", {}), "metadata": _OPEN}}
    if not schema.get("x-kubernetes-preserve-unknown-fields") and schema.get("type") == "object":
        known = schema.get("properties", {})
        for name in [name for name in data if name not in known and "additionalProperties" not in schema]:
            del data[name]
            yield (*path, name)
    for name, below in _fields(data, schema):
        yield from _prune(data[name], below, (*path, name))


_OPEN: Final[Schema] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of metadata, which the server checks by itself."""


def _default(data: Any, schema: Schema) -> None:
    if isinstance(data, list):
        for item in data:
            _default(item, schema.get("items", {}))
    if not isinstance(data, dict):
        return
    for name, below in schema.get("properties", {}).items():
        if data.get(name) is None and "default" in below:
            data[name] = copy.deepcopy(below["default"])
    for name, below in _fields(data, schema):
        _default(data[name], below)


def _problems(data: Any, schema: Schema, path: PathSteps) -> Iterator[Problem]:
    if data is None:
        return  # counts as unset
    wrong = _wrong(data, schema)
    if wrong is not None:
        yield path, wrong
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from _problems(item, schema.get("items", {}), (*path, index))
        yield from _twins(data, schema, path)
    elif isinstance(data, dict):
        for name in schema.get("required", ()):
            if data.get(name) is None:
                yield (*path, name), "it is required"
        for name, below in _fields(data, schema):
            yield from _problems(data[name], below, (*path, name))


def _wrong(data: Any, schema: Schema) -> str | None:
    """Return what is wrong with a value, its parts apart."""
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(data, int | str) and not isinstance(data, bool)
        return None if fits else f"a whole number or a string is expected, not {yamljson.shown(data)}"
    kind = schema.get("type")
    if kind in _TYPES:
        python, expected = _TYPES[kind]
        if not isinstance(data, python) or (isinstance(data, bool) and kind != "boolean"):
            return f"{expected}, not {yamljson.shown(data)}"
    if "enum" in schema and data not in schema["enum"]:
        return f"one of {', '.join(str(each) for each in schema['enum'] if each)} is expected, not {yamljson.shown(data)}"
    if isinstance(data, str | list | dict):
        least = schema.get({str: "minLength", list: "minItems", dict: "minProperties"}[type(data)], 0)
        most = schema.get({str: "maxLength", list: "maxItems", dict: "maxProperties"}[type(data)])
        if len(data) < least:
            return "it must not be empty" if least == 1 else f"it must have {least} or more"
        if most is not None and len(data) > most:
            return f"it must have no more than {most}"
        return None
    least, most = schema.get("minimum"), schema.get("maximum")
    size = _SIZES.get(schema.get("format", ""))
    if size is not None and not -size <= data < size:
        return f"{data} does not fit into {schema['format']}"
    if least is not None and data < least:
        return f"{data} is less than {least}"
    return None if most is None or data <= most else f"{data} is more than {most}"


def _twins(items: list[Any], schema: Schema, path: PathSteps) -> Iterator[Problem]:
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") != "map" or not keys:
        return
    seen: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item, dict):
            key = ", ".join(f"{name} {item[name]}" for name in keys if name in item)
            if key in seen:
                yield (*path, index), f"{key} is there twice"
            seen.add(key)
