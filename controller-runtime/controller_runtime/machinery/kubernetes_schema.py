# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The schemas and resources of Kubernetes' own kinds as its API server publishes them, recorded beside this module.

``kubernetes_schema.json`` contains every kind that an API server serves, by its discovery and the documents below
``/openapi/v3``, without descriptions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from .base import JSON
from .gvk import GVK

Schema = dict[str, JSON]

FILE: Final = Path(__file__).with_suffix(".json")
_META: Final = "controller_runtime.machinery.meta"
_NOT_IN_CRDS: Final = ("x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy")

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
"""Metadata inside a spec: the API server keeps the fields listed here and prunes all others."""

_FIXED: Final[dict[str, Schema]] = {
    "api.resource.Quantity": QUANTITY,
    "util.intstr.IntOrString": INT_OR_STRING,
    "meta.v1.ObjectMeta": OBJECT_META,
    "meta.v1.Time": {"format": "date-time", "type": "string"},
}

# Differences of a CRD generated from the Go types to the API server's schemas: an embedded reference makes the
# whole struct atomic, a default that names a constant is omitted, and conditions are validated.
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
    ("batch.v1.PodFailurePolicyOnPodConditionsPattern", "status"),
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


class Kind(msgspec.Struct, frozen=True):
    """One of Kubernetes' own kinds."""

    definition: str
    """The name of its schema, such as ``core.v1.Pod``."""
    plural: str
    namespaced: bool
    status: bool
    """Its status is a subresource."""


class _Record(msgspec.Struct, rename="camel"):
    kubernetes_version: str
    kinds: dict[str, dict[str, Kind]]
    """By group and version, and by kind."""
    definitions: dict[str, msgspec.Raw]


def definition(name: str) -> Schema:
    """Return a new, self-contained schema for CustomResourceDefinitions of a struct, such as ``core.v1.EnvVar``.

    Raises:
        KeyError: the struct is not recorded.
    """
    if name in _FIXED:
        return copy.deepcopy(_FIXED[name])
    schema: Schema = _expand(_in_crd(name))
    return schema


@cache
def published(name: str) -> Schema:
    """Return the schema of a struct as published; references are names. It is shared and must not be changed.

    Raises:
        KeyError: the struct is not recorded.
    """
    schema: Schema = msgspec.json.decode(_recorded().definitions[name])
    return schema


def has_definition(name: str) -> bool:
    """Return True if a struct is recorded."""
    return name in _FIXED or name in _recorded().definitions


def name_of(model: type[object]) -> str:
    """Return the name that the struct of a class has in the record, such as ``core.v1.EnvVar``, if it is one."""
    module = model.__module__.removeprefix("controller_runtime.apis.")
    return f"{'meta.v1' if module == _META else module}.{model.__name__}"


@cache
def kinds() -> Mapping[GVK, Kind]:
    """Return every recorded kind."""
    found: dict[GVK, Kind] = {}
    for group_version, by_name in _recorded().kinds.items():
        group, _, version = group_version.rpartition("/")
        found.update({GVK(group, version, name): kind for name, kind in by_name.items()})
    return found


def version() -> str:
    """Return the Kubernetes version of the record."""
    return _recorded().kubernetes_version


@cache
def _recorded() -> _Record:
    return msgspec.json.decode(FILE.read_bytes(), type=_Record)


def _in_crd(name: str) -> Schema:
    """Return the schema of a struct as it is in a CustomResourceDefinition, with references."""
    schema = copy.deepcopy(published(name))
    if name in _ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    for struct, field in _WITHOUT_DEFAULTS:
        if struct == name:
            schema["properties"][field].pop("default", None)
    if name == "meta.v1.Condition":
        for field, constraints in _CONDITION.items():
            schema["properties"][field].update(constraints)
    return schema


def _expand(node: JSON) -> JSON:
    if isinstance(node, dict):
        if (target := node.get("$ref")) is not None:
            return definition(target)
        return {key: _expand(value) for key, value in node.items() if key not in _NOT_IN_CRDS}
    return [_expand(each) for each in node] if isinstance(node, list) else node
