# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The records that this process keeps of unfinished TrainJobs.

If the records are lost, requests and events are repeated; the resulting objects are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from controller_runtime.machinery import GVK, NamespacedName

Name = tuple[GVK, NamespacedName]


@dataclass(slots=True)
class Memory:
    """The record of one TrainJob."""

    arrived: datetime | None = None
    """The time at which the watch delivered the TrainJob."""
    matched: dict[Name, tuple[bytes, bytes]] = field(default_factory=dict)
    """For each child that needs no apply, the digest of the desired object and the digest of the live object."""
    compared: tuple[str | None, int] | None = None
    """The TrainJob's uid and generation when the TrainJob was last compared with its running JobSet."""
    rebuilt: bytes | None = None
    """The JSON of the desired JobSet for which the previous JobSet was deleted."""
    terminating: datetime | None = None
    """The time before which nothing is created, because the namespace is being terminated."""
    reported: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each event reason, the causes that have been reported and still exist."""


class Memories(dict[NamespacedName, Memory]):
    """The records by TrainJob. The first access to a TrainJob's record creates it."""

    def __missing__(self, key: NamespacedName) -> Memory:
        made = self[key] = Memory()
        return made
