# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How the lists and maps of an object merge, in server-side apply and in strategic merge patches.

The API server publishes it in its OpenAPI documents: ``x-kubernetes-list-type`` and its relatives for server-side
apply, ``x-kubernetes-patch-strategy`` and ``x-kubernetes-patch-merge-key`` for strategic merge patches. Kubernetes' own
kinds have it from the record in :mod:`.kubernetes_schema`; custom resources from their CustomResourceDefinition, or
from a model and its markers.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Final

from . import kubernetes_schema
from .base import JSON, Struct, fields_of, wire_name
from .crd import CRD
from .gvk import GVK

Schema = Mapping[str, JSON]

_LIST_TYPE: Final = "x-kubernetes-list-type"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
_NOTHING: Final[Schema] = {}


class MergeSchema:
    """The OpenAPI schema at one place of an object. Without markers, lists are replaced and maps merge."""

    __slots__ = ("_fields", "_item", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields: dict[str, MergeSchema] = {}
        self._item: MergeSchema | None = None

    @property
    def is_atomic(self) -> bool:
        """True if server-side apply replaces the map as a whole."""
        return bool(self._schema.get(_MAP_TYPE) == "atomic")

    @property
    def is_set(self) -> bool:
        """True if the list is a set of values for server-side apply."""
        return bool(self._schema.get(_LIST_TYPE) == "set")

    def keys(self, items: list[JSON]) -> tuple[str, ...]:
        """Return the fields by which server-side apply identifies ``items``; empty if it replaces the list."""
        if self._schema.get(_LIST_TYPE) != "map" or not items:
            return ()
        keys = tuple(self._schema.get(_MAP_KEYS) or ())
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
        """True if a strategic merge patch merges the list, by :attr:`patch_merge_key` or, without one, as a set."""
        return "merge" in self._schema.get("x-kubernetes-patch-strategy", "").split(",")

    @property
    def patch_merge_key(self) -> str:
        """The field by which a strategic merge patch identifies the items of the list; empty if it has none."""
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
            found = self._fields[name] = _at(schema)
            return found
        schema = self._schema.get("additionalProperties")
        return _at(schema) if isinstance(schema, Mapping) else UNKNOWN

    @property
    def item(self) -> MergeSchema:
        """The schema of the items of the list."""
        if self._item is None:
            self._item = _at(self._schema.get("items") or _NOTHING)
        return self._item


UNKNOWN: Final = MergeSchema(_NOTHING)
"""The schema of a place of which nothing is known."""


@cache
def recorded(name: str) -> MergeSchema:
    """Return the schema of one of Kubernetes' own structs, such as ``core.v1.PodTemplateSpec``.

    Raises:
        KeyError: it is not recorded.
    """
    return MergeSchema(kubernetes_schema.published(name))


def of_kubernetes(gvk: GVK) -> MergeSchema | None:
    """Return the schema of one of Kubernetes' own kinds; None for custom resources and kinds that are not recorded."""
    kind = kubernetes_schema.kinds().get(gvk)
    return None if kind is None else recorded(kind.definition)


def of_crd(schema: Schema) -> MergeSchema:
    """Return the schema of a custom resource by the ``openAPIV3Schema`` of its CustomResourceDefinition."""
    properties = {**(schema.get("properties") or _NOTHING), "metadata": {"$ref": "meta.v1.ObjectMeta"}}
    return MergeSchema({**schema, "properties": properties})


@lru_cache(maxsize=256)
def of_model(model: type[Struct]) -> MergeSchema:
    """Return the schema of a custom resource by its model and the markers of the fields."""
    return of_crd(_struct(model))


def _at(schema: Schema) -> MergeSchema:
    target = schema.get("$ref")
    if target is None:
        return MergeSchema(schema)
    if len(schema) == 1:
        return recorded(target)
    # Markers beside a reference count before those of what it refers to.
    return MergeSchema({**kubernetes_schema.published(target), **schema})


def _struct(model: type[Struct]) -> Schema:
    name = kubernetes_schema.name_of(model)
    if kubernetes_schema.has_definition(name):
        return _in_crd(name)
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


def _marked(schema: Schema, metadata: Iterable[object]) -> Schema:
    for marker in metadata:
        if isinstance(marker, CRD):
            given = {
                _LIST_TYPE: marker.list_type,
                _MAP_TYPE: marker.map_type,
                _MAP_KEYS: marker.list_map_keys,
            }
            schema = {**schema, **{key: value for key, value in given.items() if value is not None}}
            if marker.schema is not None:
                named = _in_crd(marker.schema)
                schema = {**schema, "items": named} if "items" in schema else named
    return schema


@cache
def _in_crd(name: str) -> Schema:
    return kubernetes_schema.definition(name)
