# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A server's memory of changes: the log, the replicas that are behind it, and the watches that are sent its lines."""

from __future__ import annotations

import asyncio
import math
import random
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Any, Final

import anyio
import msgspec

from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.client.tables import Change, Document, Table, key_of
from controller_runtime.rest import Response, TransportError

from .loop import Delays
from .messages import Place, Stream

_version = attrgetter("version")


@dataclass(slots=True)
class Event:
    """One change: the object after it, and before it where there was one."""

    version: int
    type: str
    table: Table
    key: NamespacedName
    document: Document
    before: Document | None
    lines: dict[tuple[str, bool], bytes] = field(default_factory=dict)
    """The lines of watches that are shown the change, by the kind of the event and whether they show metadata alone."""


@dataclass(slots=True)
class _Kept:
    """The changes of one kind."""

    events: list[Event] = field(default_factory=list)
    forgotten: int = 0
    """The version of the last change that was compacted."""
    latest: dict[NamespacedName, Document] = field(default_factory=dict)


class History:
    """Every change since the last compaction, in order."""

    def __init__(self) -> None:
        self.floor = 0
        """Changes up to this version have been compacted."""
        self.replicas: list[Replica] = []
        self.listeners: list[Callable[[Event], None]] = []
        """Called with every change, at once."""
        self._versions: list[int] = []
        self._kept: dict[Table, _Kept] = {}

    def follow(self, table: Table) -> None:
        """Record the changes of a table from now on."""
        self._kept[table] = _Kept()
        table.followers.append(_Recorder(table, self.record))

    def record(self, table: Table, change: Change) -> None:
        """Add a change."""
        kept, key = self._kept[table], key_of(change.document)
        before = kept.latest.get(key)
        if change.type == "DELETED":
            kept.latest.pop(key, None)
        else:
            kept.latest[key] = change.document
        version = int(change.document["metadata"]["resourceVersion"])
        event = Event(version, change.type, table, key, change.document, before)
        kept.events.append(event)
        self._versions.append(version)
        for replica in self.replicas:
            replica.expect(event)
        for listener in self.listeners:
            listener(event)

    def between(self, table: Table, after: int, until: int) -> list[Event] | None:
        """Return the changes of a kind after one version, up to another; None if some of them were compacted."""
        kept = self._kept[table]
        if after < kept.forgotten:
            return None
        first = bisect_right(kept.events, after, key=_version)
        return kept.events[first : bisect_right(kept.events, until, lo=first, key=_version)]

    def at(self, table: Table, version: int) -> dict[NamespacedName, Document] | None:
        """Return the objects of a kind at a version; None if it was compacted."""
        if version < self.floor:
            return None
        kept = self._kept[table]
        objects = dict(kept.latest)
        for event in reversed(kept.events):
            if event.version <= version:
                break
            if event.before is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.before
        return objects

    def compact(self, keep: int = 0) -> None:
        """Forget all but the last ``keep`` changes."""
        forgotten = len(self._versions) - keep
        if forgotten <= 0:
            return
        self.floor = self._versions[forgotten - 1]
        del self._versions[:forgotten]
        for kept in self._kept.values():
            count = bisect_right(kept.events, self.floor, key=_version)
            if count:
                kept.forgotten = kept.events[count - 1].version
                del kept.events[:count]


class _Recorder:
    """A follower of a table that passes changes on at once."""

    def __init__(self, table: Table, record: Callable[[Table, Change], None]) -> None:
        self._table = table
        self._record = record

    def notify(self, change: Change) -> None:
        self._record(self._table, change)


