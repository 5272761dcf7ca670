# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watch: the changes of one kind as an async iterator, for programs that need no cache."""

from __future__ import annotations

import random
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, cast

import anyio
import msgspec

from controller_runtime import log, rest
from controller_runtime.machinery import Object, PartialObjectMetadata, rawjson
from controller_runtime.machinery.errors import ExpiredError, StatusError, TooManyRequestsError
from controller_runtime.rest import request as requests

from .interfaces import EventType, ObjectList, WatchEvent
from .live import LiveClient, decode_listed

T = TypeVar("T", bound=Object)
OUTAGE_GRACE: Final = 3.0
"""Seconds of failures after which the log says that a watch is interrupted."""
_log: Final = log.logger_from("client")


class _EventError(rest.AnswerError):
    """The object of an event is not of the kind. Every new connection would deliver the same event again."""


class Watch(Generic[T]):
    """The changes of a kind, in order: see :meth:`controller_runtime.client.LiveClient.watch`.

    Use it as a context manager, or call :meth:`aclose`, to release its connection. If a wait for the next event is
    cancelled, e.g. by a time-out, the connection is closed. The next wait opens another connection; no event is lost or
    repeated.
    """

    def __init__(self, client: LiveClient, kind: type[T], options: requests.WatchOptions) -> None:
        self._client = client
        self._kind = kind
        self._options = options
        self._loop = rest.WatchLoop(
            client.transport,
            partial(client.mapper.resource_for, kind),
            self,
            random=random.random,
            metadata_only=issubclass(kind, PartialObjectMetadata),
            **options,
        )
        self._list_first = not self._loop.version
        self._listed: ObjectList[T] | None = None
        """The existing objects that have not been returned yet, the next one last."""
        self._event: WatchEvent[T] | None = None
        self._waiting: anyio.CancelScope | None = None
        """The scope of a task that waits for the next event."""
        self._connected = self._closed = False
        self._is_open = self._breaks = False
        """``_breaks`` is True if the last failure was that of an open connection."""
        self._failing_since: float | None = None
        self._told = False
        """True if the log says that the watch is interrupted."""

    @property
    def resource_version(self) -> str:
        """The version up to which all changes have been returned; a later watch can continue from it."""
        return self._loop.version

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        if self._closed:
            raise StopAsyncIteration
        event: WatchEvent[T] | None = None
        try:
            with anyio.CancelScope() as self._waiting:
                event = await self._next()
        except (StatusError, rest.RestError):
            self._closed = True
            raise
        finally:
            self._waiting = None
        if self._closed or event is None:  # another task has called aclose meanwhile
            await self._loop.close()
            raise StopAsyncIteration
        return event

    async def _next(self) -> WatchEvent[T]:
        if self._list_first:
            if self._listed is None:
                options = self._options
                self._listed = await self._client.list(
                    self._kind,
                    namespace=options.get("namespace", ""),
                    labels=options.get("labels"),
                    fields=options.get("fields"),
                )
                self._listed.reverse()
            if self._listed:
                return WatchEvent("ADDED", self._listed.pop())
            self._loop.version = self._listed.resource_version
            self._list_first, self._listed = False, None
        while self._event is None:
            await self._loop.follow(once=True)
        event, self._event = self._event, None
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, and close the connection. If another task waits for the next event, its iteration ends."""
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()  # this task closes the connection
        else:
            await self._loop.close()

    # What the watch loop calls.

    def connected(self) -> None:
        """From now on, failures are retried."""
        self._connected = self._is_open = True
        if not self._breaks:
            self._works()

    def _works(self) -> None:
        """Log that an outage is over. If connections break again and again, opening one does not show it."""
        if self._told and self._failing_since is not None:
            after = f"{anyio.current_time() - self._failing_since:.0f} s"
            _log.info("Watch continues", kind=str(self._kind.gvk.group_kind), after=after)
        self._failing_since, self._told = None, False

    def receive(self, event: str, raw: msgspec.Raw | dict[str, msgspec.Raw]) -> str:
        """Keep the event of an object for the caller, unless the object cannot be decoded.

        Raises:
            AnswerError: the object has no readable resourceVersion.
        """
        try:
            version = rawjson.bookmark_of(raw).resource_version
            decoded = decode_listed(self._kind, msgspec.json.encode(raw))
        except RecursionError as error:
            _log.warning("Object skipped", kind=str(self._kind.gvk.group_kind), reason=str(error))
            return ""
        except rawjson.UNREADABLE as error:
            raise _EventError(str(error)) from error
        if decoded is not None:
            self._event = WatchEvent(cast("EventType", event), decoded)
        if self._failing_since is not None:
            self._works()
        return version

    def reached(self, version: str) -> None:
        """Record that the watch works. The caller reads the version of the watch loop."""
        if self._failing_since is not None:
            self._works()

    def skip(self, reason: str) -> None:
        """Log a line that cannot be read."""
        _log.warning("Line skipped", kind=str(self._kind.gvk.group_kind), reason=reason)

    def resumes(self, error: Exception, failures: int) -> bool:
        """Return False before the first connection, and if a new connection would fail in the same way.

        If failures last, there is one warning.
        """
        del failures
        self._breaks, self._is_open = self._is_open, False
        if isinstance(error, StatusError):
            busy = error.code >= 500 or isinstance(error, TooManyRequestsError)
            passes = busy and not isinstance(error, ExpiredError)
        else:
            passes = isinstance(error, rest.TransportError | rest.StreamStoppedError)
            passes = passes and not isinstance(error, _EventError)
        if not (passes and self._connected):
            return False
        now = anyio.current_time()
        if self._failing_since is None:
            self._failing_since = now
        lasts = not self._told and now - self._failing_since >= OUTAGE_GRACE
        self._told = self._told or lasts
        level = _log.warning if lasts else _log.debug
        text = "Watch is interrupted, and is tried again" if lasts else "Watch failed"
        level(text, kind=str(self._kind.gvk.group_kind), resourceVersion=self.resource_version, error=error)
        return True
