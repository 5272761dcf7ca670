# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors about the fields of an object, and paths to fields; the messages equal the API server's.

FieldError          one field: a type, the path, the bad value and a detail
AggregateError      several errors at once, as raised by validators
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .gojson import go_json, go_text, quote
from .printable import cut


class ErrorType(StrEnum):
    """The type of a field error; its value is the reason of a cause in a metav1.Status."""

    NOT_FOUND = "FieldValueNotFound"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    INTERNAL = "InternalError"


_TEXT: Final = {
    ErrorType.NOT_FOUND: "Not found",
    ErrorType.REQUIRED: "Required value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.INTERNAL: "Internal error",
}
_WITHOUT_VALUE: Final = {ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL}
OMITTED: Final = object()
"""Stands for a bad value that the message does not show, such as an object or list that violates a CEL rule."""


@dataclass(frozen=True, slots=True, init=False)
class Path:
    """The path to a field: ``Path("spec").child("env").index(0)`` is ``spec.env[0]``."""

    text: str

    def __init__(self, name: str, *more: str) -> None:
        object.__setattr__(self, "text", ".".join((name, *more)))

    def child(self, name: str, *more: str) -> Path:
        """Return the path to a field below this one."""
        return Path(self.text, name, *more)

    def index(self, index: int) -> Path:
        """Return the path to a list's item."""
        return Path(f"{self.text}[{index}]")

    def key(self, key: str) -> Path:
        """Return the path to a map's value."""
        return Path(f"{self.text}[{key}]")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Quoted:
    """A bad value that the message shows as JSON. Go does so with pointers to scalars and with scalars of a named type.

    The text is built once, so many errors about one large value should share one instance.
    """

    value: object
    _text: list[str] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)

    def __str__(self) -> str:
        if not self._text:
            self._text.append(go_json(self.value))
        return self._text[0]


@dataclass(slots=True)
class FieldError(Exception):
    """An error about one field."""

    type: ErrorType
    field: str
    """The path. A long one is cut."""
    bad_value: object = None
    detail: str = ""
    _body: str | None = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Cut a long path."""
        self.field = cut(self.field)

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def __hash__(self) -> int:
        return hash((self.type, self.field, self.detail))

    @property
    def body(self) -> str:
        """The message without the field's path, as in a cause of a metav1.Status."""
        if self._body is None:
            text = _TEXT[self.type]
            if self.type not in _WITHOUT_VALUE and self.bad_value is not OMITTED:
                text += f": {_shown(self.bad_value)}"
            self._body = f"{text}: {self.detail}" if self.detail else text
        return self._body


def _shown(value: object) -> str:
    match value:
        case Quoted():
            return str(value)
        case str():
            return quote(value)
        case bool() | int() | float():
            return go_text(value)
        case _:
            return go_json(value)


class AggregateError(Exception):
    """Several errors as one exception; its message is ``[a, b]`` without duplicates, or ``a`` if there is only one."""

    def __init__(self, errors: Iterable[Exception]) -> None:
        self.errors: list[Exception] = list(errors)
        super().__init__(*self.errors)

    def __str__(self) -> str:
        texts = list(dict.fromkeys(_texts(self)))
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

    @property
    def causes(self) -> list[dict[str, str]]:
        """The field errors as causes of a metav1.Status."""
        return [
            {"reason": error.type.value, "message": error.body, "field": error.field}
            for error in self.errors
            if isinstance(error, FieldError)
        ]


def _texts(aggregate: AggregateError) -> Iterable[str]:
    for error in aggregate.errors:
        if isinstance(error, AggregateError):
            yield from _texts(error)
        else:
            yield str(error)


class ErrorList(list[FieldError]):
    """The errors that a validator found, in order."""

    def to_aggregate(self) -> AggregateError | None:
        """Return the errors as one exception without duplicate messages, or None if there are none."""
        if not self:
            return None
        once: dict[str, FieldError] = {}
        # The message of an error that occurs a thousand times, possibly a long one, is built once.
        for error in {id(error): error for error in self}.values():
            once.setdefault(str(error), error)
        return AggregateError(once.values())


def not_found(path: Path, value: object) -> FieldError:
    """Return the error for a reference to something that does not exist."""
    return FieldError(ErrorType.NOT_FOUND, str(path), value)


def required(path: Path, detail: str) -> FieldError:
    """Return the error for a value that is missing or empty."""
    return FieldError(ErrorType.REQUIRED, str(path), "", detail)


def duplicate(path: Path, value: object) -> FieldError:
    """Return the error for a value that must be unique and is not."""
    return FieldError(ErrorType.DUPLICATE, str(path), value)


def invalid(path: Path, value: object, detail: str) -> FieldError:
    """Return the error for a malformed value."""
    return FieldError(ErrorType.INVALID, str(path), value, detail)


def not_supported(path: Path, value: object, supported: Sequence[str]) -> FieldError:
    """Return the error for a value outside an enumeration."""
    detail = f"supported values: {', '.join(map(quote, supported))}" if supported else ""
    return FieldError(ErrorType.NOT_SUPPORTED, str(path), value, detail)


def forbidden(path: Path, detail: str) -> FieldError:
    """Return the error for a well-formed value that is not allowed in this place."""
    return FieldError(ErrorType.FORBIDDEN, str(path), "", detail)


def too_long(path: Path, limit: int) -> FieldError:
    """Return the error for a value of more than ``limit`` bytes; a negative limit is not shown in the message."""
    unit = "byte" if limit == 1 else "bytes"
    detail = f"may not be more than {limit} {unit}" if limit >= 0 else "value is too long"
    return FieldError(ErrorType.TOO_LONG, str(path), "<value omitted>", detail)


def too_many(path: Path, actual: int, limit: int) -> FieldError:
    """Return the error for a list of more than ``limit`` items; negative numbers are not shown in the message."""
    unit = "item" if limit == 1 else "items"
    detail = f"must have at most {limit} {unit}" if limit >= 0 else "has too many items"
    return FieldError(ErrorType.TOO_MANY, str(path), actual if actual >= 0 else OMITTED, detail)


def internal(path: Path | None, error: Exception | str) -> FieldError:
    """Return the error for a failure that the input did not cause."""
    return FieldError(ErrorType.INTERNAL, "<nil>" if path is None else str(path), None, str(error))
