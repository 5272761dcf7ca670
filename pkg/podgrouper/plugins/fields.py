# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that read a field of an owner and check its type, for kinds that have no model class here.

They return None if the path does not exist or passes through a null. They raise :class:`AccessorError` if a value on
the path, or at its end, does not have the expected type. The error contains the path to that value, its type and the
expected type, with Go's names of types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import JSON, Unstructured
from controller_runtime.machinery.gojson import go_text
from controller_runtime.machinery.quantity import MAX_INT32

from .errors import AccessorError

Owner = Unstructured | Mapping[str, JSON]
"""An owner, or a map inside an owner."""

_MAP: Final = "map[string]interface{}"
_LIST: Final = "[]interface{}"
_MISSING: Final = object()
_T = TypeVar("_T")


def nested_field(obj: Owner, *path: str) -> JSON:
    """Return the value at ``path``, of any type; the caller must not change it."""
    found = _find(obj, path)
    return None if found is _MISSING else found


def has_field(obj: Owner, *path: str) -> bool:
    """Return True if a value exists at ``path``, even null."""
    return _find(obj, path) is not _MISSING


def nested_int64(obj: Owner, *path: str) -> int | None:
    """Return the integer at ``path``."""
    found = _find(obj, path)
    if found is _MISSING:
        return None
    if type(found) is not int or not _is_int64(found):
        raise _mismatch(path, found, "int64")
    return found


def nested_int32(obj: Owner, *path: str) -> int | None:
    """Return the integer at ``path``, limited to 32 bits."""
    found = nested_int64(obj, *path)
    return None if found is None else int32(found)


def int32(value: int) -> int:
    """Return ``value``, or the nearest integer of 32 bits: a huge number must not become a small one, as in Go."""
    return max(-MAX_INT32 - 1, min(value, MAX_INT32))


def nested_string(obj: Owner, *path: str) -> str | None:
    """Return the string at ``path``."""
    return _find_typed(obj, path, str, "string")


def nested_bool(obj: Owner, *path: str) -> bool | None:
    """Return the boolean at ``path``."""
    return _find_typed(obj, path, bool, "bool")


def nested_map(obj: Owner, *path: str) -> dict[str, JSON] | None:
    """Return the map at ``path``; the caller must not change it."""
    return _find_typed(obj, path, dict, _MAP)


def nested_list(obj: Owner, *path: str) -> list[JSON] | None:
    """Return the list at ``path``; the caller must not change it."""
    return _find_typed(obj, path, list, _LIST)


def nested_string_list(obj: Owner, *path: str) -> list[str] | None:
    """Return the list of strings at ``path``."""
    found = nested_list(obj, *path)
    for each in found or ():
        if not isinstance(each, str):
            raise AccessorError(
                _dotted(path), f"contains non-string key in the slice: {_shown(each)}, expected string"
            )
    return found


def go_owner_reference(owner: OwnerReference) -> str:
    """Return ``owner`` as Go's ``%v`` formats it, but show the values of the two pointer fields, not addresses."""
    flags = (go_text(flag) for flag in (owner.controller, owner.block_owner_deletion))
    return f"{{{owner.api_version} {owner.kind} {owner.name} {owner.uid} {' '.join(flags)}}}"


def go_type(value: JSON) -> str:
    """Return Go's name for the type of a decoded JSON value."""
    if value is None:
        return "<nil>"
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return {bool: "bool", int: "int64", float: "float64", str: "string"}[type(value)]


def _find_typed(obj: Owner, path: tuple[str, ...], wanted: type[_T], go_name: str) -> _T | None:
    found = _find(obj, path)
    if found is _MISSING:
        return None
    if not isinstance(found, wanted):
        raise _mismatch(path, found, go_name)
    return found


def _find(obj: Owner, path: tuple[str, ...]) -> JSON:
    value: JSON = obj
    if isinstance(obj, Unstructured):
        # Spec and status are held as decoded JSON. Other fields may be modelled and are encoded first; few are read.
        modelled = bool(path) and path[0] not in ("spec", "status")
        value = obj.to_dict() if modelled else obj.unknown_fields
    for depth, step in enumerate(path):
        if value is None:
            return _MISSING
        if not isinstance(value, Mapping):
            raise AccessorError(_dotted(path[: depth + 1]), f"{_shown(value)}, expected {_MAP}")
        if step not in value:
            return _MISSING
        value = value[step]
    return value


def _mismatch(path: tuple[str, ...], found: JSON, wanted: str) -> AccessorError:
    return AccessorError(_dotted(path), f"{_shown(found)}, expected {wanted}")


def _shown(value: JSON) -> str:
    """Return the value and its type; Go decodes an integer beyond 64 bits as a float."""
    if type(value) is int and not _is_int64(value) and abs(value) < 1 << 1023:
        value = float(value)
    return f"{go_text(value)} is of the type {go_type(value)}"


def _is_int64(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _dotted(path: tuple[str, ...]) -> str:
    return "." + ".".join(path)
