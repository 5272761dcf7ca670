# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions from models and their markers.

Markers declare properties that a Python type cannot express, such as a minimum. Write the marker of a field into its
type, ``Annotated[int | None, CRD(minimum=0)]``. A struct has its marker in ``crd: ClassVar = CRD(...)``, and a kind in
``crd_kind: ClassVar = KindMarkers(...)``. Markers do not change how objects are decoded. A field's description is the
string below it.
"""

from __future__ import annotations

import ast
import contextlib
import decimal
import importlib
import inspect
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
import pydantic
from pydantic import PlainSerializer, TypeAdapter, WrapSerializer
from pydantic.fields import ComputedFieldInfo, FieldInfo
from pydantic_core import PydanticUndefined

from . import field, openapi
from .base import JSON, Struct, computed_wire_names, fields_of, wire_name
from .meta import is_time
from .object import Object, PartialObjectMetadata, Unstructured
from .openapi import Schema
from .quantity import CANONICAL


class _Unset:
    """Distinguishes ``default=None`` from no default."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


class Rule(msgspec.Struct, frozen=True):
    """A CEL validation rule, and the message that the API server returns if an object violates it."""

    rule: str
    message: str


class CRD(msgspec.Struct, frozen=True, kw_only=True):
    """Constraints of a field or a struct; a constraint that is None is omitted.

    The constraints of a list or a map apply to the list or map itself. For constraints on the items, annotate the type
    of the items. If the model declares a field as plain JSON, ``schema`` is the name of a recorded definition, such as
    ``core.v1.EnvVar``. It describes the field's value or, if the value is a list, each item.
    """

    default: object = UNSET
    enum: tuple[str, ...] | None = None
    format: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    pattern: str | None = None
    list_type: Literal["atomic", "map", "set"] | None = None
    list_map_keys: tuple[str, ...] | None = None
    map_type: Literal["atomic", "granular"] | None = None
    rules: tuple[Rule, ...] = ()
    required: bool | None = None
    """If None, a field is required if it has no default, or if its default cannot be made because a field inside it is
    required."""
    schema: str | None = None

    def __post_init__(self) -> None:
        """Find mistakes that would otherwise get into the CustomResourceDefinition unnoticed.

        Raises:
            TypeError: a value is not valid; its name is in the message.
        """
        if self.list_type not in (None, "atomic", "map", "set"):
            raise TypeError(f"list_type must be atomic, map or set, not {self.list_type}")
        if isinstance(self.list_map_keys, str) or bool(self.list_map_keys) != (self.list_type == "map"):
            raise TypeError("list_map_keys must be a tuple of names, given with list_type map")
        if not isinstance(self.rules, tuple) or not all(isinstance(each, Rule) for each in self.rules):
            raise TypeError("rules must be a tuple of Rule(rule, message)")


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``."""

    name: str
    type: str
    json_path: str
    description: str | None = None
    priority: int | None = None


class KindMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of the kind as a whole in a CustomResourceDefinition."""

    printer_columns: tuple[PrinterColumn, ...] = ()
    status_subresource: bool = False
    short_names: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


Int32 = Annotated[int, pydantic.Field(ge=-(1 << 31), le=(1 << 31) - 1), CRD(format="int32")]
"""An integer that fits into 32 bits. The class and the API server refuse others, which typed Go clients cannot read."""
Int64 = Annotated[int, pydantic.Field(ge=-(1 << 63), le=(1 << 63) - 1), CRD(format="int64")]
"""An integer that fits into 64 bits."""

