# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The base class of all API structs: snake_case attributes, camelCase JSON.

One class serves as the typed object, the patch and the apply configuration: a field that is ``None`` is
not written, an empty list or map is. Fields that the model does not declare, for instance from a newer
server, are kept as decoded JSON and written back. Decoding is strict about JSON types, as in Go: the string
``"3"`` is not an integer.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, from_json

JSON = Any

_MOST_NULLS: Final = 1000
"""Above this number of validation errors, null fields are not removed and decoded again: the text is invalid anyway."""


def camel(name: str) -> str:
    """Return the wire name of an attribute: ``restart_policy`` → ``restartPolicy``; ``from_`` → ``from``.

    Names with capitals in a row (``podIP``) carry an explicit ``alias``.
    """
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Struct(BaseModel):
    """A JSON object with typed fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="allow",
        strict=True,
        protected_namespaces=(),
        defer_build=True,
    )
    go_always: ClassVar[frozenset[str]] = frozenset()
    """Fields that Go writes even when they are unset; used only for messages that quote Go's JSON."""
    go_pointers: ClassVar[frozenset[str]] = frozenset()
    """Scalars that are pointers in Go, which writes their zero value; it omits the zero value of other scalars."""
    takes_any_field: ClassVar[bool] = False
    """True if the constructor accepts fields that the model does not declare."""

    if not TYPE_CHECKING:  # a type checker derives each model's own signature

        def __init__(self, /, **data: JSON) -> None:
            """Initialize a struct from fields given by attribute name or wire name.

            Unknown fields are errors, because they are likely misspelled; only decoding keeps them.

            Raises:
                TypeError: the model does not declare a field.
                pydantic.ValidationError: a value has the wrong type.
            """
            if not data.keys() <= type(self).model_fields.keys() and not self.takes_any_field:
                _check_names(type(self), data)
            super().__init__(**data)

        # Decoding does not call this constructor, because pydantic skips constructors marked as its own.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def model_rebuild(
        cls,
        *,
        force: bool = False,
        raise_errors: bool = True,
        _parent_namespace_depth: int = 2,
        _types_namespace: Mapping[str, Any] | None = None,
    ) -> bool | None:
        """Build the decoder of this struct after those of the structs in its fields; pydantic calls it on first use.

        A decoder refers to existing decoders of other structs instead of containing a copy of each. Kinds share
        most of their structs.
        """
        if cls.__pydantic_complete__ and not force:
            return None
        for struct in _nested(cls, {cls}):
            if not struct.__pydantic_complete__:
                super(Struct, struct).model_rebuild(raise_errors=False, _parent_namespace_depth=0)
        return super().model_rebuild(
            force=force,
            raise_errors=raise_errors,
            # This frame is between pydantic's and the caller's.
            _parent_namespace_depth=_parent_namespace_depth and _parent_namespace_depth + 1,
            _types_namespace=_types_namespace,
        )

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Decode a parsed JSON object. A null field counts as unset, as in Go.

        Raises:
            pydantic.ValidationError: a field's JSON type differs from the model's.
        """
        try:
            return cls.model_validate(data, by_alias=True, by_name=False)
        except ValidationError as error:
            if error.error_count() > _MOST_NULLS:
                raise _summary(error) from None
            cleaned, nulls = _without_nulls(data)
            if not nulls:
                raise
        return cls.model_validate(cleaned, by_alias=True, by_name=False)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decode JSON text. Raises like :meth:`from_dict`."""
        try:
            return cls.model_validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            if error.error_count() > _MOST_NULLS:
                raise _summary(error) from None
            if _is_no_json(error):
                raise
            cleaned, nulls = _without_nulls(from_json(data))
            if not nulls:
                raise
        return cls.model_validate(cleaned, by_alias=True, by_name=False)

    def to_dict(self) -> dict[str, JSON]:
        """Return a new JSON object with wire names and without unset fields."""
        return self.model_dump(exclude_none=True)

    def to_json(self) -> bytes:
        """Return :meth:`to_dict` as compact JSON text."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True, by_alias=True)

    @property
    def unknown_fields(self) -> dict[str, JSON]:
        """The fields that the model does not declare, as decoded JSON; a new empty map if there are none."""
        return self.__pydantic_extra__ or {}

    def set_unknown_fields(self, fields: dict[str, JSON]) -> None:
        """Replace the fields that the model does not declare; ``fields`` is not copied."""
        object.__setattr__(self, "__pydantic_extra__", fields)

    def put(self, field: str, value: object) -> None:
        """Replace a field's value without validation and without marking the field as set."""
        self.__dict__[field] = value

    def deep_copy(self) -> Self:
        """Return a copy that shares no data with this object."""
        copied: Self = _copy(self)
        return copied

    def shallow_copy(self) -> Self:
        """Return a copy whose fields may be replaced independently; their values are shared."""
        copied = object.__new__(type(self))
        object.__setattr__(copied, "__dict__", dict(self.__dict__))
        object.__setattr__(copied, "__pydantic_fields_set__", set(self.__pydantic_fields_set__))
        extra = self.__pydantic_extra__
        object.__setattr__(copied, "__pydantic_extra__", None if extra is None else dict(extra))
        object.__setattr__(copied, "__pydantic_private__", None)
        return copied


