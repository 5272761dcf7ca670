# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What only pydantic itself can do for structs. Importing this module imports pydantic, which a manager does not."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter
from pydantic.fields import FieldInfo as PydanticField
from pydantic_core import PydanticUndefined

from . import declarations

if TYPE_CHECKING:
    from .model import Model

Schema = dict[str, Any]
_SAME: Final = ("alias", "default", "default_factory", "description", "exclude_if")
_WITHOUT_EFFECT: Final = frozenset(
    {
        "annotation",
        "deprecated",
        "examples",
        "field_title_generator",
        "json_schema_extra",
        "kw_only",
        "repr",
        "title",
    }
)
_TO_CORE: Final = {
    "validation_alias": "validation_alias",
    "serialization_alias": "serialization_alias",
    "exclude": "serialization_exclude",
    "frozen": "frozen",
}

_open: Final[set[type]] = set()


def core_schema(annotation: Any, metadata: Iterable[Any]) -> Schema:
    """Return pydantic's core schema of a type."""
    schema: Schema = TypeAdapter(_annotated(annotation, metadata)).core_schema  # type: ignore[assignment]
    return schema


def _annotated(annotation: Any, metadata: Iterable[Any]) -> Any:
    for each in metadata:
        known = BeforeValidator(each.convert) if isinstance(each, declarations.Converter) else each
        annotation = Annotated[annotation, known]
    return annotation


def converted_field(declared: PydanticField) -> declarations.FieldInfo:
    """Return a field declared with pydantic's ``Field``.

    Raises:
        TypeError: it has a property that structs do not support.
    """
    given: dict[str, Any] = declared._attributes_set
    constraints = PydanticField.metadata_lookup
    for name in given:
        if not (name in _SAME or name in _WITHOUT_EFFECT or name in _TO_CORE or name in constraints):
            raise TypeError(f"Field({name}=...) is not supported by structs")
    made = declarations.FieldInfo(**{name: given[name] for name in _SAME if name in given})
    made.metadata = tuple(declared.metadata)
    made.extras = {
        key: value.convert_to_aliases() if hasattr(value, "convert_to_aliases") else value
        for name, key in _TO_CORE.items()
        if (value := given.get(name)) is not None
    }
    return made


def decorated(struct: type[Model], plain: Schema) -> Schema:
    """Return the core schema of a struct whose body has decorators of pydantic models, such as ``field_validator``.

    pydantic builds it for a model with the same fields and decorators. ``plain`` is the schema without fields.
    """
    body: dict[str, Any] = {
        "__annotations__": {
            name: _annotated(info.annotation, info.metadata) for name, info in struct.model_fields.items()
        },
        "__module__": struct.__module__,
        "model_config": {**struct.model_config, "protected_namespaces": ()},
        **{name: _declared(info) for name, info in struct.model_fields.items()},
    }
    for base in reversed(struct.__mro__):
        own = vars(base).items()
        body.update((name, each) for name, each in own if type(each).__name__ == "PydanticDescriptorProxy")
    with _opened(struct):
        model: Any = types.new_class(
            struct.__name__, (BaseModel,), exec_body=lambda namespace: namespace.update(body)
        )
        model.model_rebuild()
        schema: Schema = model.__pydantic_core_schema__
    _replace_model(schema, plain)
    return schema


@contextmanager
def _opened(struct: type) -> Iterator[None]:
    """Let fields of type ``struct`` in types that pydantic translates refer to a decoder that does not exist yet."""
    added = struct not in _open
    _open.add(struct)
    try:
        yield
    finally:
        if added:
            _open.remove(struct)


def _declared(info: declarations.FieldInfo) -> Any:
    given = {
        name: getattr(info, name) for name in _SAME if getattr(info, name) not in (None, PydanticUndefined)
    }
    if info.default is None:
        given["default"] = None
    given.update((name, info.extras[key]) for name, key in _TO_CORE.items() if key in info.extras)
    return Field(**given)


def _replace_model(schema: Schema, plain: Schema) -> None:
    """Let the model's part of a core schema, which may be within functions, create instances of the struct."""
    if schema["type"] != "model":
        return _replace_model(schema["schema"], plain)
    schema.update({key: value for key, value in plain.items() if key != "type"})
    schema.pop("ref", None)
    return None


def late_or(struct: type[Model], whole: Callable[[Any], Schema]) -> Schema:
    """Return the core schema of ``struct`` for a type that pydantic translates, which may be one of its own fields."""
    if struct in _open:

        def validate(value: object) -> Model:
            return struct.model_validate(value)  # its decoder does not exist yet

        return {"type": "function-plain", "function": {"type": "no-info", "function": validate}}
    with _opened(struct):
        return whole(struct)


def json_schema(struct: type, options: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of ``struct``."""
    return TypeAdapter(struct).json_schema(**options)
