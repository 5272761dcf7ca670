# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One small HTTP server: paths to async functions, with or without TLS.

Metrics, probes and webhooks are served by it; with ``pkg.ctrl.rest.transport`` it is the only door to the
HTTP library. A handler sees a whole body, never longer than the server's limit; what it raises is logged
and answered with 500.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from aiohttp import web

KEEP_ALIVE: Final = 120.0
"""Seconds an idle connection is kept: longer than the 90 s of an API server, which then never meets a closed one."""
_DRAIN: Final = 10.0
"""Seconds that requests in work may take once the server is stopped."""


class ServerError(Exception):
    """A server cannot listen; the message names the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """A request with its whole body."""

    method: str = "GET"
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    too_large: bool = False
    """The body was longer than the server's limit; ``body`` is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPResponse:
    """An answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, *, status: int = 200) -> HTTPResponse:
        """Return a plain text answer that browsers do not guess about."""
        return cls(status=status, body=text.encode(), headers={"X-Content-Type-Options": "nosniff"})


Handler = Callable[[HTTPRequest], Awaitable[HTTPResponse]]


class TLSProvider(Protocol):
    """Something that can tell the TLS context when the server begins to listen."""

    def context(self) -> ssl.SSLContext:
        """Return the context; certificates may be replaced in it later."""
        ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; no host means all interfaces, port 0 any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read Go's ``host:port``, ``:port`` or ``[v6]:port``.

        Raises:
            ServerError: it is none of these.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ServerError(f"listen on {text!r}: want host:port")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Server:
    """Serves ``routes`` until cancelled; a route that ends in ``/`` serves what lies below it too."""

    def __init__(
        self,
        address: Address,
        routes: Mapping[str, Handler],
        *,
        tls: TLSProvider | None = None,
        max_body: int = 1 << 20,
        drain: float = _DRAIN,
        name: str = "server",
    ) -> None:
        self.name = name
        self._address = address
        self._routes = routes
        self._tls = tls
        self._max_body = max_body
        self._drain = drain
        self._socket: socket.socket | None = None
        self._serving = anyio.Event()

    @property
    def port(self) -> int:
        """The port that is listened on; the asked one before :meth:`listen`."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else self._address.port

    def listen(self) -> socket.socket:
        """Take the address, so that a taken one is known before anything else starts; once.

        Raises:
            ServerError: it cannot be had.
        """
        if self._socket is not None:
            return self._socket
        host, port = self._address.host, self._address.port
        try:
            if host:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                self._socket = socket.create_server((host, port), family=family, backlog=1024)
            elif socket.has_dualstack_ipv6():
                self._socket = socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
                )
            else:
                self._socket = socket.create_server(("", port), backlog=1024)
        except OSError as error:
            # The library puts the address into strerror; of a name that does not resolve, errno is negative.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ServerError(f"listen on {self._address}: {reason}") from error
        self._socket.setblocking(False)
        return self._socket

    def close(self) -> None:
        """Give the address back when the server never started."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def ready(self) -> None:
        """Return once connections are accepted."""
        await self._serving.wait()

    async def start(self) -> None:
        """Serve until cancelled; requests in work are then finished, new connections refused."""
        listening = self.listen()
        context = self._tls.context() if self._tls is not None else None
        web_server = web.Server(self._handle, keepalive_timeout=KEEP_ALIVE, access_log=None)
        listener = await asyncio.get_running_loop().create_server(
            web_server, sock=listening, ssl=context, backlog=1024
        )
        try:
            self._serving.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                listener.close()
                web_server.pre_shutdown()
                await web_server.shutdown(self._drain)
                await listener.wait_closed()
            self._socket = None

    def _route(self, path: str) -> Handler | None:
        if (handler := self._routes.get(path)) is not None:
            return handler
        below = [prefix for prefix in self._routes if prefix.endswith("/") and path.startswith(prefix)]
        return self._routes[max(below, key=len)] if below else None

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        handler = self._route(raw.path)
        if handler is None:
            return _answer(HTTPResponse.text("404 page not found\n", status=404))
        body = await self._read(raw)
        request = HTTPRequest(
            method=raw.method,
            path=raw.path,
            query={key: raw.query.getall(key) for key in raw.query},
            headers=raw.headers,
            body=body or b"",
            too_large=body is None,
        )
        answer = _answer(await handler(request))
        if body is None:
            # The rest of the body was not read: the connection cannot carry another request.
            answer.force_close()
        return answer

    async def _read(self, raw: web.BaseRequest) -> bytes | None:
        """Return the body, or None when it is longer than the limit."""
        if raw.content_length is not None and raw.content_length > self._max_body:
            return None
        parts: list[bytes] = []
        size = 0
        async for part in raw.content.iter_any():
            size += len(part)
            if size > self._max_body:
                return None
            parts.append(part)
        return b"".join(parts)


def _answer(response: HTTPResponse) -> web.Response:
    return web.Response(
        status=response.status,
        body=response.body,
        headers={"Content-Type": response.content_type, **response.headers},
    )
