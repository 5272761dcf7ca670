# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""metav1: the structs that kinds of all API groups share, and functions for metav1 times, which are RFC 3339 in UTC."""

import re
from datetime import UTC, datetime
from typing import ClassVar, Final

from .base import JSON, Struct

_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


class OwnerReference(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"controller", "block_owner_deletion"})


class ManagedFieldsEntry(Struct):
    """metav1.ManagedFieldsEntry; ``fieldsV1`` stays undecoded."""

    manager: str | None = None
    operation: str | None = None
    api_version: str | None = None
    time: str | None = None
    fields_type: str | None = None
    fields_v1: JSON = None
    subresource: str | None = None


class ObjectMeta(Struct):
    """metav1.ObjectMeta; times are RFC 3339 strings."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[ManagedFieldsEntry] | None = None


class Condition(Struct):
    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"type", "status", "last_transition_time", "reason", "message"}
    )


class LabelSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key", "operator"})


class LabelSelector(Struct):
    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class ListMeta(Struct):
    resource_version: str | None = None
    continue_: str | None = None
    remaining_item_count: int | None = None


class GroupVersionKind(Struct):
    """metav1.GroupVersionKind, as admission reviews carry it."""

    group: str = ""
    version: str = ""
    kind: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"group", "version", "kind"})


class GroupVersionResource(Struct):
    """metav1.GroupVersionResource, as admission reviews carry it."""

    group: str = ""
    version: str = ""
    resource: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"group", "version", "resource"})


class StatusCause(Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(Struct):
    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class Status(Struct):
    api_version: str | None = None
    kind: str | None = None
    metadata: ListMeta | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    details: StatusDetails | None = None
    code: int | None = None


class Preconditions(Struct):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Struct):
    api_version: str | None = None
    kind: str | None = None
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None


def format_time(moment: datetime) -> str:
    """Return ``moment``, which must have a time zone, as a metav1.Time; fractions of a second are cut off."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """Return ``moment``, which must have a time zone, as a metav1.MicroTime, with microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parse a metav1.Time, a metav1.MicroTime or another ISO 8601 time with a time zone; the result is in UTC.

    Raises:
        ValueError: ``text`` is not a time, has no time zone, or is outside the years 1 to 9999 in UTC.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"not a time of the years 1 to 9999 in UTC: {text!r}") from error


def is_time(text: str) -> bool:
    """Return True if Go can read ``text`` as a metav1.Time: other ISO 8601 times are refused."""
    try:
        return _RFC3339.fullmatch(text) is not None and bool(parse_time(text))
    except ValueError:
        return False
