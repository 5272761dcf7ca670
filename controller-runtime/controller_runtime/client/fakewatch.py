# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The watch of a FakeClient: the counterpart of `LiveClient.watch` over objects in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

import anyio

from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.gojson import quote
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object

from .calls import object_of
from .tables import Change, Document, Table, key_of
from .watching import EventType, WatchEvent

T = TypeVar("T", bound=Object)
Matches = Callable[[Document], bool]


class FakeWatch(Generic[T]):
    """The changes of a kind, in order: see :meth:`controller_runtime.client.FakeClient.watch`.

    Use it as a context manager, or call :meth:`close` or :meth:`aclose`. A wait for the next event may be cancelled.
    """

    def __init__(
        self, kind: type[T], table: Table, selects: Callable[[], Matches], resource_version: str, newest: str
    ) -> None:
        self.resource_version = resource_version
        """The version up to which all changes have been returned; a later watch can continue from it."""
        self._kind = kind
        self._table = table
        self._error: errors.StatusError | None = None
        self._pending: deque[tuple[str, WatchEvent[T] | None]] = deque()
        self._changed = anyio.Event()
        self._closed = False
        self._known: dict[NamespacedName, Document] = {}
        table.followers.append(self)
        try:
            self._matches = selects()
            if resource_version in ("", "0"):
                self._list(newest)
            else:
                self._replay(resource_version)
        except errors.StatusError as error:
            self._error = error
            self.close()

    def notify(self, change: Change) -> None:
        """Add a change."""
        self._take(change, key_of(change.document))
        self._changed.set()

    def close(self) -> None:
        """End the iteration after the changes until now."""
        if not self._closed:
            self._closed = True
            self._table.followers.remove(self)
            self._changed.set()

    async def aclose(self) -> None:
        """End the iteration."""
        self.close()
        self._pending.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while True:
            while self._pending:
                self.resource_version, event = self._pending.popleft()
                if event is not None:
                    return event
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _list(self, newest: str) -> None:
        for key, row in sorted(self._table.rows.items()):
            self._take(Change("ADDED", row.document), key)
        # The version of a list is known once all its objects are.
        self._pending = deque((self.resource_version, event) for _, event in self._pending)
        self._pending.append((newest, None))

    def _replay(self, text: str) -> None:
        """Take the changes after a version.

        Raises:
            ExpiredError: they are not kept any more.
            BadRequestError: the version is not one.
        """
        if not text.isdecimal():
            message = f"the resourceVersion {quote(text)} is not valid"
            raise errors.BadRequestError(message, code=400, reason="BadRequest")
        version = int(text)
        if version < self._table.forgotten:
            message = f"too old resource version: {version} ({self._table.forgotten + 1})"
            raise errors.ExpiredError(message, code=410, reason="Expired")
        later = [change for change in self._table.changes if _version_of(change.document) > version]
        before = {key: row.document for key, row in self._table.rows.items()}
        for change in reversed(later):
            key = key_of(change.document)
            if change.before is None:
                before.pop(key, None)
            else:
                before[key] = change.before
        self._known = {key: document for key, document in before.items() if self._matches(document)}
        for change in later:
            self._take(change, key_of(change.document))

    def _take(self, change: Change, key: NamespacedName) -> None:
        """Add the event of a change: objects that start or stop matching are ADDED or DELETED."""
        document = change.document
        version = str(document["metadata"]["resourceVersion"])
        known = self._known.pop(key, None)
        matches = self._matches(document)
        if change.type != "DELETED" and matches:
            self._known[key] = document
            kind = "ADDED" if known is None else "MODIFIED"
        elif known is not None:
            kind = "DELETED"
            if not matches:  # the last state that matched, as a server sends it
                document = {**known, "metadata": {**known["metadata"], "resourceVersion": version}}
        else:
            self._pending.append((version, None))
            return
        event = WatchEvent(cast("EventType", kind), object_of(self._kind, document))
        self._pending.append((version, event))


def _version_of(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])
