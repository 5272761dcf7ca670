# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Model: classes with fields, decoded and serialized by pydantic's core; the methods have pydantic's names.

pydantic itself is not imported. What differs from a pydantic model is listed in the guide "Kinds".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from .coreschema import ORIGINAL, SERIALIZER, VALIDATOR, build_in_steps, forget, has_post_init, whole
from .structtype import StructType, not_a_field

if TYPE_CHECKING:
    from pydantic_core import SchemaSerializer, SchemaValidator

    from .declarations import Declared, FieldInfo

_ABSENT: Final = object()


class Model(metaclass=StructType):
    """An object with typed fields, decoded and serialized by pydantic's core."""

    # The core sets all four.
    __slots__ = ("__dict__", "__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__")

    __struct_decorated__: ClassVar[bool] = False
    model_config: ClassVar[Mapping[str, Any]] = {}
    """Settings with the names of pydantic's ``ConfigDict``; those of base classes stay."""

    if TYPE_CHECKING:
        model_fields: ClassVar[dict[str, FieldInfo]]
        """The fields by attribute name. The first read evaluates the annotations."""
        __struct_declared__: ClassVar[Declared]
        __pydantic_validator__: ClassVar[SchemaValidator]
        __pydantic_serializer__: ClassVar[SchemaSerializer]
        __pydantic_fields_set__: set[str] = not_a_field(init=False)
        __pydantic_extra__: dict[str, Any] | None = not_a_field(init=False)
    else:  # a type checker derives each model's own signature, and knows all attributes

        def __init__(self, /, **data: Any) -> None:
            """Initialize an object from fields given by attribute name or wire name."""
            self.__pydantic_validator__.validate_python(data, self_instance=self)

        # Decoding does not call a constructor that is marked so.
        __init__.__pydantic_base_init__ = True

        def __getattr__(self, name: str) -> Any:
            """Return a field that the class does not declare."""
            try:
                extra = object.__getattribute__(self, "__pydantic_extra__")
            except AttributeError:
                extra = None
            if extra and name in extra:
                return extra[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field without a check of its type; the field then counts as set."""
            if name in type(self).model_fields:
                self.__dict__[name] = value
                self.__pydantic_fields_set__.add(name)
            else:
                _set_other(self, name, value)

        def __delattr__(self, name: str) -> None:
            """Remove a field, declared or not."""
            extra = self.__pydantic_extra__
            if extra and name in extra:
                del extra[name]
            else:
                object.__delattr__(self, name)

    @classmethod
    def model_validate(
        cls,
        obj: Any,
        *,
        strict: bool | None = None,
        context: Any = None,
        by_alias: bool | None = None,
        by_name: bool | None = None,
        **options: Any,
    ) -> Self:
        """Return ``obj``, a parsed JSON object or an instance, as an instance of this class.

        Raises:
            pydantic.ValidationError: a field's type differs from the model's.
        """
        validated: Self = cls.__pydantic_validator__.validate_python(
            obj, strict=strict, context=context, by_alias=by_alias, by_name=by_name, **options
        )
        return validated

    @classmethod
    def model_validate_json(
        cls,
        data: str | bytes | bytearray,
        *,
        strict: bool | None = None,
        context: Any = None,
        by_alias: bool | None = None,
        by_name: bool | None = None,
        **options: Any,
    ) -> Self:
        """Decode JSON text. Raises like :meth:`model_validate`."""
        validated: Self = cls.__pydantic_validator__.validate_json(
            data, strict=strict, context=context, by_alias=by_alias, by_name=by_name, **options
        )
        return validated

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Return an instance of trusted values, which are not checked."""
        made = cls.__new__(cls)
        fields: dict[str, Any] = {}
        given: set[str] = set()
        for name, info in cls.model_fields.items():
            key = info.alias if info.alias is not None and info.alias in values else name
            if key in values:
                fields[name] = values.pop(key)
                given.add(name)
            elif not info.is_required():
                fields[name] = info.get_default() if info.default_factory else copy(info.default)
        set_fields(made, fields)
        set_fields_set(made, given if _fields_set is None else _fields_set)
        set_extra(made, values if cls.model_config.get("extra") == "allow" else None)
        if has_post_init(cls):
            made.model_post_init(None)
        return made

    @classmethod
    def model_rebuild(cls, *, force: bool = False) -> bool | None:
        """Build the decoder and the serializer now, with ``force`` again; None if both exist."""
        if force:
            forget(cls)
        elif VALIDATOR.is_stored(cls) and SERIALIZER.is_stored(cls):
            return None
        return cls.__pydantic_validator__ is not None and cls.__pydantic_serializer__ is not None

    @classmethod
    def model_build_steps(cls) -> Iterator[None]:
        """Build the decoder and the serializer, a small part at each step of the iterator."""
        return build_in_steps(cls)

    @classmethod
    def model_json_schema(cls, **options: Any) -> dict[str, Any]:
        """Return the JSON schema that pydantic generates; the options are those of ``TypeAdapter.json_schema``."""
        from .pydanticparts import json_schema  # imports pydantic

        return json_schema(cls, options)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        from .pydanticparts import late_or  # its caller imported pydantic

        return late_or(cls, whole)

    def model_post_init(self, context: Any, /) -> None:
        """Adjust a new object; it is called after the constructor and after decoding."""

    # It is called where a class overrides it.
    setattr(model_post_init, ORIGINAL, True)

    def model_dump(self, *, mode: str = "python", **options: Any) -> dict[str, Any]:
        """Return the fields as a map; the options are those of pydantic's method."""
        dumped: dict[str, Any] = self.__pydantic_serializer__.to_python(self, mode=mode, **options)
        return dumped

    def model_dump_json(self, **options: Any) -> str:
        """Return the fields as JSON text; the options are those of pydantic's method."""
        return self.__pydantic_serializer__.to_json(self, **options).decode()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with the fields in ``update``, which are not checked, replaced."""
        copied = deepcopy(self) if deep else copy(self)
        for name, value in (update or {}).items():
            if name in type(self).model_fields:
                copied.__dict__[name] = value
            else:
                _extra(copied)[name] = value
            copied.__pydantic_fields_set__.add(name)
        return copied

    @property
    def model_fields_set(self) -> set[str]:
        """The fields that were given to the constructor, decoded or assigned."""
        return self.__pydantic_fields_set__

    @property
    def model_extra(self) -> dict[str, Any] | None:
        """The fields that the model does not declare."""
        return self.__pydantic_extra__

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        extra = self.__pydantic_extra__
        set_fields(copied, self.__dict__.copy())
        set_fields_set(copied, self.__pydantic_fields_set__.copy())
        set_extra(copied, None if extra is None else extra.copy())
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        copied = memo[id(self)] = copy(self)
        set_fields(copied, deepcopy(self.__dict__, memo))
        set_extra(copied, deepcopy(self.__pydantic_extra__, memo))
        return copied

    def __replace__(self, **changes: Any) -> Self:
        return self.model_copy(update=changes)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "fields": self.__dict__,
            "extra": self.__pydantic_extra__,
            "set": self.__pydantic_fields_set__,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        set_fields(self, state["fields"])
        set_extra(self, state["extra"])
        set_fields_set(self, state["set"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return NotImplemented
        return (
            type(self) is type(other)
            and self.__dict__ == other.__dict__
            and (self.__pydantic_extra__ or {}) == (other.__pydantic_extra__ or {})
        )

    __hash__ = None  # type: ignore[assignment]  # objects change

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from self.__dict__.items()
        yield from (self.__pydantic_extra__ or {}).items()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self)


# The descriptors of a model's own attributes, which cost less than object.__setattr__.
set_fields: Final = vars(Model)["__dict__"].__set__
set_fields_set: Final = vars(Model)["__pydantic_fields_set__"].__set__
set_extra: Final = vars(Model)["__pydantic_extra__"].__set__


def _extra(model: Model) -> dict[str, Any]:
    if (extra := model.__pydantic_extra__) is None:
        extra = {}
        set_extra(model, extra)
    return extra


def _set_other(model: Model, name: str, value: Any) -> None:
    """Set an attribute that is not a field: a private one, a property, or a field that the class does not declare."""
    held = getattr(type(model), name, _ABSENT)
    if name.startswith("_") or hasattr(type(held), "__set__"):
        object.__setattr__(model, name, value)
    elif held is not _ABSENT:
        raise AttributeError(f"{name!r} is an attribute of the class {type(model).__name__} and not a field")
    elif type(model).model_config.get("extra") != "allow":
        raise ValueError(f'"{type(model).__name__}" object has no field "{name}"')
    else:
        _extra(model)[name] = value
        model.__pydantic_fields_set__.add(name)