class Replica:
    """One of several API servers: its watch cache is behind the store by a lag of its own.

    A change that nothing waits for is applied when the replica is next read: there is a timer only for the others.
    """

    def __init__(self, history: History, rng: random.Random, *, version: int) -> None:
        self.lags = Delays(lambda: rng.random() * 0.02)
        """How long after a change this replica knows of it."""
        self._applied = version
        self._rows: dict[Table, dict[NamespacedName, Document]] = {}
        self._latest: dict[Table, int] = {}
        self._waiting: dict[Table | None, list[asyncio.Future[None]]] = {}
        self._due = 0.0
        self._coming: deque[tuple[float, Event]] = deque()
        self._context = Context()
        """Where timers run: no process's end stops them."""
        history.replicas.append(self)

    @property
    def applied(self) -> int:
        """The version up to which this replica knows the changes."""
        self._catch_up()
        return self._applied

    def expect(self, event: Event) -> None:
        """Apply a change after the lag, and never before an earlier one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due = max(now + self.lags.longest(), self._due)
        if self._coming and self._coming[0][0] <= now:
            self._catch_up()
        self._coming.append((self._due, event))
        if event.table in self._waiting or None in self._waiting:
            loop.call_at(self._due, self._catch_up, context=self._context)

    def documents(self, table: Table) -> list[Document]:
        """Return the objects of a kind as this replica knows them, by namespace and name."""
        self._catch_up()
        return [document for _, document in sorted(self._rows.get(table, {}).items())]

    def latest(self, table: Table) -> int:
        """Return the version of the last change of a kind that this replica knows."""
        self._catch_up()
        return self._latest.get(table, 0)

    async def change(self, table: Table | None = None, until: float = math.inf) -> None:
        """Return at a time, or when the objects of a kind, or of any, change here, or their watchers are woken."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(table, [])
        waiting.append(waiter)
        if len(waiting) == 1 and (due := self._next(table)) is not None:
            loop.call_at(due, self._catch_up, context=self._context)
        timer = loop.call_at(until, _end, waiter, context=self._context) if until < math.inf else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in waiting:
                waiting.remove(waiter)
                if not waiting and self._waiting.get(table) is waiting:
                    del self._waiting[table]

    def wake(self, table: Table | None) -> None:
        """Wake the tasks that wait for a change of a kind."""
        for waiter in self._waiting.pop(table, ()):
            _end(waiter)

    def _next(self, table: Table | None) -> float | None:
        """Return the time at which this replica knows of the next change."""
        return next((due for due, event in self._coming if table in (None, event.table)), None)

    def _catch_up(self) -> None:
        """Apply the changes whose time has come."""
        coming = self._coming
        if not coming:
            return
        now = asyncio.get_running_loop().time()
        while coming and coming[0][0] <= now:
            _, event = coming.popleft()
            rows = self._rows.setdefault(event.table, {})
            if event.type == "DELETED":
                rows.pop(event.key, None)
            else:
                rows[event.key] = event.document
            self._applied = max(self._applied, event.version)
            self._latest[event.table] = event.version
            if self._waiting:
                self.wake(event.table)
                self.wake(None)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_BOOKMARK_PERIOD: Final = 60.0
_DEFAULT_TIMEOUT: Final = 1800.0


class Break(Enum):
    """How a connection ends before its time."""

    RESET = "reset"
    """With an error."""
    PROPER = "proper"
    """As if the server had ended it."""
    WITHIN_LINE = "within a line"
    """As if the server had ended it, with a part of the next line."""


class Watch:
    """One watch: the version that it has sent, and its state."""

    def __init__(self, place: Place, replica: Replica, version: int) -> None:
        self.place = place
        self.replica = replica
        self.version = version
        """Changes up to here have been sent."""
        self.broken: Break | None = None
        self.ended = False

    @property
    def table(self) -> Table:
        """The objects it is about."""
        return self.place.table

    def line(self, event: Event) -> bytes | None:
        """Return the line of a change; None when the watch does not see it."""
        place = self.place
        now = event.type != "DELETED" and place.picks(event.document)
        before = event.before is not None and place.picks(event.before)
        if not now and not before:
            return None
        kind = "MODIFIED" if now and before else "ADDED" if now else "DELETED"
        shown = kind, place.metadata_only
        if (line := event.lines.get(shown)) is None:
            line = event.lines[shown] = self._line(kind, event)
        return line

    def _line(self, kind: str, event: Event) -> bytes:
        document = event.document
        if kind == "DELETED" and event.before is not None:
            # As a server does: the last state that the watch saw, at the version of the change.
            metadata = {**event.before["metadata"], "resourceVersion": str(event.version)}
            document = {**event.before, "metadata": metadata}
        return encoded(kind, self.place.shown(document))


