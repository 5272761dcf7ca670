# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager under test, and its reads and writes as the rules know them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from controller_runtime.apis.machinery.gvk import GVK, NamespacedName
from controller_runtime.controller import Controller
from controller_runtime.manager import Manager

from .loop import Process

Place = tuple[GVK, NamespacedName]


@dataclass(frozen=True, slots=True)
class Written:
    uid: str
    version: int
    ended: bool = False
    """Whether the server has removed the object with this write."""


@dataclass
class Replica:
    """A manager, and its writes."""

    process: Process
    manager: Manager
    has_led: bool = False
    controllers: list[Controller] = field(default_factory=list)
    answered: dict[asyncio.Task[Any] | None, dict[Place, Written]] = field(default_factory=dict)
    """Writes of a task that has not read since; the call may not have returned yet."""
    written: dict[Place, Written] = field(default_factory=dict)
    read: dict[tuple[Any, Place], Written] = field(default_factory=dict)
    """The newest version that a read of a class returned."""

    @property
    def identity(self) -> str:
        """Its name on the lease."""
        elector = self.manager._elector
        return elector.identity if elector is not None else ""
