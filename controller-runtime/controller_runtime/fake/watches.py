# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The history of a server's objects, the views that lists and watches read, and the watches that are open."""

from __future__ import annotations

import asyncio
import functools
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import anyio
import msgspec

from controller_runtime.machinery import NamespacedName, errors
from controller_runtime.rest import Response

from .requests import ParsedRequest, Stream
from .storage import Storage
from .tables import Change, Document, Table, key_of

_version = attrgetter("version")


@dataclass(slots=True)
class Event:
    """One change of an object: its state after the change and, if it existed, its state before the change."""

    version: int
    type: str
    table: Table
    key: NamespacedName
    document: Document
    before: Document | None
    lines: dict[tuple[str, bool], bytes] = field(default_factory=dict)
    """Lines that were already encoded for this change. The key is the event type and ``metadata_only``."""


@dataclass(slots=True)
class _Kept:
    """The changes of one kind."""

    events: list[Event] = field(default_factory=list)
    forgotten: int = 0
    """The version of the last change that was compacted."""


class History:
    """Every change since the last compaction, in order.

    If ``keep`` is not zero, the history is compacted to the last ``keep`` changes when it has more than twice as many.
    """

    def __init__(self, *, keep: int = 0) -> None:
        self.floor = 0
        """Changes up to this version have been compacted."""
        self.listeners: list[Callable[[Event], None]] = []
        """Functions that are called with each change at the moment when it is stored."""
        self._keep = keep
        self._versions: list[int] = []
        self._kept: dict[Table, _Kept] = {}

    def follow(self, table: Table) -> None:
        """Record the changes of a table from now on."""
        self._kept[table] = _Kept()
        table.followers.append(functools.partial(self.record, table))

    def record(self, table: Table, change: Change) -> None:
        version = int(change.document["metadata"]["resourceVersion"])
        event = Event(version, change.type, table, key_of(change.document), change.document, change.before)
        self._kept[table].events.append(event)
        self._versions.append(version)
        if self._keep and len(self._versions) > 2 * self._keep:
            self.compact(self._keep)
        for listener in self.listeners:
            listener(event)

    def between(self, table: Table, after: int, until: int) -> list[Event] | None:
        """Return the changes of a kind after version ``after`` up to ``until``, or None if any of them is compacted."""
        kept = self._kept[table]
        if after < kept.forgotten:
            return None
        first = bisect_right(kept.events, after, key=_version)
        return kept.events[first : bisect_right(kept.events, until, lo=first, key=_version)]

    def at(self, table: Table, version: int) -> dict[NamespacedName, Document] | None:
        """Return the objects of a kind as they were at a version, or None if the version was compacted."""
        if version < self.floor:
            return None
        kept = self._kept[table]
        objects = {key: row.document for key, row in table.rows.items()}
        for event in reversed(kept.events):
            if event.version <= version:
                break
            if event.before is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.before
        return objects

    def compact(self, keep: int = 0) -> None:
        """Forget all changes except the last ``keep``."""
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


