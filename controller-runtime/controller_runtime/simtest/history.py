# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a server remembers of changes: the log that watches read, and the replicas that are behind it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.client.tables import Change, Document, Table, key_of


@dataclass(frozen=True, slots=True)
class Event:
    """One change: the object after it, and before it where there was one."""

    version: int
    type: str
    table: Table
    key: NamespacedName
    document: Document
    before: Document | None


class History:
    """Every change since the last compaction, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.floor = 0
        """Changes up to this version have been compacted."""
        self.replicas: list[Replica] = []
        self.listeners: list[Callable[[Event], None]] = []
        """Called with every change, at once."""
        self._latest: dict[tuple[int, NamespacedName], Document] = {}

    def follow(self, table: Table) -> None:
        """Record the changes of a table from now on."""
        table.followers.append(_Recorder(table, self.record))  # type: ignore[arg-type]

    def record(self, table: Table, change: Change) -> None:
        """Add a change."""
        key = key_of(change.document)
        place = (id(table), key)
        before = self._latest.get(place)
        if change.type == "DELETED":
            self._latest.pop(place, None)
        else:
            self._latest[place] = change.document
        version = int(change.document["metadata"]["resourceVersion"])
        event = Event(version, change.type, table, key, change.document, before)
        self.events.append(event)
        for replica in self.replicas:
            replica.expect(event)
        for listener in self.listeners:
            listener(event)

    def compact(self, keep: int = 0) -> None:
        """Forget all but the last ``keep`` changes."""
        forgotten = len(self.events) - keep
        if forgotten > 0:
            self.floor = self.events[forgotten - 1].version
            del self.events[:forgotten]


class _Recorder:
    """A follower of a table that passes changes on at once."""

    def __init__(self, table: Table, record: Callable[[Table, Change], None]) -> None:
        self._table = table
        self._record = record

    def notify(self, change: Change) -> None:
        self._record(self._table, change)


class Replica:
    """One of several API servers: its watch cache is behind the store by a lag of its own."""

    def __init__(self, history: History, rng: random.Random, *, version: int) -> None:
        self.applied = version
        self.rows: dict[int, dict[NamespacedName, Document]] = {}
        self.lag: Callable[[], float] = lambda: rng.random() * 0.02
        """Draws how long after a change this replica knows of it, in seconds."""
        self.changed = anyio.Event()
        self._history = history
        self._due = 0.0
        self._coming: deque[Event] = deque()
        history.replicas.append(self)

    def expect(self, event: Event) -> None:
        """Apply a change after the lag, and never before an earlier one."""
        loop = asyncio.get_running_loop()
        self._due = max(loop.time() + self.lag(), self._due)
        self._coming.append(event)
        loop.call_at(self._due, self._apply)

    def documents(self, table: Table) -> list[Document]:
        """Return the objects of a kind as this replica knows them, by namespace and name."""
        return [document for _, document in sorted(self.rows.get(id(table), {}).items())]

    def _apply(self) -> None:
        event = self._coming.popleft()  # timers of one moment come in any order, changes do not
        rows = self.rows.setdefault(id(event.table), {})
        if event.type == "DELETED":
            rows.pop(event.key, None)
        else:
            rows[event.key] = event.document
        self.applied = max(self.applied, event.version)
        self.changed.set()
        self.changed = anyio.Event()
