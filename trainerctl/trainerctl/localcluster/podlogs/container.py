# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One container of a pod: its spec, and the times in its status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controller_runtime.machinery import JSON
from pkg.why import Thing
from pkg.why.snapshot import COMPLETION_INDEX
from pkg.why.things import maps, moment, number, text

_SPECS: Final = ("containers", "initContainers")
_STATUSES: Final = ("containerStatuses", "initContainerStatuses")


@dataclass(frozen=True)
class Container:
    """A container of a pod; it need not exist."""

    pod: Thing
    name: str

    @property
    def spec(self) -> JSON:
        """The container in the pod's spec, or None."""
        return self._named(("spec", kind) for kind in _SPECS)

    @property
    def started(self) -> datetime | None:
        """The time of its start, or None before it."""
        return moment(self._state, "running", "startedAt") or moment(self._state, "terminated", "startedAt")

    @property
    def ended(self) -> datetime | None:
        """The time of its end, or None while it runs."""
        return moment(self._state, "terminated", "finishedAt")

    @property
    def exit_code(self) -> int:
        """The exit code of a container that has ended."""
        return number(self._state, "terminated", "exitCode")

    @property
    def waiting_reason(self) -> str:
        """The reason for which it has not started."""
        return text(self._state, "waiting", "reason") or "ContainerCreating"

    @property
    def rank(self) -> int:
        """The completion index of the pod."""
        index = self.pod.annotation(COMPLETION_INDEX)
        return int(index) if index.isascii() and index.isdecimal() else 0

    def variable(self, name: str) -> str:
        """Return the value of an environment variable, or an empty one."""
        values = [text(each, "value") for each in maps(self.spec, "env") if each.get("name") == name]
        return values[-1] if values else ""

    @property
    def _state(self) -> JSON:
        found = self._named(("status", kind) for kind in _STATUSES)
        return found.get("state") if found else None

    def _named(self, paths: Iterable[tuple[str, str]]) -> dict[str, JSON] | None:
        found = (each for path in paths for each in self.pod.maps(*path))
        return next((each for each in found if each.get("name") == self.name), None)
