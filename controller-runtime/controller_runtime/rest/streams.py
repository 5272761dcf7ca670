# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Responses that arrive line by line, and the loop that keeps a watch open: the cache and ``client.watch`` use it.

```
          ┌────────── ended or silent ──────────┐
          ▼                                     │
 ──► connection ── failed, or ended at once ── wait
                          │
                 the follower gives up: raised
```
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime.machinery import Resource, rawjson
from controller_runtime.machinery.backoff import Backoff, RandomFunc, exponential
from controller_runtime.machinery.errors import (
    ForbiddenError,
    MethodNotAllowedError,
    NotFoundError,
    StatusError,
    from_status,
)

from . import errors, http1
from . import request as requests
from .layers import Response, RoundTripper

_LONGEST_LINE: Final = 1 << 26
_WATCH_TIMEOUT: Final = 300.0
"""The server ends a watch after this many seconds, or up to twice as many: the time is random, so that not all watches
end together."""
_SILENCE_TIMEOUT: Final = 70.0
"""If a watch has no line for this many seconds, it is reopened: servers send a bookmark every minute."""
_SHORT_WATCH: Final = 1.0
"""If a watch ends within this many seconds, we wait before we open the next one."""
_SPREAD: Final = 0.1
"""A delay that the server requested is lengthened by up to this fraction, so that clients do not retry together."""
TURN_BYTES: Final = 256 << 10
"""Other tasks get a turn after this many bytes of objects."""
SMALLEST_OBJECT: Final = 16 << 10
"""Each object counts as at least this many bytes of a turn."""
DENIED: Final = (NotFoundError, ForbiddenError, MethodNotAllowedError, errors.NoKindMatchError)
"""The server refuses the kind itself: it is not served, or access is denied."""


