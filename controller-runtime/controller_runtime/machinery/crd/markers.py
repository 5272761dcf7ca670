# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Markers: the properties of a CustomResourceDefinition that a Python type cannot express.

Write the marker of a field into its type, ``Annotated[int | None, Markers(minimum=0)]``. A struct has its marker in
``crd: ClassVar = Markers(...)``, and a kind in ``crd_kind: ClassVar = KindMarkers(...)``. Markers do not change how
objects are decoded. :mod:`.generate` generates the CustomResourceDefinition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
import pydantic

from ..base import JSON


class _Unset:
    """Distinguishes ``default=None`` from no default."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()
_REASONS: Final = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")


_COLUMNS: Final = ("boolean", "date", "integer", "number", "string")


def _check_path(field: str, path: str) -> None:
    if not path.startswith("."):
        raise TypeError(f"{field} must begin with a dot, as in .status.phase, not {path!r}")


class Rule(msgspec.Struct, frozen=True):
    """A CEL validation rule, and the message that the API server returns if an object violates it."""

    rule: str
    message: str | None = None
    message_expression: str | None = None
    """A CEL expression whose value is the message."""
    reason: (
        Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]
        | None
    ) = None
    field_path: str | None = None
    """The field that the error names, relative to the value with the rule, such as ``.replicas``."""
    optional_old_self: bool | None = None
    """If True, ``oldSelf`` is an optional value, and the rule also runs when an object is created."""

    def __post_init__(self) -> None:
        """Find mistakes that only the API server would report.

        Raises:
            TypeError: the reason is not one that the API server knows.
        """
        if self.reason not in (None, *_REASONS):
            raise TypeError(f"reason must be one of {', '.join(_REASONS)}, not {self.reason}")
        if not self.rule.strip():
            raise TypeError("a rule needs an expression, such as self > 0")


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """Constraints of a field or a struct; a constraint that is None is omitted.

    The constraints of a list or a map apply to the list or map itself. For constraints on the items, annotate the type
    of the items.
    """

    default: object = UNSET
    enum: tuple[str, ...] | None = None
    format: str | None = None
    minimum: float | None = None
    exclusive_minimum: bool | None = None
    maximum: float | None = None
    exclusive_maximum: bool | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    pattern: str | None = None
    nullable: bool | None = None
    list_type: Literal["atomic", "map", "set"] | None = None
    list_map_keys: tuple[str, ...] | None = None
    map_type: Literal["atomic", "granular"] | None = None
    preserve_unknown_fields: bool | None = None
    """If True, the API server keeps fields that the schema does not contain."""
    embedded_resource: bool | None = None
    """If True, the value is a whole object, with apiVersion, kind and metadata."""
    rules: tuple[Rule, ...] = ()
    required: bool | None = None
    """If None, a field is required if it has no default, or if its default cannot be made because a field inside it is
    required."""
    schema: str | Mapping[str, JSON] | None = None
    """The schema of the value, instead of the schema of its type; the marker's other constraints are added to it.

    A text is the name of a recorded definition, such as ``core.v1.EnvVar``, for a field that the model declares as
    plain JSON. It describes the field's value or, if the value is a list, each item.
    """

    def __post_init__(self) -> None:
        """Find mistakes that would otherwise get into the CustomResourceDefinition unnoticed.

        Raises:
            TypeError: a value is not valid; its name is in the message.
        """
        if self.list_type not in (None, "atomic", "map", "set"):
            raise TypeError(f"list_type must be atomic, map or set, not {self.list_type}")
        if isinstance(self.list_map_keys, str) or bool(self.list_map_keys) != (self.list_type == "map"):
            raise TypeError("list_map_keys must be a tuple of names, given with list_type map")
        if not isinstance(self.rules, tuple) or not all(isinstance(each, Rule) for each in self.rules):
            raise TypeError("rules must be a tuple of Rule(rule, message)")
        if self.schema is not None and not isinstance(self.schema, str | Mapping):
            raise TypeError("schema must be an OpenAPI schema, or the name of a recorded definition")

    def __hash__(self) -> int:
        """Return a hash also if a default or a schema is a list or a map: types with markers are keys of typing."""
        return hash(repr(self))


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``."""

    name: str
    type: str
    json_path: str
    description: str | None = None
    priority: int | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for a type or a path that no API server accepts."""
        if self.type not in _COLUMNS:
            raise TypeError(f"the type of a column must be one of {', '.join(_COLUMNS)}, not {self.type}")
        if not self.name:
            raise TypeError("a column needs a name")
        _check_path("json_path", self.json_path)


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The scale subresource: where an object has its numbers of replicas and the selector of its pods."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str | None = None


class ConversionWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """The Service of the webhook that converts objects between the versions of a kind."""

    namespace: str
    name: str
    path: str = "/convert"
    port: int | None = None


class KindMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of the kind as a whole in a CustomResourceDefinition."""

    printer_columns: tuple[PrinterColumn, ...] = ()
    status_subresource: bool = False
    scale: Scale | None = None
    selectable_fields: tuple[str, ...] = ()
    """JSON paths of fields that field selectors of lists and watches may use, such as ``.spec.color``."""
    rules: tuple[Rule, ...] = ()
    served: bool = True
    storage: bool | None = None
    """True for the version in which objects are stored. If a kind has several versions, one of them needs it."""
    deprecated: bool | str = False
    """True or, as a text, the warning that clients of a deprecated version get."""
    short_names: tuple[str, ...] = ()
    """This field and those below apply to all versions of a kind: it suffices to set them in one of them."""
    categories: tuple[str, ...] = ()
    """Groups of kinds, such as ``all``, for ``kubectl get CATEGORY``."""
    singular: str = ""
    list_kind: str = ""
    conversion: ConversionWebhook | None = None
    """If None, the API server only changes the apiVersion when it converts an object to another version."""

    def __post_init__(self) -> None:
        """Find texts where a tuple of texts is needed: each of their letters would be taken for a name.

        Raises:
            TypeError: a value is not a tuple; its name is in the message.
        """
        for name in ("printer_columns", "selectable_fields", "rules", "short_names", "categories"):
            if not isinstance(getattr(self, name), tuple):
                raise TypeError(f"{name} must be a tuple")
        for path in self.selectable_fields:
            _check_path("selectable_fields", path)
        if self.scale is not None and not isinstance(self.scale, Scale):
            raise TypeError(
                f"scale must be a Scale, such as ctrl.crd.Scale(), not {type(self.scale).__name__}"
            )


Int32 = Annotated[int, pydantic.Field(ge=-(1 << 31), le=(1 << 31) - 1), Markers(format="int32")]
"""An integer that fits into 32 bits. The class and the API server refuse others, which typed Go clients cannot read."""
Int64 = Annotated[int, pydantic.Field(ge=-(1 << 63), le=(1 << 63) - 1), Markers(format="int64")]
"""An integer that fits into 64 bits."""

ATOMIC: Final = Markers(list_type="atomic")
MAP_BY_NAME: Final = Markers(list_type="map", list_map_keys=("name",))
MAP_BY_TYPE: Final = Markers(list_type="map", list_map_keys=("type",))
