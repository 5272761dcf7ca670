# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The recorded OpenAPI schemas of Kubernetes' own kinds, and how lists and maps merge according to a schema.

``kubernetes_schema.json`` contains every kind that an API server serves. It was recorded from discovery and from the
documents below ``/openapi/v3``, without descriptions.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from .base import JSON
from .names import GVK

Schema = dict[str, JSON]

FILE: Final = Path(__file__).with_name("kubernetes_schema.json")
LIST_TYPE: Final = "x-kubernetes-list-type"
MAP_TYPE: Final = "x-kubernetes-map-type"
MAP_KEYS: Final = "x-kubernetes-list-map-keys"
PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
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

# A CRD generated from the Go types differs from the API server's schemas: a struct that embeds a reference is atomic
# as a whole, a default that names a Go constant is omitted, and conditions are validated.
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


class KnownKind(msgspec.Struct, frozen=True):
    """One of Kubernetes' own kinds."""

    definition: str
    """The name of its schema, such as ``core.v1.Pod``."""
    plural: str
    namespaced: bool
    status: bool
    """True if its status is a subresource."""


class _Record(msgspec.Struct, rename="camel"):
    kubernetes_version: str
    kinds: dict[str, dict[str, KnownKind]]
    """The kinds, by ``group/version`` and then by name."""
    definitions: dict[str, msgspec.Raw]


_PARTS: Final = ("claims", "events", "generated", "jobs", "namespaces", "nodes", "pods", "services", "tokens")
"""The modules beside ``v1`` whose classes ``v1`` exports."""


def definition(name: str) -> Schema:
    """Return a new schema of a struct, such as ``core.v1.EnvVar``, for use in a CRD: it contains no references.

    Raises:
        KeyError: the struct is not recorded.
    """
    if name in _FIXED:
        return copy.deepcopy(_FIXED[name])
    schema: Schema = _expand(_in_crd(name))
    return schema


@cache
def published(name: str) -> Schema:
    """Return the schema of a struct as the API server publishes it. The schema is shared and must not be changed.

    Each ``$ref`` in the schema is the name of another struct.

    Raises:
        KeyError: the struct is not recorded.
    """
    schema: Schema = msgspec.json.decode(_recorded().definitions[name])
    return schema


def has_definition(name: str) -> bool:
    """Return True if a struct is recorded."""
    return name in _FIXED or name in _recorded().definitions


def name_of(model: type[object]) -> str:
    """Return the name of a class in the recorded schema, such as ``core.v1.EnvVar``."""
    module = model.__module__.removeprefix("controller_runtime.apis.")
    for part in _PARTS:
        module = module.removesuffix(f".{part}") + ".v1" if module.endswith(f".{part}") else module
    return f"{'meta.v1' if module == _META else module}.{model.__name__}"


@cache
def kinds() -> Mapping[GVK, KnownKind]:
    """Return every recorded kind."""
    by_gvk: dict[GVK, KnownKind] = {}
    for group_version, by_name in _recorded().kinds.items():
        group, _, version = group_version.rpartition("/")
        by_gvk.update({GVK(group, version, name): kind for name, kind in by_name.items()})
    return by_gvk


def version() -> str:
    """Return the Kubernetes version of the record."""
    return _recorded().kubernetes_version


@cache
def _recorded() -> _Record:
    return msgspec.json.decode(FILE.read_bytes(), type=_Record)


def _in_crd(name: str) -> Schema:
    """Return the schema of a struct for use in a CRD, in which references are not replaced yet."""
    schema = copy.deepcopy(published(name))
    if name in _ATOMIC:
        schema[MAP_TYPE] = "atomic"
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
    return [_expand(child) for child in node] if isinstance(node, list) else node


_NOTHING: Final[Mapping[str, JSON]] = {}


