# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for events: one that is sent is stored, unless the server refuses it or cannot be reached for long.

A repetition raises the count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from controller_runtime.apis.core.v1 import Event as Reported
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.recorder import Broadcaster
from controller_runtime.rest import Request, Response

from .history import Event
from .loop import Process
from .network import WRITES, Observer

_MANY: Final = 10
"""Requests of one event after which a recorder may give it up."""


@dataclass
class _Sending:
    """The requests of the event that a process sends."""

    sent: int = 0
    refused: bool = False


class Events(Observer):
    """Follows the recorders of all processes; ``fail`` takes the description of a broken rule."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._stored: dict[NamespacedName, int] = {}
        """The highest count that the server has stored."""
        self._sending: dict[Process, _Sending] = {}

    def see(self, event: Event) -> None:
        """Note an event that is stored."""
        if event.table.facts.gvk == Reported.gvk and event.type != "DELETED":
            count = int(event.document.get("count") or 1)
            before = event.before or event.document
            # A patch whose answer was lost is sent again with the same time; one that is late has a lower count.
            repeats = before.get("lastTimestamp") != event.document.get("lastTimestamp")
            if repeats and count == int(before.get("count") or 1):
                self._fail(f"a repeated event is not counted: {event.key.name}: {count}")
            self._stored[event.key] = max(count, self._stored.get(event.key, 0))

    def follow(self, process: Process, broadcaster: Broadcaster) -> None:
        """Check the events of a process from now on."""
        send = broadcaster._send

        async def checked(verdict: Any) -> None:
            wanted, sending = verdict.event.count or 1, _Sending()
            self._sending[process] = sending
            await send(verdict)
            metadata = verdict.event.metadata
            stored = self._stored.get(NamespacedName(metadata.namespace, metadata.name), 0)
            if stored < wanted and not sending.refused and sending.sent < _MANY:
                self._fail(f"an event was lost: {process.name}: {verdict.event.message}")

        broadcaster._send = checked  # type: ignore[method-assign]

    def sends(self, process: Process, request: Request) -> None:
        """Count a request."""
        if _is_of_event(request) and process in self._sending:
            self._sending[process].sent += 1

    def answered(self, process: Process, request: Request, response: Response) -> None:
        """Note a refusal: not that the event exists already, or that the one to count on has expired."""
        expected = {"POST": 409, "PATCH": 404}.get(request.method)
        if _is_of_event(request) and process in self._sending:
            self._sending[process].refused |= response.status >= 400 and response.status != expected


def _is_of_event(request: Request) -> bool:
    return request.method in WRITES and "/events" in request.path
