# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pool: the connections to one server and their assignment to requests.

A request gets the idle connection that was used most recently. Connections that are not needed at present therefore
stay idle and are closed. When the limit is reached, callers wait in order until a connection becomes free or is closed.
A stream keeps its connection for minutes. Therefore a stream does not wait, and does not count towards the limit.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import deque
from typing import Final

import anyio

from .connection import Connection, Error, Heads
from .dial import Dialer

IDLE: Final = 60.0
"""Seconds for which an idle connection is kept; API servers keep theirs for 90."""
MAX_CONNECTIONS: Final = 256
"""Maximum number of connections in use or idle, not counting those of streams (one for each watch)."""
_CLOSE_TIMEOUT: Final = 1.0


class Pool:
    """Connections opened by ``dialer``; each connection belongs to the TLS context with which it was opened."""

    def __init__(self, dialer: Dialer, heads: Heads, *, limit: int = MAX_CONNECTIONS) -> None:
        self.heads = heads
        self._dialer = dialer
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._streaming: set[Connection] = set()
        """The members of :attr:`_open` that carry a stream."""
        self._idle: list[Connection] = []
        self._dialing = self._dialing_streams = 0
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    def take_idle(self, context: ssl.SSLContext | None, *, stream: bool = False) -> Connection | None:
        """Return an idle connection opened with ``context``, or None. Unusable connections are closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.context is context and connection.usable:
                if stream:
                    self._streaming.add(connection)
                return connection
            connection.abort()
        return None

    async def connection(
        self,
        context: ssl.SSLContext | None,
        *,
        fresh: bool = False,
        stream: bool = False,
        within: float = math.inf,
    ) -> Connection:
        """Return an idle connection, or open one; wait if the limit is reached. If ``fresh``, always open one.

        The limit does not apply to a ``stream``.

        Raises:
            Error: no connection can be opened.
            TimeoutError: opening a connection took too long, or there was no connection ``within`` so many seconds. The
                text says what the caller waited for.
        """
        deadline, waited = self._loop.time() + within, False
        while True:
            if self._closed:
                raise Error("the transport was closed")
            left = max(0.0, deadline - self._loop.time())
            connection = None if fresh else self.take_idle(context, stream=stream)
            if connection is not None:
                return connection
            if stream or self._has_room():
                return await self._dial(context, stream=stream, within=left)
            if self._idle:
                # Close an idle connection that cannot be used to make room.
                self._idle.pop(0).abort()
                continue
            try:
                with anyio.fail_after(left):
                    connection = await self._wait(first=waited)
            except TimeoutError as error:
                text = f"all {self._limit} connections were in use for {round(within, 2):g} s"
                raise TimeoutError(text) from error
            waited = True
            if connection is not None:
                if not fresh and connection.context is context and connection.usable:
                    return connection
                connection.abort()

    def free(self, connection: Connection) -> None:
        """Give ``connection`` to the first waiting caller, or keep it idle."""
        self._streaming.discard(connection)
        if self._closed or connection not in self._open or self._used() > self._limit:
            connection.abort()
            return
        if self._waiters and self._hand(connection):
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE, self._sweep)

    def lost(self, connection: Connection) -> None:
        """Remove ``connection``, which was closed, so that another one may be opened."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._streaming.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._room()

    def close_idle(self, until: float = math.inf) -> None:
        """Close the connections that have been idle since ``until`` or before; without ``until``, all idle ones."""
        for connection in [idle for idle in self._idle if idle.idle_since <= until]:
            connection.abort()

    async def close(self) -> None:
        """Close all connections; waiting callers get an Error."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        ending = [connection.closed() for connection in self._open]
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        for connection in tuple(self._open):
            connection.abort(Error("the transport was closed"))
        if ending:
            # The loop closes sockets in a later iteration, and the caller may stop the loop after this.
            await asyncio.wait(ending, timeout=_CLOSE_TIMEOUT)
        await asyncio.sleep(0)

    async def _dial(self, context: ssl.SSLContext | None, *, stream: bool, within: float) -> Connection:
        self._dialing += 1
        self._dialing_streams += stream
        try:
            made = await self._dialer.dial(self, context, within=within)
            if self._closed:
                made.abort()
                raise Error("the transport was closed")
            if not made.usable:
                # A connection that is already closed does not call ``lost`` again, so it would be counted for ever.
                raise Error("the server closed the connection as soon as it was opened")
            self._open.add(made)
            if stream:
                self._streaming.add(made)
            return made
        finally:
            self._dialing -= 1
            self._dialing_streams -= stream
            self._room()

    async def _wait(self, *, first: bool) -> Connection | None:
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        if first:
            # Another caller has used the permission first.
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # Pass on the connection or permission that was given to this cancelled caller.
                connection = waiter.result()
                if connection is None:
                    self._room()
                elif connection.usable:
                    self.free(connection)
            elif waiter in self._waiters:
                # A connection freed in the same iteration of the loop has already removed this waiter.
                self._waiters.remove(waiter)
            raise

    def _hand(self, connection: Connection | None) -> bool:
        """Give ``connection`` to the first waiting caller. None means that the caller may open a connection."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _used(self) -> int:
        return len(self._open) - len(self._streaming) + self._dialing - self._dialing_streams

    def _has_room(self) -> bool:
        return self._used() < self._limit

    def _room(self) -> None:
        if self._has_room():
            self._hand(None)

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        self._sweeper = None
        self.close_idle(self._loop.time() - IDLE)
        if self._idle:
            self._sweeper = self._loop.call_at(self._idle[0].idle_since + IDLE, self._sweep)
