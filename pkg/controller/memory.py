# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What this process remembers of an unfinished TrainJob. If it is lost, requests and events are repeated, no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from controller_runtime.machinery import GVK, NamespacedName

Name = tuple[GVK, NamespacedName]


@dataclass(slots=True)
class Memory:
    """The record of one TrainJob."""

    arrived: datetime | None = None
    """When its watch delivered it."""
    settled: dict[Name, tuple[bytes, bytes]] = field(default_factory=dict)
    """For each child that needs no apply, the digests of the desired and of the live object."""
    compared: tuple[str | None, int] | None = None
    """Its uid and generation when its running JobSet was compared with it."""
    rebuilt: bytes | None = None
    """The JobSet for which an earlier one was deleted."""
    terminating: datetime | None = None
    """Until when nothing is created, because its namespace is being terminated."""
    reported: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each reason of an event, the causes that last."""


class Memories(dict[NamespacedName, Memory]):
    """The records by TrainJob; the first access makes one."""

    def __missing__(self, key: NamespacedName) -> Memory:
        made = self[key] = Memory()
        return made
