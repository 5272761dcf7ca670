# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The slice of metav1 that kinds are made of."""

from __future__ import annotations

from typing import ClassVar

from controller_runtime.apis.machinery.base import Struct
from controller_runtime.apis.machinery.object import ManagedFieldsEntry as ManagedFieldsEntry
from controller_runtime.apis.machinery.object import ObjectMeta as ObjectMeta
from controller_runtime.apis.machinery.object import OwnerReference as OwnerReference


class Condition(Struct):
    """metav1.Condition."""

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
    """metav1.LabelSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key", "operator"})


class LabelSelector(Struct):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class ListMeta(Struct):
    """metav1.ListMeta."""

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
    """metav1.StatusCause."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(Struct):
    """metav1.StatusDetails."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class Status(Struct):
    """metav1.Status."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ListMeta | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    details: StatusDetails | None = None
    code: int | None = None


class Preconditions(Struct):
    """metav1.Preconditions."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Struct):
    """metav1.DeleteOptions."""

    api_version: str | None = None
    kind: str | None = None
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None
