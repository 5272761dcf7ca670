# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Transport: the one place that speaks HTTP to an API server, on one shared session.

HTTP library exceptions end here; what comes out is a Response or a TransportError.
"""

from __future__ import annotations

import io
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Final, Self

import aiohttp
import anyio
from yarl import URL

from . import errors, layers
from .config import Config
from .request import Request
from .roundtrip import Response, RoundTripper

_CONNECT_TIMEOUT: Final = 30.0
_IDLE: Final = 60.0
"""Seconds an idle connection is kept; API servers keep theirs for 90."""
_MAX_CONNECTIONS: Final = 256
_LARGE_BODY: Final = 1 << 18
_DEAD: Final = 30
"""Seconds after which the kernel gives up a connection whose other end answers nothing, not even probes."""
_SOCKET_OPTIONS: Final = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, _DEAD // 2),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, _DEAD // 6),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 1000 * _DEAD),
)
TLS_CHECK_PERIOD: Final = 10.0
"""Seconds between looks at certificate files that may have been rewritten."""


class Transport:
    """Sends requests to the server of ``config``; an async context manager that owns the connections.

    Requests pass the layers of ``pkg.ctrl.rest.layers``. ``observe`` hears of every answer.
    """

    def __init__(
        self,
        config: Config,
        *,
        observe: layers.Observe | None = None,
        tls_check_period: float = TLS_CHECK_PERIOD,
    ) -> None:
        self.config = config
        self._wire = _Wire(config, tls_check_period)
        inner: RoundTripper = layers.Throttle(self._wire, config.qps, config.burst)
        inner = layers.Warn(inner)
        if observe is not None:
            inner = layers.Meter(inner, self._wire.host, observe)
        inner = layers.RetryAfter(inner)
        self._outermost: RoundTripper = layers.Authorize(inner, config.credentials, config.host)

    async def send(self, request: Request) -> Response:
        """Return the server's answer, whatever its status.

        Raises:
            TransportError: there was none.
        """
        return await self._outermost.send(request)

    async def __aenter__(self) -> Self:
        self._wire.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._wire.close()


class _Wire:
    """The innermost round tripper: an aiohttp session."""

    def __init__(self, config: Config, tls_check_period: float) -> None:
        self._config = config
        self._tls_check_period = tls_check_period
        self._base = config.host.rstrip("/")
        self.host = URL(config.host).authority
        self._pool: _Pool | None = None
        self._retired: list[_Pool] = []
        self._ssl: ssl.SSLContext | bool = True
        self._ssl_stamp: object = None
        self._shown = b""
        self._ssl_checked = float("-inf")

    def open(self) -> None:
        self._context()
        self._pool = _Pool(self._config)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        for each in (*self._retired, *([pool] if pool else [])):
            await each.close()

    async def send(self, request: Request) -> Response:
        pool = self._pool
        if pool is None:
            raise errors.TransportError("the transport is not open", host=self._base)
        pool.calls += 1
        try:
            with anyio.fail_after(request.timeout) as patience:
                return await self._exchange(pool, request, patience)
        except TimeoutError as error:
            await self._retire(pool)
            raise errors.TransportTimeoutError(
                f"no answer to {request.method} {request.path} within {request.timeout} s", host=self._base
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise errors.TransportError(_reason(error), host=self._base) from error
        except RuntimeError as error:
            if self._pool is not None and not pool.session.closed:
                raise
            raise errors.TransportError("the transport was closed", host=self._base) from error
        finally:
            pool.calls -= 1

    async def _retire(self, pool: _Pool) -> None:
        """Use the connections of ``pool`` no more: where one hangs the others may, and each would cost a call."""
        if self._pool is pool:
            self._pool = _Pool(self._config)
            self._retired.append(pool)
        for idle in [each for each in self._retired if not each.busy]:
            self._retired.remove(idle)
            await idle.close()

    async def _exchange(self, pool: _Pool, request: Request, patience: anyio.CancelScope) -> Response:
        tls = self._config.tls
        raw = await pool.session.request(
            request.method,
            URL(self._base + request.target, encoded=True),
            data=_sendable(request.body),
            headers=dict(request.headers),
            ssl=self._context(),
            server_hostname=(tls.server_name or None) if tls else None,
            proxy=self._config.proxy or None,
            allow_redirects=False,
            middlewares=() if request.method == "GET" and not request.stream else (_once,),
        )
        if request.stream and raw.status < 400:
            stream = _Stream(raw, self._base, pool.streams.discard)
            pool.streams.add(stream)
            return stream
        try:
            body: list[bytes] = []
            async for chunk in raw.content.iter_any():
                body.append(chunk)
                if request.timeout is not None:
                    patience.deadline = anyio.current_time() + request.timeout
            return _Answer(raw.status, _headers(raw), b"".join(body))
        finally:
            raw.release()

    def _context(self) -> ssl.SSLContext | bool:
        """The TLS context; made anew when a file it was read from changed."""
        tls = self._config.tls
        if tls is None:
            return True
        now = anyio.current_time()
        shown = tls.issued.cert if tls.issued is not None else b""
        if now - self._ssl_checked >= self._tls_check_period or shown != self._shown:
            self._ssl_checked, self._shown = now, shown
            stamp = (*tls.stamp(), shown)
            if self._ssl is True or stamp != self._ssl_stamp:
                try:
                    self._ssl, self._ssl_stamp = tls.ssl_context(), stamp
                except errors.ConfigError:
                    # Half-written files: keep the context we have, look again soon.
                    if self._ssl is True:
                        raise
        return self._ssl


class _Pool:
    """A session with its connections, and who uses them."""

    def __init__(self, config: Config) -> None:
        as_whom = config.impersonate.headers() if config.impersonate is not None else []
        self.calls = 0
        self.streams: set[_Stream] = set()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_MAX_CONNECTIONS, keepalive_timeout=_IDLE, socket_factory=watchful_socket
            ),
            headers=[("User-Agent", config.user_agent), ("Accept-Encoding", "identity"), *as_whom],
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
            trust_env=False,
        )

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer or reads a stream."""
        return self.calls > 0 or bool(self.streams)

    async def close(self) -> None:
        """End the streams, then the session."""
        for stream in tuple(self.streams):
            await stream.close()
        await self.session.close()


