# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap that holds the default priority class and preemptibility of each kind of workload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn

from controller_runtime.machinery import GroupKind
from controller_runtime.machinery.raised import ExpectedError


class DefaultsError(ExpectedError):
    """The ConfigMap's content is invalid."""


@dataclass(frozen=True, slots=True)
class WorkloadDefaults:
    """Defaults of a kind of workload."""

    priority_name: str = ""
    preemptibility: str = ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of all kinds. Each key is ``Kind.group`` or just ``Kind``."""

    by_kind: Mapping[str, WorkloadDefaults] = field(default_factory=dict)

    def get(self, kind: GroupKind) -> WorkloadDefaults | None:
        """Return the defaults for ``Kind.group``, else for ``Kind``, else None."""
        found = self.by_kind.get(str(kind))
        return found if found is not None else self.by_kind.get(kind.kind)

    def __bool__(self) -> bool:
        return bool(self.by_kind)


_FIELDS: Final = {name.lower(): name for name in ("typeName", "group", "priorityName", "preemptibility")}


@lru_cache(maxsize=8)
def parse_defaults(text: str | None) -> Defaults:
    """Return the defaults from a ConfigMap's text: a JSON list of objects, decoded as Go decodes it.

    Field names are case-insensitive, unknown fields and nulls are ignored, and a later entry for a kind replaces an
    earlier one.

    Raises:
        DefaultsError: the text is missing or malformed.
    """
    if text is None:
        raise DefaultsError("default priorities configmap Data does not contain <types> key")
    try:
        entries = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DefaultsError(f"failed to unmarshal default priorities configmap data: {error}") from error
    if entries is None:
        return Defaults()
    if not isinstance(entries, list):
        raise DefaultsError("failed to unmarshal default priorities configmap data: not a list")
    by_kind = {}
    for entry in entries:
        said = _entry(entry)
        kind = GroupKind(said.get("group", ""), said.get("typeName", ""))
        by_kind[str(kind)] = WorkloadDefaults(said.get("priorityName", ""), said.get("preemptibility", ""))
    return Defaults(by_kind)


class _Pairs:
    """The fields of a JSON object in order. A repeated field occurs several times."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs


def _entry(entry: object) -> dict[str, str]:
    if entry is None:
        return {}
    if not isinstance(entry, _Pairs):
        raise DefaultsError(
            "failed to unmarshal default priorities configmap data: an entry must be an object"
        )
    said = {}
    for key, value in entry.pairs:
        name = _FIELDS.get(key.lower())
        if name is None or value is None:
            continue
        if not isinstance(value, str):
            raise DefaultsError(
                f"failed to unmarshal default priorities configmap data: {key} must be a string"
            )
        said[name] = value
    return said


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
