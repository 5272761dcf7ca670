# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A recorder of events that keeps their texts."""

from __future__ import annotations

from controller_runtime.machinery import Object


class Recorder:
    """Keeps each event as ``TYPE REASON: MESSAGE``, and the name of its object."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.names: list[str] = []

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        self.events.append(f"{event_type} {reason}: {message}")
        self.names.append(obj.name)

    def event_once(self, obj: Object, event_type: str, reason: str, message: str, *, key: str) -> None:
        """Keep an event unless it was kept before; ``key``, by which the real recorder knows it, is in the message."""
        assert key in message
        if f"{event_type} {reason}: {message}" not in self.events:
            self.event(obj, event_type, reason, message)