class _Answer(Response):
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self._body.splitlines():
            yield line

    async def close(self) -> None:
        return None


class _Stream(Response):
    def __init__(self, raw: aiohttp.ClientResponse, host: str, forget: Callable[[_Stream], None]) -> None:
        self.status = raw.status
        self.headers = raw.headers
        self._raw = raw
        self._host = host
        self._forget = forget

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self._chunks()])

    async def lines(self) -> AsyncIterator[bytes]:
        pending: list[bytes] = []
        async for chunk in self._chunks():
            first, *others = chunk.split(b"\n")
            pending.append(first)
            for following in others:
                # A line may be large: nothing here holds on to it or its pieces while it is read.
                pending = [b"".join(pending)]
                yield pending.pop()
                pending.append(following)
        if rest := b"".join(pending):
            yield rest

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._raw.content.iter_any():
                yield chunk
            self._forget(self)
        except (aiohttp.ClientError, OSError) as error:
            raise errors.TransportError(_reason(error), host=self._host) from error

    async def close(self) -> None:
        connection = self._raw.connection
        if connection is not None and connection.transport is not None:
            # Nobody waits for the server's farewell to a stream: a graceful TLS end could outlive the loop.
            connection.transport.abort()
        self._raw.close()
        self._forget(self)


def watchful_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket on which the kernel notices that the other end has vanished, where it can."""
    family, kind, protocol, *_ = info
    made = socket.socket(family, kind, protocol)
    for name, level, value in _SOCKET_OPTIONS:
        if hasattr(socket, name):
            made.setsockopt(level, getattr(socket, name), value)
    return made


class _BrokenError(aiohttp.ClientError):
    """A connection broke; its cause says how."""


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a request twice by itself, as it does when a connection breaks.

    A write may have taken effect, and whoever watches has a pace of their own.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenError(_reason(error)) from error


def _sendable(body: bytes | None) -> bytes | io.BytesIO | None:
    """The body as aiohttp likes it: a large one goes out piece by piece, and others get their turn in between."""
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body


def _headers(raw: aiohttp.ClientResponse) -> Mapping[str, str]:
    """The headers; a server sends each warning in a line of its own, and a mapping shows but the first."""
    warnings = raw.headers.getall("Warning", ())
    if len(warnings) < 2:
        return raw.headers
    headers = raw.headers.copy()
    headers["Warning"] = ", ".join(warnings)
    return headers


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _one_line(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ssl.SSLError) or not cause.errno or cause.errno < 0:
            # TLS and name resolution have numbers of their own, and texts.
            return _one_line(cause.strerror or cause)
        return os.strerror(cause.errno).lower()
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    return _one_line(error)


def _one_line(what: object) -> str:
    return " ".join(str(what).split()) or type(what).__name__
