# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The base class of all API structs: snake_case attributes, camelCase JSON.

One class serves as the typed object, the patch and the apply configuration: a field that is ``None`` is
not written, an empty list or map is. Fields that the model does not declare, for instance from a newer
server, are kept as decoded JSON and written back. Decoding is strict about JSON types, as in Go: the string
``"3"`` is not an integer.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from pydantic_core import PydanticCustomError, ValidationError, from_json

from .declarations import Converter as Converter
from .declarations import Field as Field
from .model import Model, set_extra, set_fields, set_fields_set

if TYPE_CHECKING:
    from pydantic_core import InitErrorDetails

JSON = Any
S = TypeVar("S", bound="Struct")

_MOST_NULLS: Final = 1000
"""Above this number of validation errors, null fields are not removed and decoded again: the text is invalid anyway."""


def camel(name: str) -> str:
    """Return the wire name of an attribute: ``restart_policy`` → ``restartPolicy``; ``from_`` → ``from``.

    Names with capitals in a row (``podIP``) carry an explicit ``alias``.
    """
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Struct(Model):
    """A JSON object with typed fields."""

    model_config: ClassVar[Mapping[str, Any]] = {
        "alias_generator": camel,
        "validate_by_name": True,
        "validate_by_alias": True,
        "serialize_by_alias": True,
        "extra": "allow",
        "strict": True,
    }
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
            # Unknown fields are looked for where there may be some: a comparison of names would cost as much again.
            try:
                self.__pydantic_validator__.validate_python(data, self_instance=self)
            except ValidationError:
                if not self.takes_any_field:
                    _check_names(type(self), data)
                raise
            extra = self.__pydantic_extra__  # None: the class does not keep them
            if (extra or extra is None) and not self.takes_any_field:
                _check_names(type(self), data)

        # Decoding does not call this constructor, because pydantic's core skips constructors that are marked so.
        __init__.__pydantic_base_init__ = True

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
        set_extra(self, fields)

    def put(self, field: str, value: object) -> None:
        """Replace a field's value without validation and without marking the field as set."""
        self.__dict__[field] = value

    def deep_copy(self) -> Self:
        """Return a copy that shares no data with this object."""
        copied: Self = _copy(self)
        return copied

    def shallow_copy(self) -> Self:
        """Return a copy whose fields may be replaced independently; their values are shared."""
        return self.__copy__()


def _summary(error: ValidationError) -> ValidationError:
    """Return one error that replaces many, because describing each of them would take longer than decoding did."""
    text = f"{error.error_count()} values have another type than their fields"
    details: InitErrorDetails = {"type": PydanticCustomError("too_many", text), "input": None}
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
_new: Final = object.__new__


def _copy(value: JSON) -> JSON:
    # Six times as fast as copy.deepcopy, because JSON has neither cycles nor shared parts.
    kind = type(value)
    if kind is list:
        return [each if type(each) in _ATOMS else _copy(each) for each in value]
    if kind is dict:
        return {key: each if type(each) in _ATOMS else _copy(each) for key, each in value.items()}
    if not isinstance(value, Struct):
        return value
    fields = value.__dict__.copy()
    for name, each in fields.items():
        if type(each) not in _ATOMS:
            fields[name] = _copy(each)
    extra = value.__pydantic_extra__
    copied = _new(kind)
    set_fields(copied, fields)
    set_fields_set(copied, value.__pydantic_fields_set__.copy())
    set_extra(copied, None if extra is None else _copy(extra))
    return copied


def assembled(kind: type[S], values: dict[str, Any], given: set[str]) -> S:
    """Return ``kind.model_construct(given, **values)``, for values by attribute name, but quicker.

    Instances share the defaults of other fields, which must be immutable, and ``model_post_init`` is not called.
    """
    made = _new(kind)
    set_fields(made, {**_defaults(kind), **values})
    set_fields_set(made, given)
    set_extra(made, {})
    return made


@functools.lru_cache(maxsize=16)
def _defaults(kind: type[Struct]) -> dict[str, Any]:
    """Return the default of every field."""
    return vars(kind.model_construct())


def is_unset(value: Struct) -> bool:
    """Return True if no field of a struct, or of the structs in its fields, was set.

    This is for fields that Go embeds by value (``spec``, ``template``): in Python they always exist, on the wire
    only after one of their fields was set.
    """
    if value.__pydantic_fields_set__ or value.__pydantic_extra__:
        return False
    return all(is_unset(held) for held in value.__dict__.values() if isinstance(held, Struct))
