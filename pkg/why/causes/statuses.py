# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The containers of the pods that count, with their states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from controller_runtime.machinery import JSON

from pkg.why.snapshot import Snapshot, step_of
from pkg.why.things import Thing, at, maps, number, text

_PARTS: Final = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))


@dataclass(frozen=True, slots=True)
class Status:
    """One container and its status."""

    pod: Thing
    name: str
    image: str
    data: JSON
    is_init: bool

    @property
    def waiting(self) -> str:
        """The reason for which the container waits, or an empty string."""
        return text(self.data, "state", "waiting", "reason")

    @property
    def message(self) -> str:
        """The message of the state."""
        return text(self.data, "state", "waiting", "message") or text(
            self.data, "state", "terminated", "message"
        )

    @property
    def ended(self) -> JSON:
        """The termination that counts: the current one, or the last one of a container that waits to start again."""
        current = at(self.data, "state", "terminated")
        if current is not None:
            return current
        return at(self.data, "lastState", "terminated") if self.waiting else None

    @property
    def restarts(self) -> int:
        """The number of restarts."""
        return number(self.data, "restartCount")

    @property
    def label(self) -> str:
        """The container as a phrase."""
        kind = "init container" if self.is_init else "container"
        return f"{kind} {self.name}" + (
            f" of step {step_of(self.pod)}" if step_of(self.pod) != self.name else ""
        )

    @property
    def line(self) -> str:
        """The state as a line of evidence."""
        parts = [f"container {self.name} of {self.pod}"]
        if self.waiting:
            parts.append(f"waits: {self.waiting}{f' ({self.message})' if self.message else ''}")
        if (ended := self.ended) is not None:
            reason, code = text(ended, "reason"), number(ended, "exitCode")
            parts.append(f"ended with exit code {code}{f' ({reason})' if reason else ''}")
        if self.restarts:
            parts.append(f"{self.restarts} restarts")
        return ", ".join(parts)


def statuses(snapshot: Snapshot) -> Iterator[Status]:
    """Yield the containers of the pods that count."""
    for pod in snapshot.pods:
        yield from of_pod(pod)


def of_pod(pod: Thing) -> Iterator[Status]:
    """Yield the containers of a pod that have a status."""
    for specs, states in _PARTS:
        images = {text(each, "name"): text(each, "image") for each in maps(pod.data, "spec", specs)}
        for each in pod.maps("status", states):
            name = text(each, "name")
            yield Status(pod, name, images.get(name, ""), each, is_init=specs == "initContainers")
