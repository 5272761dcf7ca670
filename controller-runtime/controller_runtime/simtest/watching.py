# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watches on a simulated server: events of a replica as lines, bookmarks, streaming lists, and their ends."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
import msgspec

from controller_runtime.apis.machinery import errors
from controller_runtime.client.tables import Document, Table
from controller_runtime.rest import Response, TransportError

from . import answers
from .history import Event, History, Replica
from .paths import Place

_BOOKMARK_PERIOD: Final = 60.0
_DEFAULT_TIMEOUT: Final = 1800.0


class Watch:
    """One watch: what it has sent, and whether it still runs."""

    def __init__(self, place: Place, replica: Replica, version: int) -> None:
        self.place = place
        self.replica = replica
        self.version = version
        """Changes up to here have been sent."""
        self.broken = False
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
        document = event.document
        if kind == "DELETED" and event.before is not None:
            # As a server does: the last state that the watch saw, at the version of the change.
            metadata = {**event.before["metadata"], "resourceVersion": str(event.version)}
            document = {**event.before, "metadata": metadata}
        return encoded(kind, place.shown(document))


class Watches:
    """The watches that are open."""

    def __init__(self, history: History) -> None:
        self.open_watches: list[Watch] = []
        self.delay: Callable[[], float] = lambda: 0.0
        """Draws how long a line takes, in seconds."""
        self._history = history

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
        lines = self._lines(watch, timeout, initial=initial or version in ("", "0"))
        return answers.Stream(lines, lambda: self._end(watch))

    def cut(self, which: Callable[[Watch], bool] = lambda _: True) -> int:
        """Break the connections of watches; return how many."""
        found = [watch for watch in self.open_watches if which(watch)]
        for watch in found:
            watch.broken = True
            watch.replica.changed.set()
            watch.replica.changed = anyio.Event()
        return len(found)

    def _end(self, watch: Watch) -> None:
        watch.ended = True
        if watch in self.open_watches:
            self.open_watches.remove(watch)

    async def _lines(self, watch: Watch, timeout: float, *, initial: bool) -> AsyncIterator[bytes]:
        deadline = anyio.current_time() + timeout
        bookmark = anyio.current_time() + _BOOKMARK_PERIOD
        try:
            async for line in self._begin(watch, initial=initial):
                yield line
            while anyio.current_time() < deadline:
                for line in self._pending(watch):
                    await self._travel(watch)
                    yield line
                with anyio.CancelScope(deadline=min(deadline, bookmark)):
                    await self._changed(watch)
                if anyio.current_time() >= bookmark:
                    bookmark = anyio.current_time() + _BOOKMARK_PERIOD
                    for line in self._pending(watch):
                        await self._travel(watch)
                        yield line
                    await self._travel(watch)
                    yield bookmark_line(watch)
        finally:
            self._end(watch)

    async def _begin(self, watch: Watch, *, initial: bool) -> AsyncIterator[bytes]:
        if not initial:
            return
        while watch.replica.applied < watch.version:
            await self._changed(watch)
        documents = watch.replica.documents(watch.table)
        watch.version = max(watch.version, watch.replica.applied)
        for document in documents:
            if watch.place.picks(document):
                await self._travel(watch)
                yield encoded("ADDED", watch.place.shown(document))
        if watch.place.query.get("sendInitialEvents") == "true":
            await self._travel(watch)
            yield bookmark_line(watch, initial=True)

    def _pending(self, watch: Watch) -> deque[bytes]:
        """Return the lines of what the replica has learned since the last, oldest first."""
        applied, lines = watch.replica.applied, deque[bytes]()
        if watch.version < self._history.floor:
            gone = errors.ExpiredError("too old resource version", code=410, reason="Expired")
            watch.version = applied
            return deque([encoded("ERROR", errors.to_status(gone))])
        for event in reversed(self._history.events):
            if event.version <= watch.version:
                break
            if event.version <= applied and event.table is watch.table:
                line = watch.line(event)
                if line is not None:
                    lines.appendleft(line)
        watch.version = max(watch.version, applied)
        return lines

    async def _changed(self, watch: Watch) -> None:
        if not watch.broken and watch.version >= watch.replica.applied:
            await watch.replica.changed.wait()
        self._check(watch)

    async def _travel(self, watch: Watch) -> None:
        if (delay := self.delay()) > 0:
            await anyio.sleep(delay)
        self._check(watch)

    def _check(self, watch: Watch) -> None:
        if watch.broken:
            raise TransportError("the connection broke")


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
