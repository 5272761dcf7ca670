# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Generate CustomResourceDefinitions from models and their markers; used by generators, not at run time."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import types
import typing
from functools import cache
from typing import Any, Final

from pydantic.fields import FieldInfo

from . import kubernetes_schema as recorded
from .base import fields_of, wire_name
from .crd import CRD, UNSET, KindMarkers, Rule
from .kubernetes_schema import Schema
from .object import Object, ObjectMeta
from .quantity import CANONICAL

_NUMBERS: Final = {
    "format": "format",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "pattern": "pattern",
    "list_type": "x-kubernetes-list-type",
    "map_type": "x-kubernetes-map-type",
}
_SCALARS: Final[dict[object, str]] = {str: "string", int: "integer", bool: "boolean", float: "number"}
_API_VERSION_TEXT: Final = "The version of the schema this object is written in, such as group/version."
_KIND_TEXT: Final = "The kind of this object."


def custom_resource_definition(kind: type[Object]) -> Schema:
    """Return the CustomResourceDefinition of ``kind`` with its single version."""
    gvk, resource = kind.gvk, kind.resource
    if resource is None:
        raise ValueError(f"{gvk} has no plural name")
    markers: KindMarkers = getattr(kind, "crd_kind", KindMarkers())
    version: Schema = {
        "name": gvk.version,
        "schema": {"openAPIV3Schema": _root(kind, markers)},
        "served": True,
        "storage": True,
    }
    if markers.printer_columns:
        version["additionalPrinterColumns"] = [
            {
                key: value
                for key, value in (
                    ("description", column.description),
                    ("jsonPath", column.json_path),
                    ("name", column.name),
                    ("priority", column.priority),
                    ("type", column.type),
                )
                if value is not None
            }
            for column in markers.printer_columns
        ]
    if markers.status_subresource:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.group_resource},
        "spec": {
            "group": gvk.group,
            "names": {
                "kind": gvk.kind,
                "listKind": f"{gvk.kind}List",
                "plural": resource.plural,
                **({"shortNames": list(markers.short_names)} if markers.short_names else {}),
                "singular": gvk.kind.lower(),
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _root(kind: type[Object], markers: KindMarkers) -> Schema:
    schema = _struct(kind)
    schema.setdefault("properties", {}).update(
        {
            "apiVersion": {"description": _API_VERSION_TEXT, "type": "string"},
            "kind": {"description": _KIND_TEXT, "type": "string"},
            "metadata": {"type": "object"},
        }
    )
    _add_rules(schema, markers.rules)
    return schema


def _struct(model: type[Any]) -> Schema:
    """Return the schema of a struct: the recorded one for Kubernetes' structs, otherwise built from the model."""
    if model is ObjectMeta:
        return recorded.definition("meta.v1.ObjectMeta")
    name = model.__module__.removeprefix("controller_runtime.apis.") + "." + model.__name__
    if recorded.has_definition(name):
        return recorded.definition(name)
    schema: Schema = {"properties": {}, "type": "object"}
    if text := _class_text(model):
        schema["description"] = text
    texts = _field_texts(model)
    required = []
    for attribute, info in fields_of(model).items():
        wire = wire_name(attribute, info)
        each, needed = _field(info)
        if text := texts.get(attribute):
            each["description"] = text
        schema["properties"][wire] = each
        if needed:
            required.append(wire)
    if not schema["properties"]:
        del schema["properties"]
    if required:
        schema["required"] = sorted(required)
    if isinstance(marker := getattr(model, "crd", None), CRD):
        _constrain(schema, marker)
    return schema


def _field(info: FieldInfo) -> tuple[Schema, bool]:
    markers = [each for each in info.metadata if isinstance(each, CRD)]
    named = next((each.schema for each in markers if each.schema is not None), None)
    schema = _type(info.annotation, info.metadata, named)
    for marker in markers:
        _constrain(schema, marker)
    needed = next((each.required for each in markers if each.required is not None), info.default == "")
    return schema, needed


def _type(annotation: Any, metadata: typing.Iterable[object] = (), named: str | None = None) -> Schema:
    if CANONICAL in metadata:
        return recorded.definition("api.resource.Quantity")
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        schema = _type(arguments[0], arguments[1:], named)
        for marker in arguments[1:]:
            if isinstance(marker, CRD):
                _constrain(schema, marker)
        return schema
    if origin in (typing.Union, types.UnionType):
        present = [each for each in arguments if each is not type(None)]
        if set(present) == {int, str}:
            return recorded.definition("util.intstr.IntOrString")
        if len(present) != 1:
            raise TypeError(f"no schema for {annotation}")
        return _type(present[0], (), named)
    if origin is list:
        return {"items": _type(arguments[0], (), named), "type": "array"}
    if named is not None:
        return recorded.definition(named)
    if origin is dict:
        return {"additionalProperties": _type(arguments[1]), "type": "object"}
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    if annotation is Any:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return _struct(annotation)


def _constrain(schema: Schema, marker: CRD) -> None:
    for attribute, key in _NUMBERS.items():
        if (value := getattr(marker, attribute)) is not None:
            schema[key] = value
    if marker.default is not UNSET:
        schema["default"] = marker.default
    if marker.enum is not None:
        schema["enum"] = list(marker.enum)
    if marker.list_map_keys is not None:
        schema["x-kubernetes-list-map-keys"] = list(marker.list_map_keys)
    _add_rules(schema, marker.rules)


def _add_rules(schema: Schema, rules: tuple[Rule, ...]) -> None:
    if rules:
        held = schema.setdefault("x-kubernetes-validations", [])
        held.extend({"message": each.message, "rule": each.rule} for each in rules)


def _class_text(model: type[object]) -> str | None:
    text = inspect.getdoc(model)
    return None if text is None else _paragraphs(text)


def _field_texts(model: type[object]) -> dict[str, str]:
    """Return the strings below a class's fields, by field name."""
    body = _classes(model.__module__).get(model.__name__, [])
    return {
        node.target.id: _paragraphs(inspect.cleandoc(text.value.value))
        for node, text in itertools.pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph and remove code markup, because kubectl prints plain text."""
    paragraphs = (" ".join(part.split()) for part in text.replace("``", "").split("\n\n"))
    return "\n\n".join(paragraphs)
