# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions from models and their markers.

:mod:`.markers` has the markers. A field's description is the string below it.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import decimal
import importlib
import inspect
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, Final

import msgspec
import pydantic
from pydantic import PlainSerializer, TypeAdapter, WrapSerializer
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticUndefined, SchemaError, SchemaValidator, core_schema

from .. import field, openapi, raised, structural
from ..base import JSON, Struct, computed_wire_names, fields_of, wire_name
from ..errors import one_line
from ..meta import is_time
from ..object import Object, PartialObjectMetadata, Unstructured
from ..openapi import Schema
from ..quantity import CANONICAL
from .markers import UNSET, KindMarkers, Markers, PrinterColumn, Rule

_NUMBERS: Final = {
    "format": "format",
    "minimum": "minimum",
    "exclusive_minimum": "exclusiveMinimum",
    "maximum": "maximum",
    "exclusive_maximum": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "pattern": "pattern",
    "nullable": "nullable",
    "list_type": openapi.LIST_TYPE,
    "map_type": openapi.MAP_TYPE,
    "preserve_unknown_fields": openapi.PRESERVE,
    "embedded_resource": openapi.EMBEDDED,
}
_RULE: Final = {
    "rule": "rule",
    "message": "message",
    "message_expression": "messageExpression",
    "reason": "reason",
    "field_path": "fieldPath",
    "optional_old_self": "optionalOldSelf",
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
_ANYTHING: Final = {openapi.PRESERVE: True}
_DECIMAL: Final = {"type": "string", "pattern": r"^[+-]?[0-9]+(\.[0-9]+)?$"}
_OWN_SCHEMA: Final = "give the field a schema: Annotated[…, Markers(schema={…})]"
_API_VERSION_TEXT: Final = "The version of the schema this object is written in, such as group/version."
_KIND_TEXT: Final = "The kind of this object."


class _BadFieldError(TypeError):
    """A field has no schema that an API server accepts; the message names its class and the field."""


class _NoSchemaError(TypeError):
    """A type cannot be expressed as a structural schema; the message has the reason."""


def custom_resource_definition(kind: type[Object], *others: type[Object]) -> Schema:
    """Return the CustomResourceDefinition of ``kind``, with ``others`` as its other versions.

    Types, bounds and required fields come from the model. Defaults come only from markers. Defaults in the model are
    left out, because the API server would write them into the objects.

    Raises:
        TypeError: a class is not a subclass of Object that declares a kind, the versions contradict each other, or the
            type of a field has no structural schema. The message contains the class and the field.
        ValueError: a kind has no plural name.
    """
    versions: tuple[Any, ...] = (kind, *others)
    for version in versions:
        if not (isinstance(version, type) and issubclass(version, Object)):
            shown = (
                version.__name__ if isinstance(version, type) else f"an instance of {type(version).__name__}"
            )
            raise TypeError(f"{shown} is not a kind: a subclass of Object with group, version and plural")
    gvk, resource = kind.gvk, kind.resource
    if resource is None:
        raise ValueError(f"{gvk} has no plural name")
    markers = [_markers(version) for version in versions]
    for other in others:
        if other.gvk.group_kind != gvk.group_kind or other.resource is None:
            raise TypeError(f"{other.__name__} is not a version of {gvk.group_kind}")
        if other.resource != resource._replace(version=other.gvk.version):
            raise TypeError(f"{other.__name__} has another plural name or scope than {kind.__name__}")
    names = [version.gvk.version for version in versions]
    if len({*names}) != len(names):
        raise TypeError(f"{gvk.group_kind} has two classes for one version")
    stored = [version for version, marked in zip(versions, markers, strict=True) if marked.storage]
    if not stored and not others and markers[0].storage is None:
        stored = [kind]
    if len(stored) != 1:
        raise TypeError(
            f"{gvk.group_kind} is stored in {len(stored)} of its versions {', '.join(names)}: exactly one needs "
            "KindMarkers(storage=True)"
        )
    short_names, categories = _common("short_names", versions), _common("categories", versions)
    webhook = _common("conversion", versions)
    spec: Schema = {
        "group": gvk.group,
        "names": {
            **({"categories": list(categories)} if categories else {}),
            "kind": gvk.kind,
            "listKind": _common("list_kind", versions) or f"{gvk.kind}List",
            "plural": resource.plural,
            **({"shortNames": list(short_names)} if short_names else {}),
            "singular": _common("singular", versions) or gvk.kind.lower(),
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "versions": [
            _version(version, marked, stored=version is stored[0])
            for version, marked in zip(versions, markers, strict=True)
        ],
    }
    if webhook is not None:
        service = {"name": webhook.name, "namespace": webhook.namespace, "path": webhook.path}
        if webhook.port is not None:
            service["port"] = webhook.port
        spec["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]},
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.group_resource},
        "spec": spec,
    }


def _markers(kind: type[Object]) -> KindMarkers:
    marked = getattr(kind, "crd_kind", None)
    if marked is None:
        return KindMarkers()
    if not isinstance(marked, KindMarkers):
        raise TypeError(f"{kind.__name__}.crd_kind must be KindMarkers(...), not {type(marked).__name__}")
    return marked


def _common(name: str, versions: Iterable[type[Object]]) -> Any:
    """Return the value of a marker that all versions of a kind share; those that do not set it are ignored.

    Raises:
        TypeError: two versions have different values.
    """
    common: Any = None
    for kind in versions:
        value = getattr(_markers(kind), name)
        if value and common and value != common:
            raise TypeError(f"{kind.__name__} has other {name} than another version of {kind.gvk.group_kind}")
        common = value or common
    return common


def _version(kind: type[Object], markers: KindMarkers, *, stored: bool) -> Schema:
    version: Schema = {
        "name": kind.gvk.version,
        "schema": {"openAPIV3Schema": _root(kind, markers)},
        "served": markers.served,
        "storage": stored,
    }
    if markers.deprecated:
        version["deprecated"] = True
        if isinstance(markers.deprecated, str):
            version["deprecationWarning"] = markers.deprecated
    if markers.printer_columns:
        version["additionalPrinterColumns"] = [_column(column) for column in markers.printer_columns]
    if markers.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in markers.selectable_fields]
    subresources: Schema = {}
    if (scale := markers.scale) is not None:
        subresources["scale"] = {
            "specReplicasPath": scale.spec_replicas,
            "statusReplicasPath": scale.status_replicas,
            **({"labelSelectorPath": scale.label_selector} if scale.label_selector else {}),
        }
    if markers.status_subresource:
        subresources["status"] = {}
    if subresources:
        version["subresources"] = subresources
    return version


