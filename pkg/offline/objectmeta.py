# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Validation of an object's metadata, with the API server's messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller_runtime.apis.machinery import names
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gojson import go_json

from pkg.offline.problem import Path, Problem, kind_of

_FIELDS: Final = {
    **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), "string"),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), ""),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), ""),
    **dict.fromkeys(("labels", "annotations"), "map[string]string"),
    **dict.fromkeys(("ownerReferences", "managedFields"), ""),
    "finalizers": "[]string",
}
_GO: Final = {"integer": "number", "boolean": "bool"}


def unknown(data: Mapping[str, JSON]) -> list[Path]:
    """Return the unknown fields of an object's metadata."""
    metadata = data.get("metadata")
    return [("metadata", key) for key in metadata if key not in _FIELDS] if isinstance(metadata, dict) else []


def undecodable(data: Mapping[str, JSON]) -> str | None:
    """Return the Go decoder's error for metadata of a wrong type."""
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        return None
    for key, kind in _FIELDS.items():
        value = metadata.get(key)
        if value is None or not kind:
            continue
        held: Iterable[JSON] = [value]
        wanted = kind
        if kind == "map[string]string" and isinstance(value, dict):
            held, wanted = value.values(), "string"
        elif kind == "[]string" and isinstance(value, list):
            held, wanted = value, "string"
        for each in held:
            if wanted != "string" or not (each is None or isinstance(each, str)):
                found = _GO.get(kind_of(each), kind_of(each))
                return (
                    f"json: cannot unmarshal {found} into Go struct field ObjectMeta.{key} of type {wanted}"
                )
    return None


def problems(data: Mapping[str, JSON]) -> Iterator[Problem]:
    """Yield the problems of an object's name, labels, annotations and finalizers."""
    meta = data.get("metadata") or {}
    name, prefix = meta.get("name"), meta.get("generateName")
    if prefix and (errors := names.is_dns1123_subdomain(prefix.removesuffix("-") + "x")):
        yield from _named(("metadata", "generateName"), prefix, errors)
    if not name and not prefix:
        yield Problem(("metadata", "name"), "Required value: name or generateName is required", grave=True)
    elif name:
        yield from _named(("metadata", "name"), name, names.is_dns1123_subdomain(name))
    for key, value in (meta.get("labels") or {}).items():
        yield from _named(("metadata", "labels"), key, _key_errors(key))
        yield from _named(("metadata", "labels"), value, names.is_label_value(value or ""))
    for key in meta.get("annotations") or {}:
        yield from _named(("metadata", "annotations"), key, _key_errors(key.lower()))
    for each in meta.get("finalizers") or ():
        yield from _named(("metadata", "finalizers"), each, _key_errors(each))


def _key_errors(key: str) -> list[str]:
    # The server of today has other words for these keys than for other qualified names.
    return [error.replace("a qualified name", "a valid label key") for error in names.is_qualified_name(key)]


def _named(path: Path, value: str, errors: Iterable[str]) -> Iterator[Problem]:
    for error in errors:
        yield Problem(path, f"Invalid value: {go_json(value)}: {error}")