class MergeSchema:
    """How the value of a field or an item merges, in server-side apply and in strategic merge patches.

    The rules are read from the value's schema: ``x-kubernetes-list-type``, ``x-kubernetes-list-map-keys`` and
    ``x-kubernetes-map-type`` for server-side apply, ``x-kubernetes-patch-strategy`` and
    ``x-kubernetes-patch-merge-key`` for strategic merge patches. Without these keys, lists are replaced and maps merge.
    """

    __slots__ = ("_fields", "_item", "_schema")

    def __init__(self, schema: Mapping[str, JSON]) -> None:
        self._schema = schema
        self._fields: dict[str, MergeSchema] = {}
        self._item: MergeSchema | None = None

    @property
    def schema(self) -> Mapping[str, JSON]:
        """The schema of the value, which must not be changed."""
        return self._schema

    @property
    def is_atomic(self) -> bool:
        """True if server-side apply replaces the map as a whole."""
        return bool(self._schema.get(MAP_TYPE) == "atomic")

    @property
    def is_set(self) -> bool:
        """True if the list is a set of values for server-side apply."""
        return bool(self._schema.get(LIST_TYPE) == "set")

    def keys(self, items: list[JSON]) -> tuple[str, ...]:
        """Return the fields by which server-side apply identifies ``items``; empty if it replaces the whole list."""
        if self._schema.get(LIST_TYPE) != "map" or not items:
            return ()
        keys = tuple(self._schema.get(MAP_KEYS) or ())
        for item in items:
            if not isinstance(item, dict) or keys[0] not in item:
                return ()
            # Only a scalar identifies an item; without validation a key may have any type.
            if any(isinstance(item.get(key), dict | list) for key in keys):
                return ()
        return keys

    def default(self, key: str) -> JSON:
        """Return the default of a key field of the list's items."""
        return self.item.field(key)._schema.get("default")

    @property
    def merges_in_patches(self) -> bool:
        """True if a strategic merge patch merges the list.

        Without a :attr:`patch_merge_key`, it merges the list as a set.
        """
        return "merge" in self._schema.get("x-kubernetes-patch-strategy", "").split(",")

    @property
    def patch_merge_key(self) -> str:
        """The field by which a strategic merge patch identifies the items of the list, or an empty string."""
        return str(self._schema.get("x-kubernetes-patch-merge-key", ""))

    @property
    def is_replaced_in_patches(self) -> bool:
        """True if a strategic merge patch replaces the map as a whole."""
        return "replace" in self._schema.get("x-kubernetes-patch-strategy", "").split(",")

    def field(self, name: str) -> MergeSchema:
        """Return the schema of a field of the map."""
        known = self._fields.get(name)
        if known is not None:
            return known
        schema = (self._schema.get("properties") or _NOTHING).get(name)
        if schema is not None:
            known = self._fields[name] = _at(schema)
            return known
        schema = self._schema.get("additionalProperties")
        return _at(schema) if isinstance(schema, Mapping) else UNKNOWN

    @property
    def item(self) -> MergeSchema:
        """The schema of the items of the list."""
        if self._item is None:
            self._item = _at(self._schema.get("items") or _NOTHING)
        return self._item


UNKNOWN: Final = MergeSchema(_NOTHING)
"""The schema of a field or an item about which nothing is known."""


@cache
def merge_schema(name: str) -> MergeSchema:
    """Return the merge rules of one of Kubernetes' own structs, such as ``core.v1.PodTemplateSpec``.

    Raises:
        KeyError: the struct is not recorded.
    """
    return MergeSchema(published(name))


def merge_schema_of_kind(gvk: GVK) -> MergeSchema | None:
    """Return the merge rules of a recorded kind; None for custom resources and kinds that are not recorded."""
    kind = kinds().get(gvk)
    return None if kind is None else merge_schema(kind.definition)


def merge_schema_of_crd(schema: Mapping[str, JSON]) -> MergeSchema:
    """Return the merge rules of a custom resource, from the ``openAPIV3Schema`` of its CustomResourceDefinition."""
    properties = {**(schema.get("properties") or _NOTHING), "metadata": {"$ref": "meta.v1.ObjectMeta"}}
    return MergeSchema({**schema, "properties": properties})


def _at(schema: Mapping[str, JSON]) -> MergeSchema:
    target = schema.get("$ref")
    if target is None:
        return MergeSchema(schema)
    if len(schema) == 1:
        return merge_schema(target)
    # Markers beside a reference take precedence over those of the referenced struct.
    return MergeSchema({**published(target), **schema})
