# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Core schemas: decoders and serializers of structs, built for pydantic's core without pydantic's Python layer.

The types that Kubernetes' kinds consist of are translated here. Any other type, such as a datetime or a pydantic
model, is translated by pydantic, which is imported only then.
"""

from __future__ import annotations

import itertools
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic_core import PydanticUndefined, SchemaSerializer, SchemaValidator

from .crd import CRD
from .declarations import Converter, FieldInfo, taken_apart

if TYPE_CHECKING:
    from .structtype import StructType

Schema = dict[str, Any]
B = TypeVar("B", SchemaValidator, SchemaSerializer)

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "str"},
    int: {"type": "int"},
    bool: {"type": "bool"},
    float: {"type": "float"},
    list: {"type": "list"},
    dict: {"type": "dict"},
    type(None): {"type": "none"},
    object: {"type": "any"},
    Any: {"type": "any"},
}
_UNIONS: Final = (typing.Union, types.UnionType)
_TO_CORE: Final = {"extra": "extra_fields_behavior"}
"""Settings of a struct's ``model_config`` that have another name in a core schema."""
ORIGINAL: Final = "__pydantic_base_init__"
"""The attribute that marks a method of :class:`.model.Model` as not overridden; pydantic's core reads it, too."""
_NOT_CORE: Final = frozenset({"alias_generator", "defer_build", "protected_namespaces"})


class Built(Generic[B]):
    """The class attribute with a struct's decoder or serializer, which the first read builds and stores."""

    def __init__(self, name: str, build: Callable[[Any], B]) -> None:
        self._name = name
        self._build: Callable[[Any], B] = build

    def __get__(self, instance: object, owner: StructType) -> B:
        for struct in (*_nested(owner, {owner}, self.is_stored), owner):
            if not self.is_stored(struct):
                schema = _Builder(self.is_stored).root(struct)
                self.store(struct, schema)
                schema.clear()
        built: B = owner.__dict__[self._name]
        return built

    def store(self, struct: StructType, schema: Schema) -> None:
        """Build and store the decoder or serializer of ``struct``.

        The core keeps ``schema``, for pickling alone, and with it as much memory as the decoder takes: clear it.
        """
        setattr(struct, self._name, self._build(schema))

    def is_stored(self, struct: StructType) -> bool:
        """Return True if the decoder or serializer of ``struct`` exists; others refer to it then."""
        return not isinstance(struct.__dict__[self._name], Built)


VALIDATOR: Final = Built("__pydantic_validator__", SchemaValidator)
SERIALIZER: Final = Built("__pydantic_serializer__", SchemaSerializer)


def build_in_steps(owner: StructType) -> Iterator[None]:
    """Build the decoders and serializers that ``owner`` needs, those of one struct at each step.

    One schema serves both. Other code may build some of them between two steps.
    """

    def both(struct: StructType) -> bool:
        return VALIDATOR.is_stored(struct) and SERIALIZER.is_stored(struct)

    for struct in itertools.chain(_nested(owner, {owner}, both), (owner,)):
        if not VALIDATOR.is_stored(struct) and not SERIALIZER.is_stored(struct):
            schema = _Builder(both).root(struct)
            VALIDATOR.store(struct, schema)
            SERIALIZER.store(struct, schema)
            schema.clear()
        yield
    for each in (VALIDATOR, SERIALIZER):
        if not each.is_stored(owner):
            each.__get__(None, owner)


def whole(struct: StructType) -> Schema:
    """Return a core schema that contains those of all structs below ``struct``."""
    return _Builder(lambda _: False).root(struct)


def has_post_init(struct: Any) -> bool:
    """Return True if a struct or a base overrides ``model_post_init``."""
    return not hasattr(struct.model_post_init, ORIGINAL)


def forget(struct: StructType) -> None:
    """Remove the decoder and the serializer of ``struct``; the next use builds them again."""
    for each in (VALIDATOR, SERIALIZER):
        setattr(struct, each._name, each)


def structs_in(annotation: Any) -> Iterator[StructType]:
    """Yield the structs that a type annotation names, such as ``dict[str, list[S]] | None``."""
    _, arguments = taken_apart(annotation)
    if not arguments and _is_struct(annotation):
        yield annotation
    for each in arguments:
        yield from structs_in(each)


def _is_struct(annotation: Any) -> bool:
    return hasattr(annotation, "__struct_declared__") and isinstance(annotation, type)


def _nested(
    model: StructType, known: set[StructType], built: Callable[[StructType], bool]
) -> Iterator[StructType]:
    """Yield the structs below ``model`` that are not in ``known``, each after the structs in its own fields.

    Those that are ``built`` are left out with all below them, which were built before.
    """
    for field in model.model_fields.values():
        for struct in structs_in(field.annotation):
            if struct not in known:
                known.add(struct)
                if not built(struct):
                    yield from _nested(struct, known, built)
                    yield struct


