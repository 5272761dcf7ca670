# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Markers: properties of a field or a kind in a CustomResourceDefinition beyond its Python type.

A field carries them as ``Annotated[int | None, CRD(minimum=0)]``, a struct as ``crd: ClassVar = CRD(...)``, a
kind as ``crd_kind: ClassVar = KindMarkers(...)``. They have no effect at run time: only
:mod:`controller_runtime.machinery.crd_schema` reads them. A field's description is the string below it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec


class _Unset:
    """Distinguishes ``default=None`` from no default."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


class Rule(msgspec.Struct, frozen=True):
    """A CEL validation rule and the API server's message if it is violated."""

    rule: str
    message: str


class CRD(msgspec.Struct, frozen=True, kw_only=True):
    """Constraints of a field or a struct; those that are None are omitted.

    Constraints of a list or a map apply to it and not to its items, whose constraints belong to the items' type.
    ``schema`` names a recorded definition (of the item, for a list) if the model is plain JSON.
    """

    default: object = UNSET
    enum: tuple[str, ...] | None = None
    format: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    pattern: str | None = None
    list_type: Literal["atomic", "map", "set"] | None = None
    list_map_keys: tuple[str, ...] | None = None
    map_type: Literal["atomic", "granular"] | None = None
    rules: tuple[Rule, ...] = ()
    required: bool | None = None
    """If None, only strings with an empty default are required."""
    schema: str | None = None


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``."""

    name: str
    type: str
    json_path: str
    description: str | None = None
    priority: int | None = None


class KindMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of the kind as a whole in a CustomResourceDefinition."""

    printer_columns: tuple[PrinterColumn, ...] = ()
    status_subresource: bool = False
    short_names: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


Int32 = Annotated[int, CRD(format="int32")]
Int64 = Annotated[int, CRD(format="int64")]

ATOMIC: Final = CRD(list_type="atomic")
MAP_BY_NAME: Final = CRD(list_type="map", list_map_keys=("name",))
MAP_BY_TYPE: Final = CRD(list_type="map", list_map_keys=("type",))
