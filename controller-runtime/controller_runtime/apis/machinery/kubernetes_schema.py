# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The schemas of Kubernetes' own structs, as its API server publishes them, recorded beside this module.

``kubernetes_schema.json`` is a fact, written by :func:`record` from the documents an API server gives out below
``/openapi/v3``: the definitions that our kinds are made of, without descriptions, in the form that a
CustomResourceDefinition takes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]

FILE: Final = Path(__file__).with_suffix(".json")
_PREFIXES: Final = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.api.")
_DROPPED: Final = (
    "description",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-unions",
)

QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}
INT_OR_STRING: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_STRINGS: Final[Schema] = {"additionalProperties": {"type": "string"}, "type": "object"}
OBJECT_META: Final[Schema] = {
    "properties": {
        "annotations": _STRINGS,
        "finalizers": {"items": {"type": "string"}, "type": "array"},
        "labels": _STRINGS,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
    "type": "object",
}
"""Metadata inside a spec: the API server keeps what is written here, and prunes the rest."""

_FIXED: Final[dict[str, Schema]] = {
    "api.resource.Quantity": QUANTITY,
    "util.intstr.IntOrString": INT_OR_STRING,
    "meta.v1.ObjectMeta": OBJECT_META,
    "meta.v1.Time": {"format": "date-time", "type": "string"},
}

# What a CRD made from the Go types says otherwise than the API server: an embedded reference makes the whole
# struct atomic, a default that names a constant is none, and conditions are validated.
_ATOMIC: Final = (
    "core.v1.ConfigMapEnvSource",
    "core.v1.ConfigMapProjection",
    "core.v1.ConfigMapVolumeSource",
    "core.v1.SecretEnvSource",
    "core.v1.SecretProjection",
)
_WITHOUT_DEFAULTS: Final = (
    ("core.v1.AzureDiskVolumeSource", "cachingMode"),
    ("core.v1.AzureDiskVolumeSource", "kind"),
)
_CONDITION: Final[dict[str, Schema]] = {
    "message": {"maxLength": 32768},
    "observedGeneration": {"minimum": 0},
    "reason": {"maxLength": 1024, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    "status": {"enum": ["True", "False", "Unknown"]},
    "type": {
        "maxLength": 316,
        "pattern": (
            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        ),
    },
}


def definition(name: str) -> Schema:
    """Return a fresh, self-contained schema of a recorded struct, such as ``core.v1.EnvVar``.

    Raises:
        KeyError: it is not recorded.
    """
    if name in _FIXED:
        return copy.deepcopy(_FIXED[name])
    schema: Schema = _expand(_recorded()["definitions"][name])
    return schema


def bare_definition(name: str) -> Schema:
    """Return a recorded struct's schema with its references left in place; it is shared and must not be changed.

    Raises:
        KeyError: it is not recorded.
    """
    if name in _FIXED:
        return _FIXED[name]
    schema: Schema = _recorded()["definitions"][name]
    return schema


def has_definition(name: str) -> bool:
    """Say whether a struct is recorded."""
    return name in _FIXED or name in _recorded()["definitions"]


def version() -> str:
    """Return the Kubernetes version that the record was taken from."""
    return str(_recorded()["kubernetesVersion"])


@cache
def _recorded() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(FILE.read_text())
    definitions = recorded["definitions"]
    for name in _ATOMIC:
        definitions[name]["x-kubernetes-map-type"] = "atomic"
    for name, field in _WITHOUT_DEFAULTS:
        definitions[name]["properties"][field].pop("default", None)
    for field, constraints in _CONDITION.items():
        definitions["meta.v1.Condition"]["properties"][field].update(constraints)
    return recorded


def _expand(node: Any) -> Any:
    if isinstance(node, dict):
        if (target := node.get("$ref")) is not None:
            return {**definition(target), **{key: value for key, value in node.items() if key != "$ref"}}
        return {key: _expand(value) for key, value in node.items()}
    return [_expand(each) for each in node] if isinstance(node, list) else node


def record(documents: Iterable[Mapping[str, Any]], roots: Iterable[str], kubernetes_version: str) -> str:
    """Return the record's text: the definitions that ``roots`` need, out of OpenAPI v3 documents.

    Raises:
        KeyError: a definition is in none of the documents.
    """
    published: dict[str, Any] = {}
    for document in documents:
        for name, schema in document["components"]["schemas"].items():
            published[_short(name)] = schema
    definitions: dict[str, Schema] = {}
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in definitions or name in _FIXED:
            continue
        definitions[name] = _normal(published[name])
        pending.extend(_references(definitions[name]))
    held = {"kubernetesVersion": kubernetes_version, "definitions": definitions}
    return json.dumps(held, sort_keys=True, indent=1) + "\n"


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _normal(schema: Mapping[str, Any]) -> Schema:
    """Return a published schema in the CRD's form: bare references, and defaults only where they are meant.

    The API server publishes Go's zero values as defaults of what is required, of items and of structs.
    """
    result: Schema = {key: value for key, value in schema.items() if key not in _DROPPED}
    for wrapped in result.pop("allOf", ()):
        result.update(wrapped)
    if "$ref" in result:
        return {"$ref": _short(result["$ref"].rpartition("/")[2])}
    if "properties" in result:
        required = result.get("required", ())
        result["properties"] = {
            name: _without_default(_normal(each)) if name in required else _normal(each)
            for name, each in result["properties"].items()
        }
        if required:
            result["required"] = sorted(required)
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _without_default(_normal(result[key]))
    return result


def _without_default(schema: Schema) -> Schema:
    if schema.get("default") in ("", 0, {}):
        schema.pop("default")
    return schema
