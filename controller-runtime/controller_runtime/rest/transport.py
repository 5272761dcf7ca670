# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Transport: sends requests to an API server over the connections of ``http1``.

No other module sends requests. Every error of ``http1`` is converted to a TransportError.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

import anyio

from . import errors, http1, layers
from .config import Config
from .credentials import Anonymous
from .layers import CompleteResponse, Response, RoundTripper
from .request import Request
from .streams import StreamResponse

TLS_CHECK_PERIOD: Final = 10.0
"""Seconds between checks whether certificate files were rewritten."""


class Transport:
    """Sends requests to the server of ``config``; an async context manager that owns the connections.

    It works in the event loop in which it was opened. When that loop is closed, as after ``asyncio.run``, it works in
    the next loop that uses it, with new connections. It cannot be used in two loops at the same time.

    Requests pass the layers of ``controller_runtime.rest.layers``. ``observe`` is called after every attempt and,
    by default, counts it in ``rest_client_requests_total``. ``may_write`` is called immediately before each write is
    sent; if it returns False, the write is not sent. ``unanswered`` is called when a write that was sent ends without a
    response: the server may still perform it.
    """

    over_network: Final = True

    def __init__(
        self,
        config: Config,
        *,
        observe: layers.Observe = layers.count,
        may_write: Callable[[], bool] | None = None,
        unanswered: Callable[[], None] = lambda: None,
        tls_check_period: float = TLS_CHECK_PERIOD,
    ) -> None:
        self.config = config
        self._wire = _Wire(config, tls_check_period, may_write, unanswered)
        self._throttle = layers.Throttle(self._wire, config.qps, config.burst)
        inner: RoundTripper = layers.Warn(self._throttle)
        inner = layers.RetryAfter(layers.Meter(inner, self._wire.host, observe))
        if type(config.credentials) is not Anonymous:
            inner = layers.Authorize(inner, config.credentials, config.address)
        self._outermost = inner
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the transport is open."""

    async def send(self, request: Request) -> Response:
        """Return the server's response, regardless of its status.

        Raises:
            TransportError: no complete response was received.
            RuntimeError: the transport is open in another event loop.
        """
        if self._loop is not asyncio.get_running_loop() and self._loop is not None:
            self._move()
        return await self._outermost.send(request)

    def _move(self) -> None:
        """Continue in the running event loop. Connections and waiting requests of the closed one are lost."""
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError(
                "the transport is open in another event loop: open a transport in each loop, or call the client with "
                "asyncio.run_coroutine_threadsafe"
            )
        self._loop = asyncio.get_running_loop()
        self._wire.move(self._loop)
        self._throttle.forget()

    async def __aenter__(self) -> Self:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:  # as with trio
            raise RuntimeError("a transport works only in an event loop of asyncio") from error
        if self._loop is not loop:
            self._move()
        self._wire.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not asyncio.get_running_loop() and self._loop is not None:
            self._move()
        self._loop = None
        with anyio.CancelScope(shield=True):
            await self._wire.close()


class _Wire:
    """The innermost round tripper; it owns the pool of connections."""

    def __init__(
        self,
        config: Config,
        tls_check_period: float,
        may_write: Callable[[], bool] | None,
        unanswered: Callable[[], None],
    ) -> None:
        self._config = config
        self._may_write = may_write
        self._unanswered = unanswered
        self._tls_check_period = tls_check_period
        self._base = config.address.rstrip("/")
        self._opened = False
        self._now: Callable[[], float] = anyio.current_time
        self._pool: http1.Pool | None = None
        self._ssl: ssl.SSLContext | None = None
        self._ssl_stamp: object = None
        self._shown = b""
        self._ssl_checked = float("-inf")

    @property
    def host(self) -> str:
        """The server's host and port as written in its URL, which is client-go's metric label."""
        return self._config.address.partition("://")[2].partition("/")[0]

    def move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use ``loop`` from now on; the former one is closed, and its connections with it."""
        self._now = loop.time
        self._pool = None

    def open(self) -> None:
        self._context()
        self._opened = True

    async def close(self) -> None:
        self._opened = False
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def send(self, request: Request) -> Response:
        """Send the request. A GET that is not a stream is sent a second time if the connection was closed.

        Other requests may have taken effect, and the caller of a stream decides when to reconnect.
        """
        timeout, bounds = request.timeout, None if request.stream else request.bounds
        if timeout is None and bounds is not None:
            timeout = bounds.seconds
        deadline = None if timeout is None else self._now() + timeout
        writes, again = request.method != "GET", False
        pool = self._pool
        if pool is None:
            pool = self._pool = self._new_pool()
        try:
            head = pool.heads.render(request.method, request.target, request.headers, request.body)
            context = self._context()
            connection = pool.take_idle(context, stream=request.stream)
            while True:
                if writes and self._may_write is not None and not self._may_write():
                    if connection is not None:
                        pool.free(connection)
                    raise layers.not_sent(request, self._base)
                if connection is None:
                    within = math.inf if deadline is None else max(0.0, deadline - self._now())
                    connection = await self._connect(pool, context, request, within, fresh=again)
                    continue  # the wait may have been long: ask again whether the request may be sent
                try:
                    answer = await connection.ask(
                        head,
                        request.body,
                        bounds=bounds,
                        bodiless=request.method == "HEAD",
                        timeout=timeout,
                        deadline=deadline,
                    )
                    break
                except BaseException as error:
                    if writes:
                        self._unanswered()
                    if writes or request.stream or again or not isinstance(error, http1.GoneError):
                        raise
                    again, connection = True, None
        except TimeoutError as error:
            # Idle connections may hang as this one does. Those in use time out themselves, or prove that they work.
            pool.close_idle()
            raise errors.TransportTimeoutError(
                f"{error} to {request.method} {request.path} within {timeout:g} s", host=self._base
            ) from error
        except http1.Error as error:
            raise errors.TransportError(str(error), host=self._base) from error
        if request.method == "HEAD":
            connection.abort()
        if not answer.is_buffered:
            return _Stream(answer, connection, self._base)
        return CompleteResponse(answer.status, answer.take_body(), answer.headers, host=self._base)

    async def _connect(
        self,
        pool: http1.Pool,
        context: ssl.SSLContext | None,
        request: Request,
        within: float,
        *,
        fresh: bool,
    ) -> http1.Connection:
        """Return a connection for ``request``, which has not been sent yet.

        Raises:
            ConnectError: there is none.
        """
        try:
            return await pool.connection(context, fresh=fresh, stream=request.stream, within=within)
        except TimeoutError as error:
            raise errors.ConnectTimeoutError(str(error), host=self._base) from error
        except http1.Error as error:
            raise errors.ConnectError(str(error), host=self._base) from error

    def _new_pool(self) -> http1.Pool:
        if not self._opened:
            raise errors.ConnectError(
                "the transport is not open: use it in an async with block", host=self._base
            )
        try:
            return _new_pool(self._config)
        except http1.Error as error:
            raise errors.ConnectError(str(error), host=self._base) from error

    def _context(self) -> ssl.SSLContext | None:
        """Return the TLS context, which is rebuilt when one of its files has changed."""
        tls = self._config.tls
        if tls is None:
            if self._ssl is None and self._base.startswith("https:"):
                self._ssl = ssl.create_default_context()
            return self._ssl
        now = self._now()
        shown = tls.issued.cert if tls.issued is not None else b""
        if now - self._ssl_checked >= self._tls_check_period or shown != self._shown:
            self._ssl_checked, self._shown = now, shown
            stamp = (*tls.stamp(), shown)
            if self._ssl is None or stamp != self._ssl_stamp:
                try:
                    self._ssl, self._ssl_stamp = tls.ssl_context(), stamp
                except errors.ConfigError:
                    # The files may be half-written: keep the current context and check again later.
                    if self._ssl is None:
                        raise
        return self._ssl