def _nested(model: type[Struct], known: set[type[Struct]]) -> Iterator[type[Struct]]:
    """Yield the structs below ``model`` that are not in ``known``, each after the structs in its own fields."""
    for field in model.model_fields.values():
        for struct in _named(field.annotation):
            if struct not in known:
                known.add(struct)
                yield from _nested(struct, known)
                yield struct


def _named(annotation: object) -> Iterator[type[Struct]]:
    """Yield the structs that a type annotation names, such as ``dict[str, list[S]] | None``."""
    arguments = typing.get_args(annotation)
    if not arguments and isinstance(annotation, type) and issubclass(annotation, Struct):
        yield annotation
    for each in arguments:
        yield from _named(each)


def _summary(error: ValidationError) -> ValidationError:
    """Return one error that replaces many, because describing each of them would take longer than decoding did."""
    text = f"{error.error_count()} values have another type than their fields"
    details = InitErrorDetails(type=PydanticCustomError("too_many", text), input=None)
    return ValidationError.from_exception_data(error.title, [details])


def _check_names(model: type[Struct], data: Collection[str]) -> None:
    fields = model.model_fields
    aliases = {field.alias for field in fields.values()}
    for name in data:
        if name not in fields and name not in aliases:
            import difflib  # only for this error

            close = difflib.get_close_matches(name, [*fields, *filter(None, aliases)], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TypeError(f"{model.__name__} has no field {name}{hint}")


def _is_no_json(error: ValidationError) -> bool:
    return error.error_count() == 1 and error.errors(include_url=False)[0]["type"] == "json_invalid"


def _without_nulls(data: JSON) -> tuple[JSON, bool]:
    """Return ``data`` without its null fields, and True if there were any."""
    if isinstance(data, dict):
        below = {key: _without_nulls(value) for key, value in data.items() if value is not None}
        found = len(below) != len(data) or any(nulls for _, nulls in below.values())
        return {key: value for key, (value, _) in below.items()}, found
    if isinstance(data, list):
        items = [_without_nulls(value) for value in data]
        return [value for value, _ in items], any(nulls for _, nulls in items)
    return data, False


_ATOMS: Final = frozenset({str, int, bool, float, type(None)})


def _copy(value: JSON) -> JSON:
    # Four times as fast as copy.deepcopy, because JSON has neither cycles nor shared parts.
    kind = type(value)
    if kind is list:
        return [each if type(each) in _ATOMS else _copy(each) for each in value]
    if kind is dict:
        return {key: each if type(each) in _ATOMS else _copy(each) for key, each in value.items()}
    if not isinstance(value, Struct):
        return value
    copied = object.__new__(type(value))
    fields = {key: each if type(each) in _ATOMS else _copy(each) for key, each in value.__dict__.items()}
    object.__setattr__(copied, "__dict__", fields)
    object.__setattr__(copied, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
    object.__setattr__(copied, "__pydantic_extra__", _copy(value.__pydantic_extra__))
    object.__setattr__(copied, "__pydantic_private__", None)
    return copied


def is_unset(value: Struct) -> bool:
    """Return True if no field of a struct, or of the structs in its fields, was set.

    This is for fields that Go embeds by value (``spec``, ``template``): in Python they always exist, on the wire
    only after one of their fields was set.
    """
    if value.__pydantic_fields_set__ or value.__pydantic_extra__:
        return False
    return all(is_unset(held) for held in value.__dict__.values() if isinstance(held, Struct))