ATOMIC: Final = CRD(list_type="atomic")
MAP_BY_NAME: Final = CRD(list_type="map", list_map_keys=("name",))
MAP_BY_TYPE: Final = CRD(list_type="map", list_map_keys=("type",))


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
    "list_type": openapi.LIST_TYPE,
    "map_type": openapi.MAP_TYPE,
}
_SCALARS: Final[dict[object, str]] = {str: "string", int: "integer", bool: "boolean", float: "number"}
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "array": list[Any],
    "object": dict[str, Any],
}
_BOUNDS: Final = frozenset(
    {
        *("minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "format", "enum"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "description"),
    }
)
_OF_64_BITS: Final = (("minimum", -(1 << 63)), ("maximum", (1 << 63) - 1))
_FORMATS: Final = frozenset({"date", "date-time", "uuid", "email", "uri", "ipv4", "ipv6", "password"})
"""Formats that the API server checks and interprets in the same way as pydantic."""
_TEXT_ONLY: Final = (Rule("self == self", "must be a string"),)
"""A rule for strings with a format. Without a rule that reads the value, the API server would also accept a list."""
_NULL: Final = {"type": "null"}
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
_DECIMAL: Final = {"type": "string", "pattern": r"^[+-]?[0-9]+(\.[0-9]+)?$"}
_API_VERSION_TEXT: Final = "The version of the schema this object is written in, such as group/version."
_KIND_TEXT: Final = "The kind of this object."


class _NoSchemaError(TypeError):
    """A type cannot be expressed as a structural schema; the message has the reason."""


def custom_resource_definition(kind: type[Object]) -> Schema:
    """Return the CustomResourceDefinition of ``kind`` with its single version.

    Types, bounds and required fields come from the model. Defaults come only from markers. Defaults in the model are
    left out, because the API server would write them into the objects.

    Raises:
        TypeError: ``kind`` is not a subclass of Object that declares a kind, or the type of a field has no structural
            schema. The message contains the class and the field.
        ValueError: ``kind`` has no plural name.
    """
    if not (isinstance(kind, type) and issubclass(kind, Object) and hasattr(kind, "gvk")):
        shown = kind.__name__ if isinstance(kind, type) else f"an instance of {type(kind).__name__}"
        raise TypeError(f"{shown} is not a kind: a subclass of Object with group, version and plural")
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


def _struct(model: type[Struct], above: tuple[type[Struct], ...] = ()) -> Schema:
    """Return the recorded schema of a Kubernetes struct, or build the schema of any other struct from its model."""
    if model in above:
        raise _NoSchemaError(f"{model.__name__} contains itself")
    name = openapi.name_of(model)
    if openapi.has_definition(name):
        return openapi.definition(name)
    schema: Schema = {"properties": {}, "type": "object"}
    if text := _class_text(model):
        schema["description"] = text
    texts = _field_texts(model)
    required = []
    for attribute, info in fields_of(model).items():
        if info.exclude:  # the field is not written
            continue
        wire = wire_name(attribute, info)
        with _named_in_errors(model, attribute):
            each, needed = _field(attribute, info, (*above, model))
        if text := texts.get(attribute) or info.description:
            each["description"] = text
        if wire in schema["properties"]:
            raise TypeError(f"{model.__name__}.{attribute} has the name {wire} in JSON, like another field")
        schema["properties"][wire] = each
        if needed:
            required.append(wire)
    for attribute, wire in computed_wire_names(model).items():
        computed = model.model_computed_fields[attribute]
        with _named_in_errors(model, attribute):
            each = _type(_returned(_getter(computed), computed.return_type), (*above, model))
        if computed.description:
            each["description"] = _paragraphs(computed.description)
        schema["properties"][wire] = each
    if not schema["properties"]:
        del schema["properties"]
    if required:
        schema["required"] = sorted(required)
    if isinstance(marker := getattr(model, "crd", None), CRD):
        _mark(schema, marker)
    return schema


@contextlib.contextmanager
def _named_in_errors(model: type[Struct], attribute: str) -> Iterator[None]:
    try:
        yield
    except (_NoSchemaError, pydantic.PydanticUserError) as error:
        raise TypeError(f"{model.__name__}.{attribute} has no structural schema: {error}") from error


def _field(attribute: str, info: FieldInfo, above: tuple[type[Struct], ...]) -> tuple[Schema, bool]:
    markers = [each for each in info.metadata if isinstance(each, CRD)]
    named = next((each.schema for each in markers if each.schema is not None), None)
    decorators = above[-1].__pydantic_decorators__.field_serializers.values()
    writers = [each for each in decorators if {attribute, "*"} & {*each.info.fields}]
    if writers:
        schema = _written(writers[-1].func, writers[-1].info.return_type, above, info.metadata)
    else:
        schema = _annotated(info.annotation, above, info.metadata, named)
    needed = next((each.required for each in markers if each.required is not None), None)
    return schema, _has_no_default(info) if needed is None else needed


def _has_no_default(info: FieldInfo) -> bool:
    """Return True if an object must contain the field.

    This includes a struct whose default factory fails, because a field of the struct is required.
    """
    if info.is_required() or info.default_factory is None:
        return info.is_required()
    try:
        info.get_default(call_default_factory=True, validated_data={})
    except pydantic.ValidationError:
        return True
    return False


def _annotated(
    annotation: Any, above: tuple[type[Struct], ...], metadata: Iterable[object], named: str | None
) -> Schema:
    """Return the schema of a type with the constraints, markers and serializers in ``metadata``."""
    writers = [each for each in metadata if isinstance(each, PlainSerializer | WrapSerializer)]
    if writers:
        return _written(writers[-1].func, writers[-1].return_type, above, metadata)
    quantity = CANONICAL in metadata
    schema = openapi.definition("api.resource.Quantity") if quantity else _type(annotation, above, named)
    _constrain(schema, metadata)
    return schema


def _written(
    function: Any, declared: object, above: tuple[type[Struct], ...], metadata: Iterable[object]
) -> Schema:
    """Return the schema of a serializer's output, with the field's CRD markers.

    Pydantic's bounds are left out: they apply to the value before it is serialized.
    """
    schema = _type(_returned(function, declared), above)
    _constrain(schema, [each for each in metadata if isinstance(each, CRD)])
    return schema


def _returned(function: Any, declared: object) -> object:
    """Return the type that a serializer or a computed field writes.

    Raises:
        _NoSchemaError: the type is not declared.
    """
    if declared is not PydanticUndefined:
        return declared
    if isinstance(function, type):
        return function
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    if "return" not in hints:
        raise _NoSchemaError("the function that writes it has no return type")
    return hints["return"]


def _getter(computed: ComputedFieldInfo) -> object:
    held: Any = computed.wrapped_property
    return held.fget if isinstance(held, property) else held.func


def _item(annotation: Any, above: tuple[type[Struct], ...], named: str | None = None) -> Schema:
    """Return the schema of a list's item or a map's value.

    If the type includes None, the schema is nullable. In lists and maps, None is written as null; a field that is None
    is not written.
    """
    schema = _type(annotation, above, named)
    return _nullable(schema) if _has_none(annotation) else schema


def _has_none(annotation: Any) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _has_none(arguments[0])
    return origin in (typing.Union, types.UnionType) and type(None) in arguments


def _nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        raise _NoSchemaError("the API server does not accept null as one of the values of an enum")
    return {**schema, "nullable": True}


def _type(annotation: Any, above: tuple[type[Struct], ...], named: str | None = None) -> Schema:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(arguments[0], above, arguments[1:], named)
    if origin in (typing.Union, types.UnionType):
        present = [each for each in arguments if each is not type(None)]
        if set(present) == {int, str}:
            return openapi.definition("util.intstr.IntOrString")
        if len(present) != 1:
            raise _NoSchemaError(
                f"{annotation} is a choice of several types; declare an optional field for each"
            )
        return _type(present[0], above, named)
    if origin is list:
        return {"items": _item(arguments[0], above, named), "type": "array"}
    if named is not None:
        return openapi.definition(named)
    if origin is dict:
        if arguments[0] is not str:
            raise _NoSchemaError("the keys of a map must be strings without constraints")
        values = _item(arguments[1], above)
        return {"type": "object", **(values if values == _ANYTHING else {"additionalProperties": values})}
    return _without_parts(annotation, above)


def _without_parts(annotation: Any, above: tuple[type[Struct], ...]) -> Schema:
    """Return the schema of a class, a NewType, or another type that pydantic knows."""
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    if annotation is decimal.Decimal:
        return dict(_DECIMAL)
    if supertype := getattr(annotation, "__supertype__", None):  # a NewType
        return _type(supertype, above)
    if isinstance(annotation, type) and issubclass(annotation, Unstructured | PartialObjectMetadata):
        return {"type": "object", **_ANYTHING, "x-kubernetes-embedded-resource": True}
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        schema = _struct(annotation, above)
        return schema | _ANYTHING if annotation.accepts_unknown_fields else schema
    # The settings of the struct around typed dicts and dataclasses determine the names of their fields in JSON.
    holder = pydantic.create_model("Holder", __config__=above[-1].model_config, value=(annotation, ...))
    schema = holder.model_json_schema()
    return _structural(schema["properties"]["value"], schema.get("$defs", {}))


def _structural(schema: Schema, definitions: Mapping[str, Schema], above: tuple[str, ...] = ()) -> Schema:
    """Convert pydantic's JSON schema to the form that the API server accepts: no references, and one type per value.

    Raises:
        _NoSchemaError: the schema cannot be expressed in this form.
    """
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name in above:
            raise _NoSchemaError(f"{name} contains itself")
        return _structural(definitions[name], definitions, (*above, name))
    if choices := schema.get("anyOf", schema.get("oneOf")):
        present = [each for each in choices if each != _NULL]
        if len(present) != 1:
            raise _NoSchemaError("it is a choice of several types")
        return _structural(present[0], definitions, above)
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    if "enum" in schema and "type" not in schema:
        raise _NoSchemaError(f"the values {schema['enum']} have several types")
    if "prefixItems" in schema:
        raise _NoSchemaError("each item of a tuple has its own schema")
    if (kind := schema.get("type")) is None:
        return dict(_ANYTHING)
    if (form := schema.get("format")) is not None and form not in _FORMATS:
        raise _NoSchemaError(f"the API server does not check the format {form} as Python does")
    made = {"type": kind, **_bounds(schema)}
    if form is not None:
        _add_rules(made, _TEXT_ONLY)
    if kind == "array":
        made.update(_array(schema, definitions, above))
    elif kind == "object":
        made.update(_object(schema, definitions, above))
    return made


def _array(schema: Schema, definitions: Mapping[str, Schema], above: tuple[str, ...]) -> Schema:
    """Return the keys with which a structural schema describes the items of a list."""
    items = _structural_item(schema.get("items", {}), definitions, above)
    if not schema.get("uniqueItems"):
        return {"items": items}
    if "nullable" in items:
        raise _NoSchemaError("the API server does not accept null in a set")
    return {"items": items, openapi.LIST_TYPE: "set"}


def _structural_item(schema: Schema, definitions: Mapping[str, Schema], above: tuple[str, ...]) -> Schema:
    made = _structural(schema, definitions, above)
    return _nullable(made) if _NULL in schema.get("anyOf", ()) else made


def _object(schema: Schema, definitions: Mapping[str, Schema], above: tuple[str, ...]) -> Schema:
    """Return the keys with which a structural schema describes the fields of an object or the values of a map."""
    if "properties" not in schema:
        values = schema.get("additionalProperties", True)
        if not isinstance(values, dict):
            return dict(_ANYTHING)
        return {"additionalProperties": _structural_item(values, definitions, above)}
    fields = schema["properties"].items()
    made: Schema = {"properties": {name: _structural(each, definitions, above) for name, each in fields}}
    if needed := schema.get("required"):
        made["required"] = sorted(needed)
    return made


def _bounds(schema: Schema) -> Schema:
    bounds = {key: value for key, value in schema.items() if key in _BOUNDS}
    for key, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in schema:
            bounds[key], bounds[exclusive] = schema[exclusive], True
    # The API server refuses integers beyond 64 bits itself, and it would round these bounds.
    return {key: value for key, value in bounds.items() if (key, value) not in _OF_64_BITS}


def _constrain(schema: Schema, metadata: Iterable[object]) -> None:
    """Add a field's constraints to ``schema``: CRD markers and pydantic's constraints, such as ``Field(ge=1)``."""
    others = [each for each in metadata if not isinstance(each, CRD)]
    if others and (known := _TYPES.get(schema.get("type", ""))) is not None:
        adapted: Any = Annotated[(known, *others)]
        schema.update(_bounds(TypeAdapter(adapted).json_schema()))
    for each in metadata:
        if isinstance(each, CRD):
            _mark(schema, each)


def _mark(schema: Schema, marker: CRD) -> None:
    for attribute, key in _NUMBERS.items():
        if (value := getattr(marker, attribute)) is not None:
            schema[key] = value
    if marker.default is not UNSET:
        schema["default"] = marker.default
    if marker.enum is not None:
        schema["enum"] = list(marker.enum)
    if marker.list_map_keys is not None:
        schema[openapi.MAP_KEYS] = list(marker.list_map_keys)
    _add_rules(schema, marker.rules)


def _add_rules(schema: Schema, rules: tuple[Rule, ...]) -> None:
    if rules:
        held = schema.setdefault("x-kubernetes-validations", [])
        held.extend({"message": each.message, "rule": each.rule} for each in rules)


def _class_text(model: type[object]) -> str | None:
    text = vars(model).get("__doc__")  # not an inherited docstring
    return None if text is None else _paragraphs(inspect.cleandoc(text))


def _field_texts(model: type[object]) -> dict[str, str]:
    """Return the docstring below each field of a class, by field name."""
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
    """Return the statements of each class in a module; empty if the module has no source file, as in a notebook."""
    try:
        tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    except (ImportError, OSError, TypeError):
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph and remove code markup, because kubectl prints plain text."""
    paragraphs = (" ".join(part.split()) for part in text.replace("``", "").split("\n\n"))
    return "\n\n".join(paragraphs)


@lru_cache(maxsize=256)
def merge_schema(model: type[Struct]) -> openapi.MergeSchema:
    """Return the merge rules of a custom resource, from its model and the markers of the fields."""
    return openapi.merge_schema_of_crd(_merge_struct(model))


_SIZES: Final = {"int32": 32, "int64": 64}


def unreadable_in_go(kind: type[Object], data: JSON) -> field.FieldError | None:
    """Return an error for the first number or time of a custom resource that Go cannot read, or None.

    The API server does not check the formats int32 and int64, and accepts times that Go refuses. A typed Go client that
    reads such an object fails for all objects of the kind. Int32 and Int64 have bounds, so this is for fields that have
    only the format, and for times. The metadata is not checked.
    """
    if openapi.has_definition(openapi.name_of(kind)):
        return None  # the API server is written in Go
    return next(_unreadable(merge_schema(kind).schema, data, ""), None)


def _unreadable(schema: Mapping[str, JSON], value: JSON, path: str) -> Iterator[field.FieldError]:
    if isinstance(value, dict):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in value.items():
            if isinstance(below := properties.get(key, others), Mapping):
                yield from _unreadable(below, each, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if isinstance(below := schema.get("items"), Mapping):
            for index, each in enumerate(value):
                yield from _unreadable(below, each, f"{path}[{index}]")
    elif isinstance(value, str):
        if schema.get("format") == "date-time" and not is_time(value):
            yield field.invalid(field.Path(path), value, "must be a time such as 2006-01-02T15:04:05Z")
    elif isinstance(value, int | float):
        size = 32 if schema == openapi.INT_OR_STRING else _SIZES.get(schema.get("format", ""))
        if size is not None and not -(1 << size - 1) <= value < 1 << size - 1:
            yield field.invalid(field.Path(path), value, f"must fit into {size} bits")


def _merge_struct(model: type[Struct], above: tuple[type[Struct], ...] = ()) -> Mapping[str, JSON]:
    """``above`` are the structs that contain this one: a recursive struct has no rules below itself."""
    name = openapi.name_of(model)
    if openapi.has_definition(name):
        return _definition(name)
    if model in above:
        return {}
    properties = {}
    for attribute, info in fields_of(model).items():
        if attribute != "metadata":
            properties[wire_name(attribute, info)] = _merge_marked(
                _merge_type(info.annotation, (*above, model)), info.metadata
            )
    return {"properties": properties}


def _merge_type(annotation: object, above: tuple[type[Struct], ...]) -> Mapping[str, JSON]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _merge_marked(_merge_type(arguments[0], above), arguments[1:])
    if origin in (typing.Union, types.UnionType):
        present = [each for each in arguments if each is not type(None)]
        if set(present) == {int, str}:
            return openapi.INT_OR_STRING
        return _merge_type(present[0], above) if len(present) == 1 else {}
    if origin is list:
        return {"items": _merge_type(arguments[0], above)}
    if origin is dict:
        return {"additionalProperties": _merge_type(arguments[1], above)}
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return _merge_struct(annotation, above)
    return {}


def _merge_marked(schema: Mapping[str, JSON], metadata: Iterable[object]) -> Mapping[str, JSON]:
    for marker in metadata:
        if isinstance(marker, CRD):
            given = {
                openapi.LIST_TYPE: marker.list_type,
                openapi.MAP_TYPE: marker.map_type,
                openapi.MAP_KEYS: marker.list_map_keys,
                "format": marker.format,
            }
            schema = {**schema, **{key: value for key, value in given.items() if value is not None}}
            if marker.schema is not None:
                named = _definition(marker.schema)
                schema = {**schema, "items": named} if "items" in schema else named
    return schema


@cache
def _definition(name: str) -> Mapping[str, JSON]:
    return openapi.definition(name)
