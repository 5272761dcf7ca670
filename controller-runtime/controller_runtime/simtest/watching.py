# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watches on a simulated server: events of a replica as lines, bookmarks, streaming lists, and their ends."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import Enum
from typing import Any, Final

import anyio
import msgspec

from controller_runtime.apis.machinery import errors
from controller_runtime.client.tables import Document, Table
from controller_runtime.rest import Response, TransportError

from . import answers
from .delays import Delays
from .history import Event, History, Replica
from .paths import Place

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
        return answers.Stream(lines, lambda: self._end(watch))

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