class View(ABC):
    """The state of the objects that lists and watches see; it may be older than the storage."""

    def __init__(self, history: History) -> None:
        self._waiting: dict[Table | None, list[asyncio.Future[None]]] = {}
        history.listeners.append(self.expect)

    @property
    @abstractmethod
    def applied(self) -> int:
        """The version up to which the view shows all changes."""

    @abstractmethod
    def expect(self, event: Event) -> None:
        """Receive a change that was just stored. The view may show it later."""

    @abstractmethod
    def documents(self, table: Table) -> list[Document]:
        """Return the objects of a kind that the view shows, sorted by namespace and name."""

    @abstractmethod
    def latest(self, table: Table) -> int:
        """Return the version of the last change of a kind that the view already shows."""

    @abstractmethod
    def plan(self, table: Table | None) -> None:
        """Make sure that ``wake(table)`` is called at the next change of ``table`` or, if it is None, of any table."""

    async def change(self, table: Table | None = None, until: float = math.inf) -> None:
        """Wait until the view shows a change of ``table`` or, if ``table`` is None, of any table.

        The wait also ends when the loop's time reaches ``until``, or when :meth:`wake` is called.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(table, [])
        waiting.append(waiter)
        if len(waiting) == 1:
            self.plan(table)
        # The timer has a new context, so that it does not stop when a simulated process ends.
        timer = loop.call_at(until, _end, waiter, context=Context()) if until < math.inf else None
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
        """Wake the tasks that wait for a change of ``table``; with None, those that wait for a change of any table."""
        for waiter in self._waiting.pop(table, ()):
            _end(waiter)


class Current(View):
    """The objects as they are stored."""

    def __init__(self, history: History, storage: Storage) -> None:
        super().__init__(history)
        self._storage = storage
        self._latest: dict[Table, int] = {}

    @property
    def applied(self) -> int:
        return int(self._storage.version)

    def expect(self, event: Event) -> None:
        """Wake the tasks that wait for a change of this kind or of any kind."""
        self._latest[event.table] = event.version
        self.wake(event.table)
        self.wake(None)

    def plan(self, table: Table | None) -> None:
        """Do nothing: each change is shown at once."""

    def documents(self, table: Table) -> list[Document]:
        return table.documents()

    def latest(self, table: Table) -> int:
        return self._latest.get(table, 0)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_BOOKMARK_PERIOD: Final = 60.0
_DEFAULT_TIMEOUT: Final = 1800.0


class ServedWatch:
    """One open watch, and the version up to which it has sent changes."""

    def __init__(self, parsed: ParsedRequest, view: View, version: int) -> None:
        self.parsed = parsed
        self.view = view
        self.version = version
        """Changes up to this version have been sent."""
        self.is_cut = False
        """True once the server wants to end the watch."""

    @property
    def table(self) -> Table:
        return self.parsed.table

    def line(self, event: Event) -> bytes | None:
        """Return the line for a change, or None if the selectors matched the object neither before nor after it."""
        parsed = self.parsed
        now = event.type != "DELETED" and parsed.picks(event.document)
        before = event.before is not None and parsed.picks(event.before)
        if not now and not before:
            return None
        kind = "MODIFIED" if now and before else "ADDED" if now else "DELETED"
        representation = kind, parsed.metadata_only
        if (line := event.lines.get(representation)) is None:
            line = event.lines[representation] = self._line(kind, event)
        return line

    def _line(self, kind: str, event: Event) -> bytes:
        document = event.document
        if kind == "DELETED" and event.before is not None:
            # As a server does, send the last state that the watch saw, with the version of the change.
            metadata = {**event.before["metadata"], "resourceVersion": str(event.version)}
            document = {**event.before, "metadata": metadata}
        return encoded(kind, self.parsed.representation(document))


class Watches:
    """The watches that are open."""

    def __init__(self, history: History) -> None:
        self.open_watches: list[ServedWatch] = []
        self._history = history

    def open(self, parsed: ParsedRequest, view: View, newest: str) -> Response:
        """Return the stream of a new watch.

        Raises:
            ExpiredError: the resourceVersion in the request has been compacted.
        """
        query = parsed.query
        version = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true"
        if version not in ("", "0") and int(version) < self._history.floor and not initial:
            text = f"too old resource version: {version} ({self._history.floor})"
            raise errors.ExpiredError(text, code=410, reason="Expired")
        if initial and not version:
            version = newest
        begin = int(version) if version not in ("", "0") else view.applied
        watch = ServedWatch(parsed, view, begin)
        self.open_watches.append(watch)
        timeout = float(query.get("timeoutSeconds") or _DEFAULT_TIMEOUT)
        lines = self._sent(watch, self._lines(watch, timeout, initial=initial or version in ("", "0")))
        return Stream(lines, lambda: self._end(watch))

    def cut(self, which: Callable[[ServedWatch], bool] = lambda _: True) -> int:
        """End the watches for which ``which`` returns True, by default all; return their number."""
        chosen = [watch for watch in self.open_watches if which(watch)]
        for watch in chosen:
            self.cut_one(watch)
        return len(chosen)

    def cut_one(self, watch: ServedWatch) -> None:
        watch.is_cut = True
        watch.view.wake(watch.table)
        watch.view.wake(None)

    def _end(self, watch: ServedWatch) -> None:
        if watch in self.open_watches:
            self.open_watches.remove(watch)

    async def _sent(self, watch: ServedWatch, lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Yield each line as it arrives. At the end, remove the watch from ``open_watches``."""
        try:
            async with aclosing(lines):
                async for line in lines:
                    yield line
        finally:
            self._end(watch)

    async def _lines(self, watch: ServedWatch, timeout: float, *, initial: bool) -> AsyncGenerator[bytes]:
        deadline = anyio.current_time() + timeout
        bookmark = anyio.current_time() + _BOOKMARK_PERIOD
        if initial:
            async with aclosing(self._begin(watch)) as lines:
                async for line in lines:
                    yield line
        while not watch.is_cut and anyio.current_time() < deadline:
            for line in self._pending(watch):
                yield line
            if not watch.is_cut and watch.version >= watch.view.latest(watch.table):
                await watch.view.change(watch.table, min(deadline, bookmark))
            if anyio.current_time() >= bookmark:
                bookmark = anyio.current_time() + _BOOKMARK_PERIOD
                for line in self._pending(watch):
                    yield line
                yield bookmark_line(watch)

    async def _begin(self, watch: ServedWatch) -> AsyncGenerator[bytes]:
        while watch.view.applied < watch.version and not watch.is_cut:
            await watch.view.change()
        documents = watch.view.documents(watch.table)
        watch.version = max(watch.version, watch.view.applied)
        for document in documents:
            if watch.parsed.picks(document):
                yield encoded("ADDED", watch.parsed.representation(document))
        if watch.parsed.query.get("sendInitialEvents") == "true":
            yield bookmark_line(watch, initial=True)

    def _pending(self, watch: ServedWatch) -> list[bytes]:
        """Return the lines of the changes that have become visible since the last call, oldest first."""
        applied = watch.view.applied
        events = self._history.between(watch.table, watch.version, applied)
        watch.version = max(watch.version, applied)
        if events is None:
            gone = errors.ExpiredError("too old resource version", code=410, reason="Expired")
            return [encoded("ERROR", errors.to_status(gone))]
        return [line for event in events if (line := watch.line(event)) is not None]


def encoded(kind: str, document: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": document})


def bookmark_line(watch: ServedWatch, *, initial: bool = False) -> bytes:
    metadata: Document = {"resourceVersion": str(watch.version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    gvk = watch.parsed.gvk
    return encoded("BOOKMARK", {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata})