def _column(column: PrinterColumn) -> Schema:
    values = (
        ("description", column.description),
        ("format", column.format),
        ("jsonPath", column.json_path),
        ("name", column.name),
        ("priority", column.priority),
        ("type", column.type),
    )
    return {key: value for key, value in values if value is not None}


def _root(kind: type[Object], markers: KindMarkers) -> Schema:
    schema = _struct(kind)
    if markers.status_subresource and "status" in schema.get("required", ()):
        raise TypeError(
            f"{kind.__name__}.status needs a default that can be made, or None: the status is a subresource, so every "
            "object is created without it"
        )
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
    markers = _struct_markers(model)
    if (raw := _raw(markers)) is not None:
        return _marked(raw, markers)
    if model in above:
        raise _NoSchemaError(f"{model.__name__} contains itself; {_OWN_SCHEMA}")
    name = openapi.name_of(model)
    if openapi.has_definition(name):
        return openapi.definition(name)
    schema: Schema = {"properties": {}, "type": "object"}
    if text := vars(model).get("__doc__"):  # not an inherited docstring
        schema["description"] = _paragraphs(inspect.cleandoc(text))
    texts = _field_texts(model)
    required = []
    for attribute, info in fields_of(model).items():
        if info.exclude:  # the field is not written
            continue
        wire = wire_name(attribute, info)
        with _named_in_errors(model, attribute):
            field_schema, needed = _field(attribute, info, (*above, model))
        if text := texts.get(attribute) or info.description:
            field_schema["description"] = text
        if wire in schema["properties"]:
            raise _BadFieldError(
                f"{model.__name__}.{attribute} has the name {wire} in JSON, like another field"
            )
        schema["properties"][wire] = field_schema
        if needed:
            required.append(wire)
    for attribute, wire in computed_wire_names(model).items():
        computed = model.model_computed_fields[attribute]
        with _named_in_errors(model, attribute):
            wrapped: Any = computed.wrapped_property
            getter = wrapped.fget if isinstance(wrapped, property) else wrapped.func
            field_schema = _type(_returned(getter, computed.return_type), (*above, model))
        if computed.description:
            field_schema["description"] = _paragraphs(computed.description)
        schema["properties"][wire] = field_schema
    if not schema["properties"]:
        del schema["properties"]
    if required:
        schema["required"] = sorted(required)
    _constrain(schema, markers)
    return schema


