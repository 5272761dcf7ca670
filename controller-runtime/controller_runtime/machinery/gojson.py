# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Format values as Go does: JSON in struct order, ``%v`` and ``%q``. Used only for messages that quote values."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Final, NamedTuple

import msgspec

from .base import JSON, Struct, fields_of, is_unset, wire_name
from .quantity import CANONICAL

_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_HTML_TABLE: Final = str.maketrans(_HTML)
_SIMPLE: Final = re.compile(r"[A-Za-z0-9 _./:@$#=,;(){}\[\]+*?!|~^%'-]*", re.ASCII)
"""Text that needs no escaping."""
_QUOTED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_json(value: object) -> str:
    """Return ``value`` as Go's json.Marshal writes it.

    Fields are in the struct's order. Unset fields are included if Go writes them. Maps are sorted by key, and ``<``,
    ``>`` and ``&`` are escaped. Unknown fields are omitted, because Go's structs cannot hold them.
    """
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Struct):
        return "{" + ",".join(_fields(value)) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(k)}:{go_json(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([go_json(item) for item in value]) + "]"
    if isinstance(value, float):
        return _float(value, range(-6, 21))
    return msgspec.json.encode(value).decode()


def quote(text: str) -> str:
    """Return ``text`` as Go's ``%q`` writes it."""
    if _SIMPLE.fullmatch(text):  # fast path, e.g. for most names of objects
        return f'"{text}"'
    return '"' + "".join(_quoted(character) for character in text) + '"'


def go_text(value: JSON) -> str:
    """Return decoded JSON as Go's ``%v`` writes it, with maps sorted by key: ``map[a:1 b:[x y]]``."""
    if value is None:
        return "<nil>"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        digits, mark, exponent = _float(value, range(-4, 6)).partition("e")
        return f"{digits}e{exponent[0]}{exponent[1:].zfill(2)}" if mark else digits
    return str(value)


def _float(value: float, plain: range) -> str:
    """Return the shortest text of a number.

    Numbers whose decimal exponent is outside ``plain`` are written with an exponent.
    """
    number = Decimal(repr(value)).normalize()
    return f"{number:{'f' if number.adjusted() in plain else 'e'}}"


def _quoted(character: str) -> str:
    if (escaped := _QUOTED.get(character)) is not None:
        return escaped
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _string(text: str) -> str:
    if _SIMPLE.fullmatch(text):
        return f'"{text}"'
    return msgspec.json.encode(text).decode().translate(_HTML_TABLE)


def _fields(struct: Struct) -> Iterator[str]:
    values = struct.__dict__
    for field in _layout(type(struct)):
        value = values[field.name]
        if value is None:
            if field.zero is None:
                continue
            shown = field.zero
        elif field.zero is None and field.leaves_out(value):
            continue
        else:
            shown = go_json(value)
        yield field.label + shown


class _Field(NamedTuple):
    name: str
    label: str
    """The wire name as a JSON string, followed by a colon."""
    zero: str | None
    """The JSON that Go writes if the field is unset, or None if Go then omits the field."""
    pointer: bool
    by_value: bool

    def leaves_out(self, value: object) -> bool:
        """Return True if Go omits the value because of omitempty or omitzero.

        Go writes a zero value if the field is a pointer.
        """
        if isinstance(value, str | int | float):
            return not self.pointer and not value
        if isinstance(value, Struct):
            return self.by_value and is_unset(value)
        return isinstance(value, list | dict) and not value


@cache
def _layout(kind: type[Struct]) -> tuple[_Field, ...]:
    return tuple(
        _Field(
            name,
            f"{_string(wire_name(name, info))}:",
            _zero(kind, name) if name in kind.go_always else None,
            name in kind.go_pointers,
            info.exclude_if is is_unset,
        )
        for name, info in fields_of(kind).items()
    )


def _zero(kind: type[Struct], name: str) -> str:
    info = kind.model_fields[name]
    annotation = info.annotation
    if name in kind.go_pointers or name.endswith(("_time", "_timestamp")):
        return "null"
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        annotation = next(argument for argument in typing.get_args(annotation) if argument is not type(None))
    if CANONICAL in (*info.metadata, *getattr(annotation, "__metadata__", ())):
        return '"0"'
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return go_json(annotation())
    if annotation is str:
        return '""'
    if annotation is bool:
        return "false"
    return "0" if annotation in (int, float) else "null"
