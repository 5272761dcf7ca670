# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The trace of one pod's group, as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from controller_runtime.machinery import JSON
from pkg.constants import kai

from trainerctl.offline.snapshot import Key

Data = dict[str, JSON]
Values = dict[str, JSON]

_REPEATED: Final = f"annotations[{kai.TOP_OWNER_METADATA_KEY}]"
"""Repeats the top owner, and is not printed for people."""


@dataclass(slots=True)
class GroupTrace:
    """One pod's group, and the causes of its values."""

    pod: Key
    left_alone: str = ""
    """Why the pod grouper ignores the pod; empty if it does not."""
    owners: list[Key] = field(default_factory=list)
    """Nearest first, the top owner last; for a pod without owners the pod itself."""
    grouper: str = ""
    values: Values = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    """The causes of each value; a value without causes is the grouper's own."""
    missing: list[Key] = field(default_factory=list)
    """Objects that the grouper requested and that do not exist."""
    refusal: str = ""
    """Why the pod has no group; empty if it has one."""

    def to_dict(self) -> Data:
        """Return the trace as JSON."""
        data: Data = {"pod": f"{self.pod.namespace}/{self.pod.name}"}
        if self.left_alone:
            return {**data, "leftAlone": self.left_alone}
        if self.owners:
            data["owners"] = [
                {"apiVersion": key.kind.api_version, "kind": key.kind.kind, "name": key.name}
                for key in self.owners
            ]
            data["grouper"] = self.grouper
        if self.missing:
            data["missing"] = [str(key) for key in self.missing]
        if self.refusal:
            return {**data, "refused": self.refusal}
        return {**data, "group": self.values, "dueTo": self.sources}

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield what is printed for people: names, values, and the causes of the values."""
        if self.left_alone:
            yield "left alone", self.left_alone, ""
        if self.owners:
            yield "owners", " → ".join(map(str, self.owners)), ""
            yield "grouper", self.grouper, ""
        for name, value in self.values.items():
            if name == _REPEATED:
                continue
            due = ", ".join(self.sources.get(name, ())) or ("" if name == "owner" else "by default")
            if isinstance(value, list):
                yield name, "", due
                yield from (("", _flow(each), "") for each in value)
            else:
                yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), due
        if self.missing:
            yield "not given", ", ".join(map(str, self.missing)), ""
        if self.refusal:
            yield "refused", self.refusal, ""


def _flow(sub_group: Data) -> str:
    rest = (f"{name} {_flow(held) if isinstance(held, dict) else held}" for name, held in sub_group.items())
    return ", ".join(rest).removeprefix("name ")
