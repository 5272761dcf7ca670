# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds without a grouper in code: a declaration states where their numbers of pods are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, JSON, Unstructured
from controller_runtime.machinery.gojson import go_text

from pkg.podgrouper.podgroup import Metadata, SubGroupMetadata

from .defaultgrouper import DefaultGrouper
from .delegating import DelegatingGrouper
from .errors import GroupingError
from .gonumbers import MAX_INT32
from .grouper import Reads

EACH: Final = "[*]"
"""The step of a path to every item of a list; the numbers below are added."""
MOST_ITEMS: Final = 10_000
"""Most list items that are read of one owner."""
_MISSING: Final = 1
"""The number of pods where a field is missing, as in Kubernetes' own kinds."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of pods: ``number``, or the one at ``path`` in the owner."""

    number: int = 0
    path: tuple[str, ...] = ()

    def of(self, owner: Unstructured) -> int:
        """Return the number for ``owner``.

        Raises:
            GroupingError: the path leads to something else than numbers of pods.
        """
        if not self.path:
            return self.number
        values: list[JSON] = [
            owner.to_dict() if self.path[0] not in ("spec", "status") else owner.unknown_fields
        ]
        for step in self.path:
            values = [below for value in values for below in self._below(owner, value, step)]
            if len(values) > MOST_ITEMS:
                raise self._error(owner, f"has more than {MOST_ITEMS} items")
        total = sum(self._number(owner, value) for value in values)
        return total if total <= MAX_INT32 else self._number(owner, total)

    def _below(self, owner: Unstructured, value: JSON, step: str) -> list[JSON]:
        if step == EACH:
            if value is not None and not isinstance(value, list):
                raise self._error(owner, f"must lead through a list, not {go_text(value)}")
            return value or []
        if value is not None and not isinstance(value, dict):
            raise self._error(owner, f"must lead through maps, not {go_text(value)}")
        return [(value or {}).get(step)]

    def _number(self, owner: Unstructured, value: JSON) -> int:
        if value is None:
            return _MISSING
        if type(value) is not int or not 0 <= value <= MAX_INT32:
            raise self._error(owner, f"must be a number of pods from 0 to {MAX_INT32}, not {go_text(value)}")
        return value

    def _error(self, owner: Unstructured, message: str) -> GroupingError:
        path = ".".join(self.path).replace(f".{EACH}", EACH)
        return GroupingError(f"{owner.gvk.kind} {owner.namespace}/{owner.name}: {path} {message[:256]}")


@dataclass(frozen=True, slots=True)
class SubGroupRule:
    """A subgroup, and the labels of its pods."""

    name: str
    pod_labels: tuple[tuple[str, str], ...]
    amount: Amount


@dataclass(frozen=True, slots=True)
class Declaration:
    """How the pods of a kind are grouped. Without ``amount``, all subgroups are required."""

    kind: GVK
    amount: Amount | None = None
    sub_groups: tuple[SubGroupRule, ...] = ()


class DeclaredGrouper(DelegatingGrouper):
    """Groups the pods of a kind as a declaration states."""

    name = "Declared Grouper"
    reads = Reads.OBJECT

    def __init__(self, default: DefaultGrouper, declaration: Declaration) -> None:
        super().__init__(default)
        self._declaration = declaration

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Set the required pods and the subgroups, without those that need no pods.

        Raises:
            GroupingError: the owner has no number where the declaration expects one.
        """
        declared = self._declaration
        groups = [
            (SubGroupMetadata(name=rule.name, min_available=rule.amount.of(owner)), rule)
            for rule in declared.sub_groups
        ]
        own = next((group for group, rule in groups if set(rule.pod_labels) <= pod.labels.items()), None)
        if own is not None:
            own.pods_references.append(pod.name)
        metadata.sub_groups = [group for group, _ in groups if group.min_available or group is own]
        total = sum(group.min_available for group in metadata.sub_groups)
        needed = total if declared.amount is None else declared.amount.of(owner)
        metadata.min_available = min(max(needed, 1), MAX_INT32)