def _new_pool(config: Config) -> http1.Pool:
    """Return an empty pool with the headers that all requests share."""
    origin = http1.Origin.parse(config.host)
    proxy = http1.Origin.parse(config.proxy) if config.proxy else None
    plain = proxy if not origin.secure else None
    shared = [("Host", origin.authority), ("User-Agent", config.user_agent), ("Accept-Encoding", "identity")]
    if origin.authorization:
        shared.append(("Authorization", origin.authorization))
    if plain is not None and plain.authorization:
        shared.append(("Proxy-Authorization", plain.authorization))
    if config.impersonate is not None:
        shared += config.impersonate.headers()
    # A proxy that forwards plain HTTP needs the absolute URL. A proxy does not see the requests inside a tunnel.
    prefix = (origin.url if plain is not None else "") + origin.path
    server_name = config.tls.server_name if config.tls is not None else ""
    dialer = http1.Dialer(origin, proxy=proxy, server_name=server_name, user_agent=config.user_agent)
    return http1.Pool(dialer, http1.Heads(prefix, shared))


class _Stream(StreamResponse):
    def __init__(self, answer: http1.Incoming, connection: http1.Connection, host: str) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.host = host
        self._answer = answer
        self._connection = connection

    def pieces(self) -> AsyncIterator[bytes]:
        return self._answer.pieces()

    async def close(self) -> None:
        self._connection.give_up(self._answer)