def _struct_markers(model: type[Struct]) -> tuple[Markers, ...]:
    marker = getattr(model, "crd", None)
    return (marker,) if isinstance(marker, Markers) else ()


@contextlib.contextmanager
def _named_in_errors(model: type[Struct], attribute: str) -> Iterator[None]:
    try:
        yield
    except _BadFieldError:
        raise
    except (TypeError, pydantic.PydanticUserError, SchemaError) as error:
        lines = str(error).split("\n\nFor further information")[0].splitlines()
        if isinstance(error, SchemaError):  # only the last line has the problem
            lines = ["pydantic cannot check it:", lines[-1].removeprefix("error: ").strip()]
        raise _BadFieldError(
            f"{model.__name__}.{attribute} has no structural schema: {' '.join(lines)}"
        ) from error


def _field(attribute: str, info: FieldInfo, above: tuple[type[Struct], ...]) -> tuple[Schema, bool]:
    markers = [entry for entry in info.metadata if isinstance(entry, Markers)]
    named = next((marker.schema for marker in markers if isinstance(marker.schema, str)), None)
    decorators = above[-1].__pydantic_decorators__.field_serializers.values()
    writers = [decorator for decorator in decorators if {attribute, "*"} & {*decorator.info.fields}]
    if writers and not _raw(info.metadata):
        schema = _written(writers[-1].func, writers[-1].info.return_type, above, info.metadata)
    else:
        schema = _annotated(info.annotation, above, info.metadata, named, info.discriminator)
    needed = next((marker.required for marker in markers if marker.required is not None), None)
    return schema, _has_no_default(info) if needed is None else needed


def _has_no_default(info: FieldInfo) -> bool:
    """Return True if an object must contain the field.

    This includes a struct whose default factory fails, because a field of the struct is required.
    """
    if info.is_required() or info.default_factory is None or info.default_factory_takes_validated_data:
        return info.is_required()
    try:
        info.get_default(call_default_factory=True)
    except pydantic.ValidationError:
        return True
    except Exception as error:
        raise TypeError(f"its default factory raises {raised.name(error)}: {one_line(error)}") from error
    return False


def _annotated(
    annotation: Any,
    above: tuple[type[Struct], ...],
    metadata: Iterable[object],
    named: str | None,
    tag: object = None,
) -> Schema:
    """Return the schema of a type with the constraints, markers and serializers in ``metadata``."""
    if (raw := _raw(metadata)) is not None:
        return _marked(raw, metadata)
    writers = [entry for entry in metadata if isinstance(entry, PlainSerializer | WrapSerializer)]
    if writers:
        return _written(writers[-1].func, writers[-1].return_type, above, metadata)
    others = []
    for entry in metadata:
        if isinstance(entry, FieldInfo) and entry.discriminator is not None:
            tag = entry.discriminator
        else:
            others.append(entry)
    quantity = CANONICAL in others
    schema = openapi.definition("api.resource.Quantity") if quantity else _type(annotation, above, named, tag)
    _constrain(schema, others)
    return schema