class _Builder:
    """Builds one core schema. It refers to the structs for which ``exists`` is True instead of containing them."""

    def __init__(self, exists: Callable[[StructType], bool]) -> None:
        self._exists = exists
        self._definitions: dict[str, Schema] = {}
        self._referenced: set[str] = set()

    def root(self, struct: StructType) -> Schema:
        """Return the schema of ``struct``, which itself is contained even if it exists."""
        name = _name(struct)
        schema = self._define(struct, name)
        if name not in self._referenced:
            del self._definitions[name]
        else:
            schema = {"type": "definition-ref", "schema_ref": name}
        if not self._definitions:
            return schema
        return {"type": "definitions", "schema": schema, "definitions": list(self._definitions.values())}

    def struct(self, struct: StructType) -> Schema:
        """Return a reference to ``struct``."""
        if self._exists(struct) and not struct.__struct_decorated__:
            # Only the class is read: pydantic's core takes the decoder or serializer that it has. A core that did
            # not would refuse the reference.
            return {
                "type": "model",
                "cls": struct,
                "schema": {"type": "definition-ref", "schema_ref": "existing"},
            }
        name = _name(struct)
        self._referenced.add(name)
        if name not in self._definitions:
            self._define(struct, name)
        return {"type": "definition-ref", "schema_ref": name}

    def _define(self, struct: StructType, name: str) -> Schema:
        schema = self._definitions[name] = {}
        schema.update(self._model(struct), ref=name)
        return schema

    def _model(self, struct: Any) -> Schema:
        schema: Schema = {
            "type": "model",
            "cls": struct,
            "custom_init": not hasattr(struct.__init__, ORIGINAL),
            "config": _config(struct),
        }
        if has_post_init(struct):
            schema["post_init"] = "model_post_init"
        if struct.__struct_decorated__:
            from .pydanticparts import decorated  # the struct's module imported pydantic

            return self._hoisted(decorated(struct, schema))
        fields = {name: self._field(info) for name, info in struct.model_fields.items()}
        schema["schema"] = {"type": "model-fields", "fields": fields, "model_name": struct.__name__}
        return schema

    def _hoisted(self, schema: Schema) -> Schema:
        """Add the definitions in a schema by pydantic to those of this one."""
        if schema["type"] != "definitions":
            return schema
        for each in schema["definitions"]:
            self._referenced.add(each["ref"])
            self._definitions.setdefault(each["ref"], each)
        inner: Schema = schema["schema"]
        return inner

    def _field(self, info: FieldInfo) -> Schema:
        schema = self.of(info.annotation, info.metadata)
        if info.default_factory is not None:
            schema = {"type": "default", "schema": schema, "default_factory": info.default_factory}
        elif info.default is not PydanticUndefined:
            schema = {"type": "default", "schema": schema, "default": info.default}
        field: Schema = {"type": "model-field", "schema": schema, **info.extras}
        if info.alias is not None:
            field.setdefault("validation_alias", info.alias)
            field.setdefault("serialization_alias", info.alias)
        if info.exclude_if is not None:
            field["serialization_exclude_if"] = info.exclude_if
        return field

    def of(self, annotation: Any, metadata: Iterable[Any] = ()) -> Schema:
        """Return the schema of a type. Metadata for CustomResourceDefinitions has no effect on it."""
        effective = [each for each in metadata if not isinstance(each, CRD)]
        schema = self._of_known(annotation)
        if schema is None or not all(isinstance(each, Converter) for each in effective):
            from .pydanticparts import core_schema  # only for types that are not known here

            return self._hoisted(core_schema(annotation, effective))
        for each in effective:
            function = {"type": "no-info", "function": each.convert}
            schema = {"type": "function-before", "function": function, "schema": schema}
        return schema

    def _of_known(self, annotation: Any) -> Schema | None:
        try:
            if (plain := _PLAIN.get(annotation)) is not None:
                return plain
        except TypeError:  # not hashable
            return None
        if _is_struct(annotation):
            return self.struct(annotation)
        origin, arguments = taken_apart(annotation)
        if origin is typing.Annotated:
            return self.of(arguments[0], arguments[1:])
        if origin is list:
            return {"type": "list", "items_schema": self.of(arguments[0])}
        if origin is dict:
            keys, values = map(self.of, arguments)
            return {"type": "dict", "keys_schema": keys, "values_schema": values}
        if origin in _UNIONS:
            return self._union(arguments)
        if origin is typing.Literal and all(type(each) in (str, int, bool) for each in arguments):
            return {"type": "literal", "expected": list(arguments)}
        return None

    def _union(self, arguments: tuple[Any, ...]) -> Schema:
        choices = [self.of(each) for each in arguments if each is not type(None)]
        schema = choices[0] if len(choices) == 1 else {"type": "union", "choices": choices}
        return schema if len(choices) == len(arguments) else {"type": "nullable", "schema": schema}


def _name(struct: StructType) -> str:
    return f"{struct.__module__}.{struct.__qualname__}:{id(struct)}"


def _config(struct: StructType) -> Schema:
    config = {
        _TO_CORE.get(key, key): value for key, value in struct.model_config.items() if key not in _NOT_CORE
    }
    return {"title": struct.__name__, **config}
