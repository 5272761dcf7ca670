# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A server on loopback; and both sides of HTTP connections: a client's, which has no socket, and a server's."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from controller_runtime.rest import http1
from controller_runtime.serving import Handler, HTTPRequest, HTTPResponse
from controller_runtime.serving.connection import Connection
from controller_runtime.serving.sharedstate import SharedState

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Run a server on loopback and yield its port; its connections are aborted at the end."""
    writers = set[asyncio.StreamWriter]()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)


class Line(asyncio.Transport):
    """The transport of a connection; like a real transport, it reports the end of the connection in the loop's next
    iteration.
    """

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self.sent = b""
        self.ended = False
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.end()

    def end(self, error: Exception | None = None) -> None:
        """End the connection, as either side may do."""
        if not self.ended:
            self.ended = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


class RecordedConnection:
    """A client's connection, and its owner, which records the connection's notifications."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.connection = http1.Connection(asyncio.get_running_loop(), self)
        self.line = Line(self.connection)
        self.connection.connection_made(self.line)

    async def ask(
        self, head: bytes, body: bytes | None = None, **options: Any
    ) -> asyncio.Task[http1.Incoming]:
        """Send a request; the returned task ends when the response has begun."""
        asking = asyncio.ensure_future(self.connection.ask(head, body, **options))
        await asyncio.sleep(0)
        return asking

    def is_paused(self) -> bool:
        """Return True while the connection reads nothing."""
        return self.line.paused

    def free(self, connection: http1.Connection) -> None:
        self.told.append("free")

    def lost(self, connection: http1.Connection) -> None:
        if "lost" not in self.told:
            self.told.append("lost")


POST = b"POST /echo?a=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"


CHUNKED = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Service:
    """The shared server of the connections under test, with handlers that echo, wait until released, or fail."""

    def __init__(self) -> None:
        routes: dict[str, Handler] = {
            "/echo": self._echo,
            "/slow": self._slow,
            "/broken": self._broken,
            "/torn": self._torn,
            "/cancelled": self._cancelled,
            "/large": self._large,
        }
        self.shared = SharedState(routes, 1000, now=lambda: 0.0, max_kept=2000)
        self.requests: list[HTTPRequest] = []
        self.began, self.go_on = anyio.Event(), anyio.Event()
        self.finished: list[str] = []
        self.clients: list[Client] = []

    async def _echo(self, request: HTTPRequest) -> HTTPResponse:
        self.requests.append(request)
        return HTTPResponse(body=b"%s %s" % (request.method.encode(), request.body or b"-"))

    async def _slow(self, request: HTTPRequest) -> HTTPResponse:
        self.began.set()
        try:
            await self.go_on.wait()
        except BaseException:
            self.finished.append("cancelled")
            raise
        self.finished.append(request.path)
        return HTTPResponse(body=b"slow")

    async def _broken(self, _request: HTTPRequest) -> HTTPResponse:
        raise RuntimeError("odd")

    async def _cancelled(self, _request: HTTPRequest) -> HTTPResponse:
        raise asyncio.CancelledError

    async def _torn(self, _request: HTTPRequest) -> HTTPResponse:
        return HTTPResponse(headers={"X": "a\r\nb"})

    async def _large(self, _request: HTTPRequest) -> HTTPResponse:
        return HTTPResponse(body=b"x" * 4_000_000)

    async def connect(self) -> Client:
        """Return the client's end of a new connection."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(lambda: Connection(self.shared), sock=ours)
        client = Client(theirs, protocol)
        self.clients.append(client)
        return client


class Client:
    """A client's end of a connection."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self.sock = sock
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._got = b""

    async def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        await self._loop.sock_sendall(self.sock, data)

    async def drip(self, data: bytes, *, every: float) -> None:
        """Send byte by byte, with ``every`` seconds after each."""
        for byte in data:
            await self.send(bytes([byte]))
            await asyncio.sleep(every)

    async def answer(self) -> tuple[bytes, bytes]:
        """Return the next answer's head and body; if the connection ends before, an empty head and the data received."""
        while b"\r\n\r\n" not in self._got:
            if not await self._more():
                return b"", self._got
        head, _, self._got = self._got.partition(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2] or 0)
        while len(self._got) < length:
            assert await self._more()
        body, self._got = self._got[:length], self._got[length:]
        return head, body

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send and return the answer's status and body."""
        await self.send(data)
        return await self.next()

    async def next(self) -> tuple[int, bytes]:
        """Return the next answer's status and body."""
        head, body = await self.answer()
        return int(head.split()[1]), body

    async def ends(self) -> bytes:
        """Return the remaining data until the connection ends; fail if it does not end."""
        while await self._more():
            pass
        return self._got

    async def _more(self) -> bool:
        data = await self._loop.sock_recv(self.sock, 1 << 20)
        self._got += data
        return bool(data)


async def settle() -> None:
    """Let all callbacks run that do not wait for a timer."""
    for _ in range(20):
        await asyncio.sleep(0)


def now() -> float:
    return asyncio.get_running_loop().time()