def _raw(metadata: Iterable[object]) -> Mapping[str, JSON] | None:
    """Return the schema that a marker gives instead of that of the type."""
    schemas = (marker.schema for marker in metadata if isinstance(marker, Markers))
    return next((schema for schema in schemas if isinstance(schema, Mapping)), None)


def _marked(raw: Mapping[str, JSON], metadata: Iterable[object]) -> Schema:
    schema: Schema = copy.deepcopy(dict(raw))
    _constrain(schema, [entry for entry in metadata if isinstance(entry, Markers)])
    return schema


def _written(
    function: Any, declared: object, above: tuple[type[Struct], ...], metadata: Iterable[object]
) -> Schema:
    """Return the schema of a serializer's output, with the field's markers.

    Pydantic's bounds are left out: they apply to the value before it is serialized.
    """
    schema = _type(_returned(function, declared), above)
    _constrain(schema, [entry for entry in metadata if isinstance(entry, Markers)])
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


def _type(
    annotation: Any,
    above: tuple[type[Struct], ...],
    named: str | None = None,
    tag: object = None,
) -> Schema:
    """Return the schema of a type. ``tag`` is the discriminator of a union."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(arguments[0], above, arguments[1:], named)
    if origin in (typing.Union, types.UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        if set(present) == {int, str}:
            return openapi.definition("util.intstr.IntOrString")
        if set(present) == {int, float}:
            return {"type": "number"}
        if len(present) == 1:
            return _type(present[0], above, named, tag)
        if isinstance(tag, str):
            return _tagged(present, tag, above)
        raise _NoSchemaError(
            f"{annotation} is a choice of several types; declare an optional field for each, or a discriminator"
        )
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


def _tagged(choices: list[Any], tag: str, above: tuple[type[Struct], ...]) -> Schema:
    """Return the schema of a union of structs that the field ``tag`` distinguishes.

    It has the fields of all structs. Which of them are required depends on the tag.
    """
    properties: Schema = {}
    values: list[JSON] = []
    cases: list[Schema] = []
    for choice in choices:
        if not (isinstance(choice, type) and issubclass(choice, Struct)):
            raise _NoSchemaError(
                f"{choice} is not a struct, as each choice of a union with a discriminator must be"
            )
        schema, wire = _struct(choice, above), wire_name(tag, fields_of(choice)[tag])
        tags = schema["properties"].pop(wire)
        if other := schema.keys() - {"description", "properties", "required", "type"}:
            raise _NoSchemaError(
                f"{choice.__name__} has {min(other)}, which cannot apply to one choice of a union"
            )
        for name, part in schema["properties"].items():
            known = properties.setdefault(name, part)
            if {**known, "description": ""} != {**part, "description": ""}:
                raise _NoSchemaError(f"{name} has another schema in {choice.__name__} than in another choice")
        properties[wire] = {"type": tags["type"]}
        values += tags["enum"]
        case: Schema = {"properties": {wire: {"enum": tags["enum"]}}}
        if needed := [name for name in schema.get("required", ()) if name != wire]:
            case["required"] = needed
        cases.append(case)
    properties[wire]["enum"] = values
    return {"type": "object", "properties": properties, "required": [wire], "oneOf": cases}


def _without_parts(annotation: Any, above: tuple[type[Struct], ...]) -> Schema:
    """Return the schema of a class, a NewType, or another type that pydantic knows."""
    if annotation in (None, types.NoneType):
        raise _NoSchemaError("it can only be None, which is not written")
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    if annotation is decimal.Decimal:
        return dict(_DECIMAL)
    if supertype := getattr(annotation, "__supertype__", None):  # a NewType
        return _type(supertype, above)
    if annotation is Struct:  # it has no fields of its own, and keeps all others
        return {"type": "object", **_ANYTHING}
    if annotation is Object or (
        isinstance(annotation, type) and issubclass(annotation, Unstructured | PartialObjectMetadata)
    ):
        return {"type": "object", **_ANYTHING, openapi.EMBEDDED: True}
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        schema = _struct(annotation, above)
        return schema | _ANYTHING if annotation.accepts_unknown_fields else schema
    # The settings of the struct around typed dicts and dataclasses determine the names of their fields in JSON.
    holder = pydantic.create_model("Holder", __config__=above[-1].model_config, value=(annotation, ...))
    schema = holder.model_json_schema(schema_generator=_JSONSchema)
    return _structural(schema["properties"]["value"], schema.get("$defs", {}))


class _JSONSchema(GenerateJsonSchema):
    """Says of a class that it accepts unknown fields only if its author has chosen this.

    Structs, and the dataclasses and typed dicts in them, keep unknown fields because an object may be newer than its
    class.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _as_chosen(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _as_chosen(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _as_chosen(super().typed_dict_schema(schema), schema.get("cls"))


def _as_chosen(made: JsonSchemaValue, kind: Any) -> JsonSchemaValue:
    if isinstance(kind, type) and issubclass(kind, Struct):
        accepts = kind.accepts_unknown_fields
    else:
        config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
        accepts = config.get("extra") == "allow"
    if not accepts:
        made.pop("additionalProperties", None)
    return made


def _structural(schema: Schema, definitions: Mapping[str, Schema], above: tuple[str, ...] = ()) -> Schema:
    """Convert pydantic's JSON schema to the form that the API server accepts: no references, and one type per value.

    Raises:
        _NoSchemaError: the schema cannot be expressed in this form.
    """
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        if name in above:
            raise _NoSchemaError(f"{name} contains itself; {_OWN_SCHEMA}")
        return _structural(definitions[name], definitions, (*above, name))
    if choices := schema.get("anyOf", schema.get("oneOf")):
        present = [choice for choice in choices if choice != _NULL]
        if present == [{"type": "integer"}, {"type": "number"}]:
            return {"type": "number"}
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
        hint = "; use machinery.Duration" if form == "duration" else ""
        raise _NoSchemaError(f"the API server does not check the format {form} as Python does{hint}")
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
    made: Schema = {"properties": {name: _structural(part, definitions, above) for name, part in fields}}
    if schema.get("additionalProperties") is True:
        made |= _ANYTHING
    if needed := schema.get("required"):
        made["required"] = sorted(needed)
    return made


def _bounds(schema: Schema) -> Schema:
    bounds = {key: value for key, value in schema.items() if key in _BOUNDS}
    for key, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in schema:
            bounds[key], bounds[exclusive] = schema[exclusive], True
    _check_pattern(bounds)
    # The API server refuses integers beyond 64 bits itself, and it would round these bounds.
    return {key: value for key, value in bounds.items() if (key, value) not in _OF_64_BITS}


def _check_pattern(schema: Schema) -> None:
    """Raise SchemaError for a regular expression that neither pydantic's engine nor the API server's can match."""
    if (pattern := schema.get("pattern")) is not None:
        SchemaValidator(core_schema.str_schema(pattern=pattern))


def _constrain(schema: Schema, metadata: Iterable[object]) -> None:
    """Add a field's constraints to ``schema``: markers and pydantic's constraints, such as ``Field(ge=1)``."""
    others = [entry for entry in metadata if not isinstance(entry, Markers)]
    if others and (known := _TYPES.get(schema.get("type", ""))) is not None:
        adapted: Any = Annotated[(known, *others)]
        schema.update(_bounds(TypeAdapter(adapted).json_schema()))
    marked = [marker for marker in metadata if isinstance(marker, Markers)]
    for marker in marked:
        _mark(schema, marker)
    if marked and (problem := _problem_of(schema)):
        raise _NoSchemaError(problem)


def _problem_of(schema: Schema) -> str:
    """Return why an API server would refuse a schema with markers, or an empty string.

    Not everything is checked, only what markers often get wrong.
    """
    kind, items = schema.get("type"), schema.get("items") or {}
    if "$ref" in schema:
        return "a schema has no $ref: write out what it refers to"
    if kind not in (None, "array", "boolean", "integer", "number", "object", "string"):
        return f"{kind!r} is not a type of JSON schema"
    if kind is None and not (schema.get(openapi.PRESERVE) or schema.get("x-kubernetes-int-or-string")):
        return "a schema needs a type"
    list_type, keys = schema.get(openapi.LIST_TYPE), schema.get(openapi.MAP_KEYS) or ()
    if list_type is not None and kind != "array":
        return f"list_type is for lists, not for type {kind}"
    if list_type == "set" and items.get("type") == "object" and items.get(openapi.MAP_TYPE) != "atomic":
        return "a list of objects cannot be a set; use list_type map with list_map_keys"
    if list_type == "map" and items.get("type") != "object":
        return "list_type map is for lists of objects"
    for key in keys:
        known = (items.get("properties") or {}).get(key)
        if known is None:
            return f"list_map_keys: the items have no field {key}"
        if key not in (items.get("required") or ()) and "default" not in known:
            return f"list_map_keys: {key} must be required, or have a default in its markers"
    if "default" in schema and kind not in (None, "array", "object"):
        problem = next(structural.problems(schema, schema["default"], ("default",)), None)
        if problem is not None:
            return problem.text
    return ""


def _mark(schema: Schema, marker: Markers) -> None:
    for attribute, key in _NUMBERS.items():
        if (value := getattr(marker, attribute)) is not None:
            schema[key] = value
    if marker.default is not UNSET:
        schema["default"] = marker.default
    if marker.enum is not None:
        schema["enum"] = list(marker.enum)
    if marker.list_map_keys is not None:
        schema[openapi.MAP_KEYS] = list(marker.list_map_keys)
    _check_pattern(schema)
    _add_rules(schema, marker.rules)


def _add_rules(schema: Schema, rules: tuple[Rule, ...]) -> None:
    if rules:
        validations = schema.setdefault("x-kubernetes-validations", [])
        validations.extend(
            {_RULE[name]: value for name, value in msgspec.structs.asdict(rule).items() if value is not None}
            for rule in rules
        )


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
_TIME: Final = "date-time"


def unreadable_in_go(kind: type[Object], data: JSON) -> field.FieldError | None:
    """Return an error for the first number or time of a custom resource that Go cannot read, or None.

    The API server does not check the formats int32 and int64, and accepts times that Go refuses. A typed Go client that
    reads such an object fails for all objects of the kind. Int32 and Int64 have bounds, so this is for fields that have
    only the format, and for times. The metadata is not checked.

    ``data`` is JSON text, or a dict decoded from JSON text. Of a text, only the fields that may contain such numbers
    and times are decoded.

    Raises:
        msgspec.DecodeError: ``data`` is not JSON; see also :data:`.rawjson.UNREADABLE`.
    """
    formats = _formats_of(kind)
    if formats is None:
        return None
    if isinstance(data, bytes):
        try:
            data = _checked_fields(kind).decode(data)
        except msgspec.ValidationError:  # a field has another type than in the schema
            data = msgspec.json.decode(data)
    return _unreadable(formats, data, "")


_Formats = dict[str, Any] | int | str | None
"""What Go cannot read everywhere below a value: see :func:`_formats`."""
_ITEMS: Final = ""
"""Stands for the items of a list and the values of a map: no field has this name."""


@lru_cache(maxsize=256)
def _formats_of(kind: type[Object]) -> _Formats:
    if openapi.has_definition(openapi.name_of(kind)):
        return None  # the API server is written in Go
    return _formats(merge_schema(kind).schema)


@lru_cache(maxsize=256)
def _checked_fields(kind: type[Object]) -> msgspec.json.Decoder[JSON]:
    """Return the decoder of the fields for which :func:`_formats_of` has formats. It skips all other fields."""
    return msgspec.json.Decoder(_shape_of(_formats_of(kind)))


def _shape_of(formats: _Formats) -> Any:
    if not isinstance(formats, dict) or _ITEMS in formats:
        return Any
    typed_dict: Any = typing.TypedDict  # a type checker accepts only literal fields
    return typed_dict("Shape", {name: _shape_of(part) for name, part in formats.items()}, total=False) | None


def _formats(schema: JSON) -> _Formats:
    """Return the parts of a schema that lead to numbers of a certain size, or to times; None if there are none.

    A number is returned as its size in bits, a time as its format, and a map or list as the parts by name. So a check
    visits only these parts of an object.
    """
    if not isinstance(schema, Mapping):
        return None
    if schema == openapi.INT_OR_STRING:
        return 32
    if (shape := schema.get("format")) in _SIZES:
        return _SIZES[shape]
    if shape == _TIME:
        return _TIME
    parts = {name: _formats(part) for name, part in (schema.get("properties") or {}).items()}
    others = _formats(schema.get("items", schema.get("additionalProperties")))
    if others is not None:  # they do not apply to the fields that have a schema of their own
        return {**parts, _ITEMS: others}
    return {name: part for name, part in parts.items() if part is not None} or None


def _unreadable(formats: _Formats, value: JSON, path: str) -> field.FieldError | None:
    """Return an error for the first value below ``value`` that Go cannot read."""
    problem: field.FieldError | None = None
    if isinstance(formats, dict):
        if isinstance(value, dict):
            others = formats.get(_ITEMS)
            for key, item in value.items():
                if (below := formats.get(key, others)) is not None:
                    problem = problem or _unreadable(below, item, f"{path}.{key}" if path else key)
        elif isinstance(value, list) and (below := formats.get(_ITEMS)) is not None:
            for index, item in enumerate(value):
                problem = problem or _unreadable(below, item, f"{path}[{index}]")
    elif formats == _TIME:
        if isinstance(value, str) and not is_time(value):
            problem = field.invalid(field.Path(path), value, "must be a time such as 2006-01-02T15:04:05Z")
    elif isinstance(value, int | float) and isinstance(formats, int):
        limit = 1 << formats - 1
        if not -limit <= value < limit:
            problem = field.invalid(field.Path(path), value, f"must fit into {formats} bits")
    return problem


def _merge_struct(model: type[Struct], above: tuple[type[Struct], ...] = ()) -> Mapping[str, JSON]:
    """``above`` are the structs that contain this one: a recursive struct has no rules below itself."""
    name = openapi.name_of(model)
    if openapi.has_definition(name):
        return _definition(name)
    if (raw := _raw(_struct_markers(model))) is not None:
        return raw
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
        present = [argument for argument in arguments if argument is not type(None)]
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
        if isinstance(marker, Markers):
            given = {
                openapi.LIST_TYPE: marker.list_type,
                openapi.MAP_TYPE: marker.map_type,
                openapi.MAP_KEYS: marker.list_map_keys,
                "format": marker.format,
            }
            schema = {**schema, **{key: value for key, value in given.items() if value is not None}}
            if isinstance(marker.schema, Mapping):
                schema = {**schema, **marker.schema}
            elif marker.schema is not None:
                named = _definition(marker.schema)
                schema = {**schema, "items": named} if "items" in schema else named
    return schema


@cache
def _definition(name: str) -> Mapping[str, JSON]:
    return openapi.definition(name)
