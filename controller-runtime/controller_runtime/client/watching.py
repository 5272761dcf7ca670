# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watch: the changes of one kind as an async iterator, for programs that need no cache."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, cast

import anyio
import msgspec

from controller_runtime import log, rest
from controller_runtime.machinery import Object, PartialObjectMetadata, errors, rawjson
from controller_runtime.machinery.backoff import Backoff
from controller_runtime.rest import request as requests

from .interfaces import EventType, ObjectList, WatchEvent
from .live import LiveClient, decode_listed

T = TypeVar("T", bound=Object)
_TIMEOUT: Final = 300.0
"""Minimum seconds after which the server ends a connection. The actual time is random, up to twice as long, so that not
all connections end together."""
_SILENCE: Final = 70.0
"""If the server sends bookmarks (one per minute), a connection without a line for this many seconds is replaced."""
_SHORT: Final = 1.0
"""A connection that ends within this many seconds is replaced after a delay."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_log = log.logger_from("client")


class _EventError(rest.AnswerError):
    """The object of an event is not of the kind. Every new connection would deliver the same event again."""


class Watch(Generic[T]):
    """The changes of a kind, in order: see :meth:`controller_runtime.client.LiveClient.watch`.

    Use it as a context manager, or call :meth:`aclose`, to release its connection. If a wait for the next event is
    cancelled, e.g. by a time-out, the connection is closed. The next wait opens another connection; no event is lost or
    repeated.
    """

    def __init__(self, client: LiveClient, kind: type[T], options: requests.WatchOptions) -> None:
        self.resource_version = options.get("resource_version", "")
        """The version up to which all changes have been returned; a later watch can continue from it."""
        self._client = client
        self._kind = kind
        self._options = options
        self._listed: ObjectList[T] | None = None
        """The existing objects that have not been returned yet, the next one last."""
        self._bookmarks = False
        self._connected = self._closed = False
        self._backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, random=random.random)
        self._not_before = 0.0
        self._events = self._follow()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        try:
            return await anext(self._events)
        except asyncio.CancelledError:
            # The cancellation ended the generator. Nothing is lost: an event is returned as soon as it is read, and
            # the objects of a list are returned without waiting in between.
            self._events = self._follow()
            raise
        except (errors.StatusError, rest.RestError):
            self._closed = True
            raise
        except StopAsyncIteration:
            if self._closed:
                raise
            # The generator was closed with its event loop: continue after the last event.
            self._events = self._follow()
            return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, and close the connection."""
        self._closed = True
        await self._events.aclose()

    async def _follow(self) -> AsyncGenerator[WatchEvent[T], None]:
        if not self.resource_version:
            async for event in self._existing():
                yield event
        while True:
            await anyio.sleep(max(0.0, self._not_before - anyio.current_time()))
            opened = anyio.current_time()
            delay = 0.0
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        yield event
            except (rest.TransportError, errors.StatusError) as error:
                delay = self._delay(error)
            lasted = anyio.current_time() - opened
            if lasted >= _SHORT:
                self._backoff.reset()
            if delay or lasted < _SHORT:
                pause = max(delay, self._backoff.next(anyio.current_time()))
                self._not_before = anyio.current_time() + pause

    async def _existing(self) -> AsyncGenerator[WatchEvent[T], None]:
        options = self._options
        if self._listed is None:
            self._listed = await self._client.list(
                self._kind,
                namespace=options.get("namespace", ""),
                labels=options.get("labels"),
                fields=options.get("fields"),
            )
            self._listed.reverse()
        while self._listed:  # kept outside the generator, which may be closed before all objects are returned
            yield WatchEvent("ADDED", self._listed.pop())
        self.resource_version, self._listed = self._listed.resource_version, None

    async def _connection(self) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the events of one connection, until it ends or is silent for too long."""
        timeout = _TIMEOUT * (1 + random.random())  # noqa: S311 -- spreads load
        response = await self._client.transport.send(await self._request(timeout))
        await response.raise_for_status()
        self._connected = True
        lines = rest.Lines(response)
        following = aiter(lines)
        try:
            while True:
                line: bytes | None = None
                with anyio.move_on_after(_SILENCE if self._bookmarks else timeout + _SILENCE):
                    line = await anext(following, None)
                if line is None:
                    return
                if line and (event := self._event(line)) is not None:
                    yield event
        finally:
            await lines.close()

    async def _request(self, timeout: float) -> rest.Request:
        options = self._options
        return requests.watch(
            await self._client.mapper.resource_for(self._kind),
            namespace=options.get("namespace", ""),
            labels=options.get("labels"),
            fields=options.get("fields"),
            resource_version=self.resource_version,
            timeout_seconds=int(timeout),
            metadata_only=issubclass(self._kind, PartialObjectMetadata),
        )

    def _event(self, line: bytes) -> WatchEvent[T] | None:
        """Return the event of a line; None for a bookmark or for an object that cannot be decoded.

        Raises:
            TransportError: the line is cut off.
            StatusError: the server ended the watch with an error.
            AnswerError: the object has no readable resourceVersion.
        """
        try:
            event = rawjson.decode_line(line)
        except RecursionError as error:
            _log.warning("Object skipped", kind=str(self._kind.gvk.group_kind), reason=str(error))
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise rest.TransportError(f"a watch line of {len(line)} bytes is undecodable: {error}") from error
        if event.type == "ERROR":
            raise errors.from_status(rest.decoded(msgspec.json.decode, event.object), http_code=500)
        made: WatchEvent[T] | None = None
        try:
            version = rest.decoded(rawjson.decode_marked, event.object).metadata.resource_version
            if event.type in _EVENTS:
                found = decode_listed(self._kind, bytes(event.object))
                made = None if found is None else WatchEvent(cast("EventType", event.type), found)
        except rest.AnswerError as error:
            raise _EventError(str(error)) from error
        self._bookmarks |= event.type == "BOOKMARK"
        self.resource_version = version or self.resource_version
        return made

    def _delay(self, error: rest.TransportError | errors.StatusError) -> float:
        """Return the delay before the next connection.

        If a new connection would fail in the same way, raise ``error``.
        """
        if isinstance(error, errors.StatusError):
            busy = error.code >= 500 or isinstance(error, errors.TooManyRequestsError)
            lasts = not busy or isinstance(error, errors.ExpiredError)
        else:
            lasts = isinstance(error, _EventError)
        if lasts or not self._connected:
            raise error
        kind = str(self._kind.gvk.group_kind)
        _log.debug("Watch failed", kind=kind, resourceVersion=self.resource_version, error=error)
        return (error.retry_after or 0.0) if isinstance(error, errors.StatusError) else _FIRST_PAUSE
