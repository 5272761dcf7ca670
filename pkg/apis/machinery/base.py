# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The base of every struct on the wire: snake_case here, camelCase there, unset stays off, unknown stays on.

One class serves as the typed object, the patch and the apply configuration: a field that is ``None`` is
not written, an empty list or map is. Fields that a newer server sends and the model does not name are
kept as decoded JSON and written back. Decoding is strict about JSON types, as Go is: the string ``"3"``
is no integer.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

JSON = Any


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
    )
    go_always: ClassVar[frozenset[str]] = frozenset()
    """Fields that Go writes even when they are unset; only texts that quote Go's JSON need to know."""
    go_pointers: ClassVar[frozenset[str]] = frozenset()
    """Scalars behind a pointer in Go, whose zero it writes; of the others it leaves the zero out."""

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Decode a JSON object that is already parsed.

        Raises:
            pydantic.ValidationError: a field has another JSON type than the model.
        """
        return cls.model_validate(data, by_alias=True, by_name=False)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decode JSON text. Raises like :meth:`from_dict`."""
        return cls.model_validate_json(data, by_alias=True, by_name=False)

    def to_dict(self) -> dict[str, JSON]:
        """Return a fresh JSON object: wire names, ``None`` left out."""
        return self.model_dump(exclude_none=True)

    def to_json(self) -> bytes:
        """Return the same as compact JSON text."""
        return self.__pydantic_serializer__.to_json(self, exclude_none=True, by_alias=True)

    def deep_copy(self) -> Self:
        """Return a copy that shares nothing with this one."""
        return self.model_copy(deep=True)


def is_unset(value: Struct) -> bool:
    """Say whether a struct holds nothing at all, neither field nor field of a field.

    For fields that Go embeds by value (``spec``, ``template``): always there in Python, off the wire until
    something in them is set.
    """
    if value.__pydantic_extra__:
        return False
    return all(
        held is None or held == "" or (isinstance(held, Struct) and is_unset(held))
        for held in value.__dict__.values()
    )
