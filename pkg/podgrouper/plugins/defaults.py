# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap of defaults: which priority class and preemptibility a kind of workload has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NoReturn

from controller_runtime.apis.machinery.gvk import GroupKind


class DefaultsError(Exception):
    """The ConfigMap does not hold what it is to hold."""


@dataclass(frozen=True, slots=True)
class WorkloadDefaults:
    """What a kind of workload has where nothing else says."""

    priority_name: str = ""
    preemptibility: str = ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults by ``Kind.group`` or by ``Kind``."""

    by_kind: Mapping[str, WorkloadDefaults] = field(default_factory=dict)

    def get(self, kind: GroupKind) -> WorkloadDefaults | None:
        """Return those of ``kind``: under its full name, else under its kind alone."""
        found = self.by_kind.get(str(kind))
        return found if found is not None else self.by_kind.get(kind.kind)

    def __bool__(self) -> bool:
        return bool(self.by_kind)


_FIELDS: Final = {name.lower(): name for name in ("typeName", "group", "priorityName", "preemptibility")}


@lru_cache(maxsize=8)
def parse_defaults(text: str | None) -> Defaults:
    """Return the defaults that a ConfigMap's text says: a JSON list of objects, read as Go reads them.

    Names of fields are compared without case, unknown fields and nulls are passed over, a later entry for
    a kind replaces an earlier one.

    Raises:
        DefaultsError: there is no text, or it is something else.
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
    """A JSON object's fields in the order written, repeated ones too."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _entry(entry: Any) -> dict[str, str]:
    if entry is None:
        return {}
    if not isinstance(entry, _Pairs):
        raise DefaultsError("failed to unmarshal default priorities configmap data: an entry is no object")
    said = {}
    for key, value in entry.pairs:
        name = _FIELDS.get(key.lower())
        if name is None or value is None:
            continue
        if not isinstance(value, str):
            raise DefaultsError(f"failed to unmarshal default priorities configmap data: {key} is no string")
        said[name] = value
    return said


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
