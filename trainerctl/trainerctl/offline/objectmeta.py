# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Validation of an object's metadata, with the API server's messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller_runtime.machinery import JSON, names
from controller_runtime.machinery.gojson import go_json
from controller_runtime.machinery.meta import is_time

from trainerctl.offline.problem import Path, Problem, kind_of

FIELDS: Final = {
    **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), "string"),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), "v1.Time"),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), "int64"),
    **dict.fromkeys(("labels", "annotations"), "map[string]string"),
    "ownerReferences": "[]v1.OwnerReference",
    "managedFields": "[]v1.ManagedFieldsEntry",
    "finalizers": "[]string",
}
"""The fields of metadata and their types in Go."""
_GO: Final = {"integer": "number", "boolean": "bool"}
_JSON: Final = {
    "string": "string",
    "int64": "integer",
    "v1.OwnerReference": "object",
    "v1.ManagedFieldsEntry": "object",
}
"""The JSON type of each Go type."""
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"


def unknown(data: Mapping[str, JSON]) -> list[Path]:
    """Return the unknown fields of an object's metadata."""
    metadata = data.get("metadata")
    return [("metadata", key) for key in metadata if key not in FIELDS] if isinstance(metadata, dict) else []


def undecodable(data: Mapping[str, JSON]) -> str | None:
    """Return the error of Go's decoder for the first metadata field with a wrong type, or None."""
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        return None
    for key, kind in FIELDS.items():
        value = metadata.get(key)
        if value is None:
            continue
        if kind == "v1.Time":
            if (problem := _not_a_time(value)) is not None:
                return problem
            continue
        held: Iterable[JSON] = [value]
        wanted = kind
        if kind == "map[string]string" and isinstance(value, dict):
            held, wanted = value.values(), "string"
        elif kind.startswith("[]") and isinstance(value, list):
            held, wanted = value, kind.removeprefix("[]")
        for each in held:
            if each is not None and kind_of(each) != _JSON.get(wanted):
                found = _GO.get(kind_of(each), kind_of(each))
                return (
                    f"json: cannot unmarshal {found} into Go struct field ObjectMeta.{key} of type {wanted}"
                )
    return None


def _not_a_time(value: JSON) -> str | None:
    """Return the error of Go's decoder if a value is not a time as in RFC 3339, otherwise None."""
    if not isinstance(value, str):
        found = _GO.get(kind_of(value), kind_of(value))
        return f"json: cannot unmarshal {found} into Go value of type string"
    if is_time(value):
        return None
    return f"parsing time {go_json(value)} as {go_json(_LAYOUT)}: it is not a time of this form"


def problems(data: Mapping[str, JSON]) -> Iterator[Problem]:
    """Yield the problems of an object's name, namespace, labels, annotations and finalizers."""
    meta = data.get("metadata") or {}
    name, prefix = meta.get("name"), meta.get("generateName")
    if prefix and (errors := names.is_dns1123_subdomain(prefix.removesuffix("-") + "x")):
        yield from _named(("metadata", "generateName"), prefix, errors)
    if not name and not prefix:
        yield Problem(("metadata", "name"), "Required value: name or generateName is required", grave=True)
    elif name:
        yield from _named(("metadata", "name"), name, names.is_dns1123_subdomain(name))
    if namespace := meta.get("namespace"):
        yield from _named(("metadata", "namespace"), namespace, names.is_dns1123_label(namespace))
    for key, value in (meta.get("labels") or {}).items():
        yield from _named(("metadata", "labels"), key, names.is_label_key(key))
        yield from _named(("metadata", "labels"), value, names.is_label_value(value or ""))
    for key in meta.get("annotations") or {}:
        yield from _named(("metadata", "annotations"), key, names.is_label_key(key.lower()))
    for each in meta.get("finalizers") or ():
        yield from _named(("metadata", "finalizers"), each or "", names.is_label_key(each or ""))


def _named(path: Path, value: str, errors: Iterable[str]) -> Iterator[Problem]:
    for error in errors:
        yield Problem(path, f"Invalid value: {go_json(value)}: {error}")
