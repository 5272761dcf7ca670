# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""StructType: the type of all classes with fields. Creating a class records its body, and evaluates nothing."""

from __future__ import annotations

import typing
from abc import ABCMeta
from collections.abc import Mapping
from typing import Any, Final

from .coreschema import SERIALIZER, VALIDATOR
from .declarations import Declared, Field, FieldInfo, annotations_of

_SETTINGS: Final = frozenset(
    {
        "alias_generator",
        "allow_inf_nan",
        "defer_build",
        "extra",
        "hide_input_in_errors",
        "protected_namespaces",
        "serialize_by_alias",
        "str_max_length",
        "str_min_length",
        "str_strip_whitespace",
        "str_to_lower",
        "str_to_upper",
        "strict",
        "title",
        "validate_by_alias",
        "validate_by_name",
    }
)


class _Fields:
    """The class attribute ``model_fields``, which the first read evaluates and stores."""

    def __get__(self, instance: object, owner: StructType) -> dict[str, FieldInfo]:
        fields: dict[str, FieldInfo] = {}
        for base in reversed(owner.__mro__):
            if isinstance(base, StructType):
                fields.update(base.__struct_declared__.fields(base, base.model_config.get("alias_generator")))
            elif (declared := Declared.of_mixin(base)) is not None:
                fields.update(declared.fields(base, owner.model_config.get("alias_generator")))
        owner.model_fields = fields
        return fields


_FIELDS: Final = _Fields()


def not_a_field(*, init: bool) -> Any:
    """Declare, for type checkers, an attribute that is not a parameter of constructors."""


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(Field, not_a_field))
class StructType(ABCMeta):
    """The type of all structs."""

    __struct_declared__: Declared
    __struct_decorated__: bool
    model_config: Mapping[str, Any]
    model_fields: dict[str, FieldInfo]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:
        """Create a class.

        Raises:
            TypeError: an attribute has neither an annotation nor a meaning for a struct, or a setting has none.
        """
        namespace["__struct_declared__"] = Declared.taken_from(namespace, 1)
        if _check(name, namespace):
            namespace["__struct_decorated__"] = True
        # With this mark, pydantic's core refers to a decoder instead of copying it.
        namespace["__pydantic_complete__"] = True
        namespace["__pydantic_validator__"] = VALIDATOR
        namespace["__pydantic_serializer__"] = SERIALIZER
        namespace["model_fields"] = _FIELDS
        if "model_config" in namespace:
            above = next((base.model_config for base in bases if isinstance(base, StructType)), {})
            namespace["model_config"] = {**above, **_settings(name, namespace["model_config"])}
        return super().__new__(mcs, name, bases, namespace, **keywords)

    # Structs are not registered as virtual subclasses; the caches of ABCs for that are slow.
    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


def _check(name: str, namespace: Mapping[str, Any]) -> bool:
    """Check the attributes in a class body; return True if one is a decorator of pydantic models."""
    annotated = annotations_of(namespace)
    for attribute, value in namespace.items():
        if attribute in annotated or attribute == "model_config" or attribute.startswith("_"):
            continue
        if not isinstance(value, type) and not hasattr(type(value), "__get__"):
            raise TypeError(
                f"{name}.{attribute} has no annotation: a field needs a type, a constant ClassVar[...]"
            )
    return any(type(value).__name__ == "PydanticDescriptorProxy" for value in namespace.values())


def _settings(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in settings:
        if each not in _SETTINGS:
            raise TypeError(f"{name}: structs do not support the setting {each}")
    return settings
