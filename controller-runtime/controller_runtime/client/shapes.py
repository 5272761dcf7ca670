# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How a kind's lists and maps merge under server-side apply: by key, as a set, or as a whole.

A :class:`Shape` is the schema at one place of an object. The schema comes from a CustomResourceDefinition, or from a
model and its markers. Without markers, a list is replaced as a whole and a map merges field by field; only for
Kubernetes' own kinds, well-known field names also determine how a list merges.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from controller_runtime.apis.machinery import kubernetes_schema as recorded
from controller_runtime.apis.machinery.base import JSON, Struct, fields_of, wire_name
from controller_runtime.apis.machinery.crd import CRD

Schema = Mapping[str, JSON]

_LIST_TYPE: Final = "x-kubernetes-list-type"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_MAP_KEYS: Final = "x-kubernetes-list-map-keys"

_METADATA: Final[Schema] = {
    "properties": {
        "finalizers": {_LIST_TYPE: "set"},
        "ownerReferences": {_LIST_TYPE: "map", _MAP_KEYS: ["uid"]},
    }
}
_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "conditions": (("type",),),
    "containers": (("name",),),
    "initContainers": (("name",),),
    "ephemeralContainers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "volumeDevices": (("devicePath",),),
    "imagePullSecrets": (("name",),),
    "secrets": (("name",),),
    "schedulingGates": (("name",),),
    "resourceClaims": (("name",),),
    "claims": (("name",),),
    "hostAliases": (("ip",),),
    "podIPs": (("ip",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "webhooks": (("name",),),
}
"""Key fields of lists of Kubernetes' own kinds without a recorded schema."""

_ATOMIC: Final = frozenset(
    {"selector", "labelSelector", "nodeSelector", "secretKeyRef", "configMapKeyRef", "fieldRef"}
)
_DEFAULTS: Final[Mapping[str, str]] = {"protocol": "TCP"}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The schema of the value at one place of an object."""

    schema: Schema
    name: str = ""
    by_name: bool = False
    """Fall back on the field names of Kubernetes' own types."""
    _fields: dict[str, Shape] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """Shapes of declared fields that were asked for before."""
    _items: list[Shape] = dataclasses.field(default_factory=list, compare=False, repr=False)
    """The shape of items, once it was asked for."""

    @property
    def atomic(self) -> bool:
        """True if a map is replaced as a whole."""
        if (kind := self.schema.get(_MAP_TYPE)) is not None:
            return bool(kind == "atomic")
        return self.by_name and self.name in _ATOMIC

    @property
    def is_set(self) -> bool:
        """True if a list is a set of values."""
        return bool(self.schema.get(_LIST_TYPE) == "set")

    def keys(self, items: list[JSON]) -> tuple[str, ...]:
        """Return the key fields of a list that merges item by item; empty if the list is replaced as a whole."""
        for keys in self._alternatives():
            if items and all(isinstance(item, dict) and keys[0] in item for item in items):
                # Only a scalar identifies an item; without validation a key may have any type.
                plain = all(not isinstance(item.get(key), dict | list) for item in items for key in keys)
                return keys if plain else ()
        return ()

    def default(self, key: str) -> JSON:
        """Return the default of an item's key field."""
        properties = self.item.schema.get("properties") or {}
        return _resolved(properties.get(key) or {}).get("default", _DEFAULTS.get(key))

    def field(self, name: str) -> Shape:
        """Return the shape of a map's value."""
        known = self._fields.get(name)
        if known is not None:
            return known
        schema = (self.schema.get("properties") or {}).get(name)
        if schema is not None:
            found = self._fields[name] = Shape(_resolved(schema), name, self.by_name)
            return found
        schema = self.schema.get("additionalProperties")
        return Shape(_resolved(schema if isinstance(schema, Mapping) else {}), name, self.by_name)

    @property
    def item(self) -> Shape:
        """The shape of a list's items."""
        if not self._items:
            self._items.append(Shape(_resolved(self.schema.get("items") or {}), "", self.by_name))
        return self._items[0]

    def _alternatives(self) -> tuple[tuple[str, ...], ...]:
        kind = self.schema.get(_LIST_TYPE)
        if kind == "map":
            return (tuple(self.schema.get(_MAP_KEYS) or ()),)
        return _KEYS.get(self.name, ()) if kind is None and self.by_name else ()


def of_schema(schema: Schema, *, by_name: bool = False) -> Shape:
    """Return the shape of a kind with this schema and the standard schema of metadata."""
    return Shape(
        {**schema, "properties": {**(schema.get("properties") or {}), "metadata": _METADATA}}, "", by_name
    )


@lru_cache(maxsize=256)
def of_model(model: type[Struct], *, by_name: bool) -> Shape:
    """Return the shape of a kind from its model and the markers of its fields."""
    return of_schema(_struct(model), by_name=by_name)


def _resolved(schema: Schema) -> Schema:
    target = schema.get("$ref")
    return schema if target is None else recorded.bare_definition(target)


def _struct(model: type[Struct]) -> Schema:
    name = f"{model.__module__.removeprefix('controller_runtime.apis.')}.{model.__name__}"
    if recorded.has_definition(name):
        return {"$ref": name}
    properties = {}
    for attribute, info in fields_of(model).items():
        if attribute != "metadata":
            properties[wire_name(attribute, info)] = _marked(_type(info.annotation), info.metadata)
    return {"properties": properties}


def _type(annotation: object) -> Schema:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _marked(_type(arguments[0]), arguments[1:])
    if origin in (typing.Union, types.UnionType):
        present = [each for each in arguments if each is not type(None)]
        return _type(present[0]) if len(present) == 1 else {}
    if origin is list:
        return {"items": _type(arguments[0])}
    if origin is dict:
        return {"additionalProperties": _type(arguments[1])}
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return _struct(annotation)
    return {}


def _marked(schema: Schema, metadata: typing.Iterable[object]) -> Schema:
    for marker in metadata:
        if isinstance(marker, CRD):
            given = {
                _LIST_TYPE: marker.list_type,
                _MAP_TYPE: marker.map_type,
                _MAP_KEYS: marker.list_map_keys,
            }
            if "$ref" in schema and any(given.values()):
                schema = _resolved(schema)
            schema = {**schema, **{key: value for key, value in given.items() if value is not None}}
            if marker.schema is not None:
                named: Schema = {"$ref": marker.schema}
                schema = {**schema, "items": named} if "items" in schema else named
    return schema
