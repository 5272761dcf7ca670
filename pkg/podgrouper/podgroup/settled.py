# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groups that were found up to date: the pods of a group describe the same group, one after another."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from controller_runtime.machinery import NamespacedName

from .metadata import Metadata
from .rules import Rules

CAPACITY: Final = 20_000
"""Most groups and subgroups remembered together."""


class _State(NamedTuple):
    version: str
    metadata: Metadata
    rules: Rules


class Settled:
    """The stored version of each group, and the description that it matched."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._states: OrderedDict[NamespacedName, _State] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._states)

    def has(self, key: NamespacedName, version: str, metadata: Metadata, rules: Rules) -> bool:
        """Return True if the group was found up to date in this version, for this description."""
        return bool(version) and self._states.get(key) == (version, metadata, rules)

    def add(self, key: NamespacedName, version: str, metadata: Metadata, rules: Rules) -> None:
        """Remember a group that is up to date; the oldest others are forgotten."""
        self.drop(key)
        self._states[key] = _State(version, metadata, rules)
        self._weight += _weight(metadata)
        while self._weight > self._capacity:
            self.drop(next(iter(self._states)))

    def drop(self, key: NamespacedName) -> None:
        """Forget a group."""
        if (state := self._states.pop(key, None)) is not None:
            self._weight -= _weight(state.metadata)


def _weight(metadata: Metadata) -> int:
    return 1 + len(metadata.sub_groups)
