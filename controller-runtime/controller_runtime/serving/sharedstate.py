# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""State that the connections of one server share: the handlers, and the limits of connections and of memory for bodies.

A server with too many connections closes the connection that has waited longest for its client. When request bodies
take too much memory, the server stops reading bodies. If that does not help within a second, the server closes
connections whose bodies are incomplete, the oldest body first.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio

from controller_runtime.machinery import raised

from . import message
from .message import Handler, HTTPRequest, HTTPResponse, Inspection

if TYPE_CHECKING:
    from .connection import Connection

MAX_KEPT: Final = 24 * 1024 * 1024
"""Maximum number of bytes of bodies that one server has in memory: of requests that arrive or are in progress."""
_CONNECTIONS: Final = (16, 1024)
_SHARE: Final = 8
"""A server uses an eighth of the process's file descriptors, so that four servers leave half to the clients."""
_STALL_TIMEOUT: Final = 1.0
"""While other clients wait for room, a client must send its body, request or handshake within this many seconds."""
_CLOSE_TIMEOUT: Final = 1.0
"""Seconds that closing a connection may take when the server stops."""
_BUFFER: Final = 64 * 1024

_NOT_FOUND: Final = HTTPResponse.text("404 page not found\n", status=404)

_log = logging.getLogger("controller_runtime.http")


def default_max_connections() -> int:
    """Return how many connections a server accepts. This depends on how many files the process may open."""
    least, most = _CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(least, min(most, files // _SHARE))


class SharedState:
    """The shared state of one server's connections: the routes, whether the server is closing, and how full the server
    is.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        max_body: int,
        now: Callable[[], float] = time.time,
        *,
        max_connections: int | None = None,
        max_kept: int = MAX_KEPT,
        inspection: Inspection | None = None,
    ) -> None:
        self.routes = routes
        self.max_body = max_body
        self.inspection = inspection
        self.now = now
        self.closing = False
        # All connections share one buffer, because input is parsed as soon as it is read. Without this buffer, TLS
        # allocates 256 KiB for each record, and the kernel has to map and unmap them each time.
        self.buffer = memoryview(bytearray(_BUFFER))
        self._connections: set[Connection] = set()
        self._handshakes: dict[anyio.CancelScope, float] = {}
        self._max_connections = max_connections or default_max_connections()
        self.kept_total = 0
        """Number of bytes of bodies that are arriving or belong to a request in progress."""
        self._max_kept = max(max_kept, 2 * max_body)
        self._paused: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._change = anyio.Event()

    def enter(self, connection: Connection) -> None:
        """Register a connection."""
        self._connections.add(connection)

    def leave(self, connection: Connection) -> None:
        """Remove a connection that is closed and has no request in progress."""
        self._connections.discard(connection)
        self._paused.discard(connection)
        self.changed()

    def changed(self) -> None:
        """Wake the tasks that wait for connections to end."""
        self._change.set()

    # Answers.

    async def answer(self, request: HTTPRequest) -> HTTPResponse:
        """Return the handler's response. If the handler fails, return a 500; if no handler serves the path, a 404."""
        handler = self.routes.get(request.path)
        if handler is None:
            below = [path for path in self.routes if path.endswith("/") and request.path.startswith(path)]
            if not below:
                return _NOT_FOUND
            handler = self.routes[max(below, key=len)]
        try:
            return await handler(request)
        except raised.STRAY_EXITS as error:
            # Raised by the handler itself, unless the connection was aborted.
            _log.error("Error handling request", exc_info=raised.as_error_of_plain_task(error))
            return message.BROKEN
        except Exception:  # a handler's failure is answered with 500, and ends no connection
            _log.exception("Error handling request")
            return message.BROKEN

    # How many connections.

    def begin_handshake(self) -> anyio.CancelScope:
        """Count a handshake as a connection; return the scope that cancels the handshake."""
        scope = anyio.CancelScope()
        self._handshakes[scope] = asyncio.get_running_loop().time()
        return scope

    def end_handshake(self, scope: anyio.CancelScope) -> None:
        """Stop counting a handshake."""
        del self._handshakes[scope]
        self.changed()

    async def wait_for_room(self) -> None:
        """Return when one more connection is allowed. To make room, another connection may be closed."""
        while len(self._connections) + len(self._handshakes) >= self._max_connections:
            self._change = anyio.Event()
            self.evict()
            with anyio.move_on_after(_STALL_TIMEOUT):
                await self._change.wait()

    def evict(self) -> None:
        """Of the connections and handshakes that have waited a second for their client, close the oldest."""
        waiting: list[tuple[float, Callable[[], None]]] = [
            (connection.last_input, connection.drop) for connection in self._connections if connection.waiting
        ]
        waiting += [(since, scope.cancel) for scope, since in self._handshakes.items()]
        since, drop = min(waiting, key=lambda item: item[0], default=(math.inf, None))
        if drop is not None and since + _STALL_TIMEOUT <= asyncio.get_running_loop().time():
            drop()

    # How many bytes.

    def count_kept(self, count: int) -> None:
        """Count bytes of bodies in memory. A negative ``count`` means that these bytes were released."""
        self.kept_total += count
        if count < 0 and self._paused and not self.crowded:
            self._relieve()

    @property
    def crowded(self) -> bool:
        """True if the bodies in memory exceed the limit."""
        return self.kept_total > self._max_kept

    def pause_body(self, connection: Connection) -> None:
        """Stop reading a body until other bodies have been handled or dropped."""
        connection.pause_body()
        self._paused.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_STALL_TIMEOUT, self._make_way)

    def _make_way(self) -> None:
        """Drop bodies of slow clients, the oldest first, until the other bodies can be read."""
        self._timer = None
        for connection in self._stragglers():
            if not self.crowded:
                break
            self._paused.discard(connection)
            connection.drop()
        if not self.crowded:
            self._relieve()
        elif self._paused:
            self._timer = asyncio.get_running_loop().call_later(_STALL_TIMEOUT, self._make_way)

    def _stragglers(self) -> list[Connection]:
        """Return the clients to drop, the oldest body first.

        If some bodies belong to requests in progress, these will be released soon. Then return only clients that have
        sent nothing for a second although we read their bodies. Otherwise, return all clients whose bodies began more
        than a second ago.
        """
        latest = asyncio.get_running_loop().time() - _STALL_TIMEOUT
        receiving = [connection for connection in self._connections if connection.kept]
        if self.kept_total > sum(connection.kept for connection in receiving):
            late = [
                connection
                for connection in receiving
                if connection not in self._paused and connection.last_input <= latest
            ]
        else:
            late = [connection for connection in receiving if connection.body_since <= latest]
        return sorted(late, key=lambda connection: connection.body_since)

    def _relieve(self) -> None:
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.resume_body()

    # The end.

    async def drain(self, seconds: float) -> None:
        """Close all connections: idle connections at once, and busy connections after their response.

        A connection that is still busy after ``seconds`` is closed about a second later, and its request is cancelled.
        """
        self.closing = True
        for connection in tuple(self._connections):
            connection.stop()
        await self._wait(lambda: any(connection.busy for connection in self._connections), seconds)
        await self._wait(lambda: bool(self._connections), _CLOSE_TIMEOUT)
        for connection in tuple(self._connections):
            connection.abort()
        await self._wait(lambda: bool(self._connections), _CLOSE_TIMEOUT)
        if self._timer is not None:
            self._timer.cancel()

    async def _wait(self, unfinished: Callable[[], bool], seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while unfinished():
                self._change = anyio.Event()
                await self._change.wait()