class StreamResponse(Response):
    """A response whose body arrives in pieces, which a subclass yields."""

    host: str
    """The server's address, for errors."""

    @abstractmethod
    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            TransportError, http1.Error: the connection broke.
        """

    async def read(self) -> bytes:
        try:
            return b"".join([piece async for piece in self.pieces()])
        except http1.Error as error:
            raise errors.TransportError(str(error), host=self.host) from error

    async def lines(self) -> AsyncIterator[bytes]:
        pending: list[bytes] = []
        length = 0
        try:
            async for piece in self.pieces():
                first, *others = piece.split(b"\n")
                pending.append(first)
                length = length + len(first) if not others else len(others[-1])
                if length > _LONGEST_LINE:
                    raise errors.AnswerError(f"a line is longer than {_LONGEST_LINE} bytes", host=self.host)
                for following in others:
                    # A line may be large: keep no reference to it or its parts while the caller processes it.
                    pending = [b"".join(pending)]
                    yield pending.pop()
                    pending.append(following)
        except http1.Error as error:
            raise errors.TransportError(str(error), host=self.host) from error
        if rest := b"".join(pending):
            yield rest


class StreamStoppedError(errors.RestError):
    """A connection was silent for too long or ended early: the peer is unreachable or does not stream."""


class Follower(Protocol):
    """Receives the events of a watch. Its methods return at once."""

    def connected(self) -> None:
        """Record that the server has accepted the watch."""

    def receive(self, event: str, raw: msgspec.Raw | dict[str, msgspec.Raw]) -> str:
        """Process an object that was ADDED, MODIFIED or DELETED.

        ``raw`` are the undecoded fields of the object, which may be changed, or its text if it is nested very deeply.

        Return its resourceVersion, or an empty string if the object cannot be decoded.
        """

    def reached(self, version: str) -> None:
        """Record that the server has reported every change up to ``version``."""

    def skip(self, reason: str) -> None:
        """Report a line that cannot be read."""

    def resumes(self, error: Exception, failures: int) -> bool:
        """Return True to watch again after ``error``, before which ``failures`` attempts in a row had failed.

        Return False to have ``error`` raised.
        """


class WatchLoop:
    """Watches a kind on one connection after the other, each of which continues after :attr:`version`."""

    def __init__(
        self,
        transport: RoundTripper,
        resource: Callable[[], Awaitable[Resource]],
        follower: Follower,
        *,
        random: RandomFunc,
        metadata_only: bool = False,
        namespace: str = "",
        labels: requests.LabelSelectorLike | None = None,
        fields: Mapping[str, str] | str | None = None,
        resource_version: str = "",
    ) -> None:
        self.version = resource_version
        """The version up to which the server has reported all changes."""
        self._transport = transport
        self._resource = resource
        self._follower = follower
        self._random = random
        self._request = partial(
            requests.watch, metadata_only=metadata_only, namespace=namespace, labels=labels, fields=fields
        )
        self._response: Response | None = None
        self._lines: AsyncIterator[bytes]
        self._opened: float | None = None
        """When the current or last connection was opened; None if opening it failed."""
        self._begun = ""
        """The version at which the current connection began."""
        self._has_bookmarks = False
        """True if the server sends bookmarks to watches."""
        self._silent = 0
        self._failures = 0
        self._backoff = Backoff(random=random)
        self._denied_backoff = Backoff(first=1.0, longest=10.0, jitter=0.2, random=random)
        # Retries put no load on an unreachable server, and we want to notice soon when the server is back.
        self._unreachable_backoff = Backoff(longest=8.0, jitter=0.25, random=random)
        self._delay = 0.0
        """The last delay after a failure."""
        self._not_before = 0.0

    async def follow(self, *, once: bool = False) -> None:
        """Pass the changes after :attr:`version` to the follower, until it gives up after a failure.

        With ``once``, return after one event, and keep the connection for the next call. If the call is cancelled, the
        connection is closed; no event is lost, because the next call continues after :attr:`version`.
        """
        while True:
            if (seconds := self._not_before - anyio.current_time()) > 0:
                await anyio.sleep(seconds)
            ended: Exception | None = None
            keep = False
            try:
                if self._response is None:
                    self._opened = None
                    await self.open()
                keep = await self._read(once=once)
                if keep:
                    return
            except (StatusError, errors.RestError) as error:
                ended = error
            finally:
                if not keep:
                    await self.close()
            self._not_before = anyio.current_time() + self._delay_before_next(ended)

    def _delay_before_next(self, ended: Exception | None) -> float:
        """Return the seconds until the next connection after one that ended, with an error or without.

        Raises:
            StatusError, RestError: the follower gives up after this failure.
        """
        lasted = 0.0 if self._opened is None else anyio.current_time() - self._opened
        failures, self._failures = self._failures, 0
        if self._opened is not None and isinstance(ended, StreamStoppedError):
            # The connection may be dead. A new connection resumes where this one stopped. If the server was alive, this
            # costs one request, and nothing is listed again.
            self._silent += 1
            return 0.0
        if ended is None:
            if lasted >= _SHORT_WATCH:
                return 0.0
            if self.version != self._begun:
                self._delay = self._backoff.next(anyio.current_time())
                return self._delay
            # The server may be unable to watch from this version.
            ended = StreamStoppedError("the watch ended at once and delivered nothing")
        elif self._opened is not None and lasted >= self._delay:
            # The watch outlived its preceding delay, so reset the delays. Otherwise watches that break repeatedly, but
            # work in between, would leave us without changes most of the time.
            for backoff in (self._backoff, self._denied_backoff, self._unreachable_backoff):
                backoff.reset()
        if lasted >= _SHORT_WATCH:
            failures = 0
        if not self._follower.resumes(ended, failures):
            raise ended
        self._failures = failures + 1
        return self.backoff_after(ended)

    async def open(self, *, initial_from: str | None = None) -> None:
        """Open a connection; with ``initial_from``, it first delivers every object, no older than this version."""
        request = self._request(
            await self._resource(),
            resource_version=self.version if initial_from is None else initial_from,
            timeout_seconds=int(_WATCH_TIMEOUT * (1 + self._random())),
            send_initial_events=initial_from is not None,
        )
        response = await self._transport.send(request)
        await response.raise_for_status()
        self._response, self._lines = response, response.lines()
        self._opened, self._begun = anyio.current_time(), self.version
        self._follower.connected()

    async def read_existing(self, timeout: float) -> None:
        """Pass every existing object to the follower. The same connection then delivers the changes.

        Raises:
            StreamStoppedError: no line came for ``timeout`` seconds, or the response ended before every object was
                passed. Do not stream again: a proxy may end every stream.
        """
        if not await self._read(initial_timeout=timeout):
            raise StreamStoppedError("the stream ended before it had delivered every object")
        self._opened, self._begun = anyio.current_time(), self.version

    async def close(self) -> None:
        """Close the connection, if one is open."""
        response, self._response = self._response, None
        if response is not None:
            if isinstance(self._lines, AsyncGenerator):
                await self._lines.aclose()
            await response.close()

    def backoff_after(self, error: Exception) -> float:
        """Return the delay after ``error``: the delay that the server requested, or the back-off."""
        if isinstance(error, StatusError) and error.retry_after:
            self._delay = error.retry_after * (1 + _SPREAD * self._random())
        else:
            backoff = self._denied_backoff if isinstance(error, DENIED) else self._backoff
            if isinstance(error, errors.TransportError):
                backoff = self._unreachable_backoff
            self._delay = backoff.next(anyio.current_time())
        return self._delay

    async def _read(self, *, once: bool = False, initial_timeout: float | None = None) -> bool:
        """Pass the events of the connection to the follower. Return False when the response ends.

        Return True after one event with ``once``, and with ``initial_timeout`` after every existing object.

        Raises:
            StreamStoppedError: no line came for too long.
            StatusError: the server reported an error in a line.
        """
        initial = initial_timeout is not None
        if initial_timeout is not None:
            limit = initial_timeout
        elif self._has_bookmarks:
            limit = _SILENCE_TIMEOUT
        else:
            # Silence is a sign of a dead connection only if the server sends bookmarks. Until the server has sent one,
            # each silent watch doubles the time.
            limit = exponential(self._silent, _SILENCE_TIMEOUT, 2 * _WATCH_TIMEOUT + 30)
        with anyio.move_on_after(limit) as watchdog:
            turn = 0
            now, receive = asyncio.get_running_loop().time, self._receive
            async for line in self._lines:
                if line and (receive(line, initial=initial) or once):
                    return True
                if self._has_bookmarks and not initial:
                    limit = _SILENCE_TIMEOUT
                deadline = now() + limit
                if abs(deadline - watchdog.deadline) > 1:
                    watchdog.deadline = deadline
                turn += max(len(line), SMALLEST_OBJECT)
                if turn >= TURN_BYTES:
                    turn = 0
                    await anyio.lowlevel.checkpoint()
            return False
        raise StreamStoppedError(f"no line for {limit:.0f} s")

    def _receive(self, line: bytes, *, initial: bool) -> bool:
        """Pass the event of a line to the follower; return True if every existing object has been passed.

        Raises:
            StatusError: the line is an ERROR line.
        """
        raw: msgspec.Raw | dict[str, msgspec.Raw]
        try:
            try:
                event = rawjson.decode_line(line)
                kind, raw = event.type, event.object
            except (RecursionError, msgspec.ValidationError):  # the latter for an object that is no map
                fields = rawjson.fields(line)
                kind, raw = msgspec.json.decode(fields["type"], type=str), fields["object"]
            bookmark = rawjson.bookmark_of(raw) if kind == "BOOKMARK" else None
        except (*rawjson.UNREADABLE, KeyError) as error:
            self._follower.skip(f"a watch line of {len(line)} bytes is unreadable: {error}")
            return False
        if bookmark is not None:
            if initial and not bookmark.ends_initial_events:
                return False
            self.version = bookmark.resource_version or self.version
            if not initial:
                # A server that sends bookmarks sends one every minute: from now on, silence means a dead connection.
                self._has_bookmarks = True
                self._follower.reached(self.version)
            return initial
        match kind:
            case "ADDED" | "MODIFIED" | "DELETED":
                version = self._follower.receive(kind, raw)
                if not initial:
                    # Initial events have no order: a watch cannot resume from their versions.
                    self.version = version or self.version
            case "ERROR":
                try:
                    status = msgspec.json.decode(msgspec.json.encode(raw))
                except rawjson.UNREADABLE:
                    status = None
                raise from_status(status if isinstance(status, dict) else {}, http_code=500)
            case other:
                self._follower.skip(f"a watch line of unknown type {other!r}")
        return False
