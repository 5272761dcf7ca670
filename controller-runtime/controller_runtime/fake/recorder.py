# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An event recorder for unit tests."""

from __future__ import annotations

from dataclasses import dataclass

from controller_runtime.machinery import Object
from controller_runtime.recorder import NORMAL, WARNING, EventRecorder


@dataclass(frozen=True, slots=True)
class FakeEvent:
    """An event that was recorded."""

    object: Object
    """A copy of the object at the time of the event."""
    type: str
    reason: str
    message: str


class FakeRecorder(EventRecorder):
    """Keeps events in a list, oldest first, and writes none."""

    def __init__(self) -> None:
        self.events: list[FakeEvent] = []

    @property
    def reasons(self) -> list[str]:
        """The reasons of all events."""
        return [each.reason for each in self.events]

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        if event_type not in {NORMAL, WARNING}:
            raise ValueError(f"event type {event_type!r} must be {NORMAL} or {WARNING}")
        self.events.append(FakeEvent(obj.deep_copy(), event_type, reason, message))