class Watches:
    """The watches that are open."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self.open_watches: list[Watch] = []
        self.delays = Delays[[Watch]]()
        """How long a line takes."""
        self._history = history
        self._rng = rng

    async def open(self, place: Place, replica: Replica, newest: str) -> Response:
        """Begin a watch.

        Raises:
            ExpiredError: the version that it begins from has been compacted.
        """
        query = place.query
        version = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true"
        if version not in ("", "0") and int(version) < self._history.floor and not initial:
            text = f"too old resource version: {version} ({self._history.floor})"
            raise errors.ExpiredError(text, code=410, reason="Expired")
        if initial and version in ("", None):
            version = newest
        begin = int(version) if version not in ("", "0") else replica.applied
        watch = Watch(place, replica, begin)
        self.open_watches.append(watch)
        timeout = float(query.get("timeoutSeconds") or _DEFAULT_TIMEOUT)
        lines = self._sent(watch, self._lines(watch, timeout, initial=initial or version in ("", "0")))
        return Stream(lines, lambda: self._end(watch))

    def cut(self, which: Callable[[Watch], bool] = lambda _: True) -> int:
        """Break the connections of watches, some within a line; return how many."""
        found = [watch for watch in self.open_watches if which(watch)]
        for watch in found:
            watch.broken = self._rng.choice(list(Break))
            watch.replica.wake(watch.table)
            watch.replica.wake(None)
        return len(found)

    def _end(self, watch: Watch) -> None:
        watch.ended = True
        if watch in self.open_watches:
            self.open_watches.remove(watch)

    async def _sent(self, watch: Watch, lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Yield lines as they arrive, until the connection breaks."""
        last = b""
        try:
            async with aclosing(lines):
                async for line in lines:
                    last = line
                    if (delay := self.delays.longest(watch)) > 0:
                        await anyio.sleep(delay)
                    if watch.broken is not None:
                        break
                    yield line
            match watch.broken:
                case Break.RESET:
                    raise TransportError("the connection broke")
                case Break.WITHIN_LINE if last:
                    # A proxy ends the answer properly, and the client takes the rest for a line.
                    yield last[: self._rng.randrange(len(last))]
        finally:
            self._end(watch)

    async def _lines(self, watch: Watch, timeout: float, *, initial: bool) -> AsyncGenerator[bytes]:
        deadline = anyio.current_time() + timeout
        bookmark = anyio.current_time() + _BOOKMARK_PERIOD
        if initial:
            async with aclosing(self._begin(watch)) as lines:
                async for line in lines:
                    yield line
        while watch.broken is None and anyio.current_time() < deadline:
            for line in self._pending(watch):
                yield line
            await self._change(watch, min(deadline, bookmark))
            if anyio.current_time() >= bookmark:
                bookmark = anyio.current_time() + _BOOKMARK_PERIOD
                for line in self._pending(watch):
                    yield line
                yield bookmark_line(watch)

    async def _begin(self, watch: Watch) -> AsyncGenerator[bytes]:
        while watch.replica.applied < watch.version and watch.broken is None:
            await watch.replica.change()
        documents = watch.replica.documents(watch.table)
        watch.version = max(watch.version, watch.replica.applied)
        for document in documents:
            if watch.place.picks(document):
                yield encoded("ADDED", watch.place.shown(document))
        if watch.place.query.get("sendInitialEvents") == "true":
            yield bookmark_line(watch, initial=True)

    def _pending(self, watch: Watch) -> list[bytes]:
        """Return the lines of the changes that the replica has applied since the last, oldest first."""
        applied = watch.replica.applied
        events = self._history.between(watch.table, watch.version, applied)
        watch.version = max(watch.version, applied)
        if events is None:
            gone = errors.ExpiredError("too old resource version", code=410, reason="Expired")
            return [encoded("ERROR", errors.to_status(gone))]
        return [line for event in events if (line := watch.line(event)) is not None]

    async def _change(self, watch: Watch, until: float) -> None:
        if watch.broken is None and watch.version >= watch.replica.latest(watch.table):
            await watch.replica.change(watch.table, until)


def encoded(kind: str, document: Any) -> bytes:
    """Return the line of an event."""
    return msgspec.json.encode({"type": kind, "object": document})


def bookmark_line(watch: Watch, *, initial: bool = False) -> bytes:
    """Return the line of a bookmark."""
    metadata: Document = {"resourceVersion": str(watch.version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    gvk = watch.place.gvk
    return encoded("BOOKMARK", {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata})
