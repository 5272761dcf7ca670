# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Semantic equality: an unset field equals an empty list or map, and 1Gi equals 1024Mi."""

from __future__ import annotations

from functools import cache
from typing import get_args

from . import quantity
from .base import Struct, fields_of


def deep_equal(a: object, b: object) -> bool:
    """Return True if two values of the same kind are semantically equal.

    Structs are compared field by field, including unknown fields. In plain JSON, null equals an empty list or map, but
    a missing key equals neither. Quantities in plain JSON are compared as texts, because their type is unknown.
    """
    if isinstance(a, Struct) and isinstance(b, Struct):
        return type(a) is type(b) and _equal_structs(a, b)
    if _empty(a) and _empty(b):
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(deep_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(deep_equal, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, list | dict) and not value)


def _equal_structs(a: Struct, b: Struct) -> bool:
    quantities = _quantity_fields(type(a))
    for name, left in a.__dict__.items():
        right = b.__dict__.get(name, left)  # a cached property may have been computed in only one of the two
        if not (_equal_quantities(left, right) if name in quantities else deep_equal(left, right)):
            return False
    return deep_equal(a.unknown_fields, b.unknown_fields)


def _equal_quantities(a: object, b: object) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return a == b or quantity.cmp(a, b) == 0
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal_quantities(a[key], b[key]) for key in a)
    return deep_equal(a, b)


@cache
def _quantity_fields(kind: type[Struct]) -> frozenset[str]:
    return frozenset(
        name
        for name, info in fields_of(kind).items()
        if quantity.CANONICAL in info.metadata or _mentions(info.annotation)
    )


def _mentions(annotation: object) -> bool:
    if quantity.CANONICAL in getattr(annotation, "__metadata__", ()):
        return True
    return any(map(_mentions, get_args(annotation)))
