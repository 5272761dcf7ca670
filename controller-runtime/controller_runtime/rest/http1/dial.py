# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Dialer: opens connections to one server, directly or through a proxy, with TLS if the scheme requires it."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import anyio
import msgspec

from controller_runtime.machinery.errors import one_line

from .connection import Connection, ConnectionOwner, Error, Heads

CONNECT_TIMEOUT: Final = 30.0
_NO_OTHER_TIMEOUT: Final = 2 * CONNECT_TIMEOUT
"""The event loop's own timeout for handshakes, in seconds. It is longer than :data:`CONNECT_TIMEOUT`, so that it does
not fire first."""
_NEXT_ADDRESS: Final = 0.25
"""If an address has not answered after this many seconds, the next address is tried in parallel."""
_DEAD: Final = 30
"""Seconds after which the kernel closes a connection whose peer does not answer probes."""
_SOCKET_OPTIONS: Final = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_NODELAY", socket.IPPROTO_TCP, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, _DEAD // 2),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, _DEAD // 6),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 1000 * _DEAD),
)
"""Names, levels and values of options. Some systems lack some of them; macOS lacks the last one."""
AddrInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]
"""An address as returned by ``getaddrinfo``."""


class Origin(msgspec.Struct, frozen=True):
    """The address of a server or a proxy."""

    secure: bool
    host: str
    """The name or address, in ASCII, for look-ups and for the verification of certificates."""
    port: int
    authority: str
    """Host and port as in a ``Host`` header, without the default port of the scheme."""
    path: str = ""
    """The prefix of every request's path."""
    authorization: str = ""
    """The credentials in the URL, as a header value."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse ``url``.

        Raises:
            Error: the URL is not valid, or its scheme is not http or https. The message contains no password.
        """
        problem = f"{without_credentials(url) or 'an empty text'} is not the address of an HTTP server"
        try:
            parts = urlsplit(url)
            secure = {"http": False, "https": True}[parts.scheme]
            host = (parts.hostname or "").rstrip(".")
            host = host if host.isascii() else host.encode("idna").decode("ascii")
            port = parts.port
        except (KeyError, ValueError) as error:
            raise Error(problem) from error
        if not host:
            raise Error(problem)
        named = f"[{host}]" if ":" in host else host
        own = 443 if secure else 80
        return cls(
            secure=secure,
            host=host,
            port=own if port is None else port,
            authority=named if port in (None, own) else f"{named}:{port}",
            path=parts.path.rstrip("/"),
            authorization=_basic(parts.username or "", parts.password or ""),
        )

    @property
    def url(self) -> str:
        """Scheme and authority, without credentials."""
        return f"{'https' if self.secure else 'http'}://{self.authority}"


def _basic(user: str, password: str) -> str:
    if not user and not password:
        return ""
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")


def without_credentials(url: str) -> str:
    """Return ``url``, which need not be valid, without its user name and password."""
    scheme, separator, rest = url.partition("://")
    if "@" not in rest:
        return url if separator else url.rpartition("@")[2]
    return f"{scheme}://{rest.rpartition('@')[2]}"


class Dialer:
    """Opens connections to ``origin``. A given ``server_name`` is used for SNI and verification instead of the host."""

    def __init__(
        self, origin: Origin, *, proxy: Origin | None = None, server_name: str = "", user_agent: str
    ) -> None:
        """Raise Error if a host or ``server_name`` is a name that neither a resolver nor TLS accepts."""
        for name in (origin.host, server_name, proxy.host if proxy is not None else ""):
            _check_name(name)
        self._origin = origin
        self._proxy = proxy
        self._server_name = server_name or origin.host
        self._user_agent = user_agent

    async def dial(
        self, owner: ConnectionOwner, context: ssl.SSLContext | None, *, within: float = CONNECT_TIMEOUT
    ) -> Connection:
        """Return a new connection; ``context`` is for TLS to the server and to an https proxy.

        Raises:
            Error: no connection can be opened.
            TimeoutError: no connection was opened ``within`` so many seconds, or within :data:`CONNECT_TIMEOUT`.
        """
        origin, proxy = self._origin, self._proxy
        within = min(within, CONNECT_TIMEOUT)
        try:
            with anyio.fail_after(within):
                if proxy is None:
                    return await self._open(origin, owner, context, self._server_name)
                try:
                    if not origin.secure:
                        return await self._open(proxy, owner, context, proxy.host)
                    through = await self._open(proxy, _NoOwner(), context, proxy.host)
                except Error as error:
                    raise Error(f"proxy {proxy.url}: {error}") from error
                return await self._tunnel(through, proxy, owner, context)
        except TimeoutError as error:
            way = "" if proxy is None else f" through the proxy {proxy.url}"
            raise TimeoutError(f"no connection{way} within {round(within, 2):g} s") from error

    async def _open(
        self, to: Origin, owner: ConnectionOwner, context: ssl.SSLContext | None, server_name: str
    ) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(loop, owner, context)
        try:
            made = await _connected(await _resolve(loop, to))
            if to.secure:
                await loop.create_connection(
                    lambda: connection,
                    sock=made,
                    ssl=context or ssl.create_default_context(),
                    server_hostname=server_name,
                    ssl_handshake_timeout=_NO_OTHER_TIMEOUT,
                )
            else:
                await loop.create_connection(lambda: connection, sock=made)
        except BaseException as error:
            connection.abort()
            if isinstance(
                error, OSError
            ):  # also the kernel's ETIMEDOUT: our own limit is a cancellation here
                raise Error(_reason(error)) from error
            raise
        return connection

    async def _tunnel(
        self, through: Connection, proxy: Origin, owner: ConnectionOwner, context: ssl.SSLContext | None
    ) -> Connection:
        """Return a connection to the server, tunnelled through ``through``, a connection to the proxy."""
        loop = asyncio.get_running_loop()
        connection = Connection(loop, owner, context)
        try:
            await self._ask_for_tunnel(through, proxy)
            inner = await loop.start_tls(
                through.transport,
                connection,
                context or ssl.create_default_context(),
                server_hostname=self._server_name,
                ssl_handshake_timeout=_NO_OTHER_TIMEOUT,
            )
            # start_tls returns None if the connection was closed meanwhile.
            connection.connection_made(_present(inner))
        except BaseException as error:
            through.abort()
            cause: BaseException | None = error
            while isinstance(cause, TypeError):
                # Python 3.11 raises TypeError while it reports a failed handshake inside TLS.
                cause = cause.__context__
            if isinstance(cause, OSError):
                raise Error(_reason(cause)) from cause
            raise
        return connection

    async def _ask_for_tunnel(self, through: Connection, proxy: Origin) -> None:
        host = f"[{self._origin.host}]" if ":" in self._origin.host else self._origin.host
        target = f"{host}:{self._origin.port}"
        shared = [("Host", target), ("User-Agent", self._user_agent)]
        if proxy.authorization:
            shared.append(("Proxy-Authorization", proxy.authorization))
        try:
            answer = await through.ask(Heads("", shared).render("CONNECT", target, {}, None), bodiless=True)
        except Error as error:
            raise Error(f"proxy {proxy.url}: {error}") from error
        if answer.status >= 300:
            raise Error(f"proxy {proxy.url}: CONNECT {target} returned status {answer.status}")


def _check_name(name: str) -> None:
    try:
        name.encode("idna")  # as the resolver and TLS do
    except UnicodeError as error:
        raise Error(f"{name!r} is not a host name: {error}") from error
    if "\0" in name:
        raise Error(f"{name!r} is not a host name")


def _present(transport: asyncio.Transport | None) -> asyncio.Transport:
    if transport is None:
        raise ConnectionResetError
    return transport


class _NoOwner:
    """The owner of a connection that becomes a tunnel."""

    def free(self, connection: Connection) -> None:
        """Do nothing: the connection is not reused."""

    def lost(self, connection: Connection) -> None:
        """Do nothing: the caller gets the error."""


def keepalive_socket(info: AddrInfo) -> socket.socket:
    """Return a socket with keep-alive probes, so that the kernel detects an unreachable peer."""
    family, kind, protocol, *_ = info
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    for name, level, value in _SOCKET_OPTIONS:
        if hasattr(socket, name):
            made.setsockopt(level, getattr(socket, name), value)
    return made


async def _resolve(loop: asyncio.AbstractEventLoop, to: Origin) -> Sequence[AddrInfo]:
    """Return the addresses in the order to try, alternating families; an IP address needs no look-up."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        return socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM, flags=flags)
    except OSError:
        addresses = await loop.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    families: dict[int, list[AddrInfo]] = {}
    for info in addresses:
        families.setdefault(info[0], []).append(info)
    return [info for info in chain(*zip_longest(*families.values())) if info is not None]


async def _connected(addresses: Sequence[AddrInfo]) -> socket.socket:
    """Return a socket connected to the first address that answers.

    If an address is slow, the next one is tried in parallel.
    """
    if len(addresses) == 1:
        return await _attempt(addresses[0])
    won: list[socket.socket] = []
    errors: list[OSError] = []

    async def attempt(info: AddrInfo, over: anyio.Event) -> None:
        try:
            made = await _attempt(info)
        except OSError as error:
            errors.append(error)
            over.set()
            return
        won.append(made)
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for info in addresses:
                over = anyio.Event()
                tasks.start_soon(attempt, info, over)
                with anyio.move_on_after(_NEXT_ADDRESS):
                    await over.wait()
    except BaseException:
        for made in won:
            made.close()
        raise
    for made in won[1:]:
        made.close()
    if won:
        return won[0]
    if len({error.errno for error in errors}) == 1:
        raise errors[0]
    raise OSError("; ".join(dict.fromkeys(map(_reason, errors))))


async def _attempt(info: AddrInfo) -> socket.socket:
    made = keepalive_socket(info)
    try:
        try:
            made.connect(info[4])  # uvloop's sock_connect would encode the address by IDNA, too
        except (BlockingIOError, InterruptedError):
            await anyio.wait_writable(made)
            if (number := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) != 0:
                raise OSError(number, os.strerror(number)) from None
    except BaseException:
        made.close()
        raise
    return made


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return one_line(error)
    if isinstance(error, ConnectionError) and error.errno is None and not str(error):
        return "the server closed the connection during the TLS handshake"
    if isinstance(error, ssl.SSLError) or not error.errno or error.errno < 0:
        # TLS and name resolution have their own error numbers and texts.
        return one_line(error.strerror or error)
    return os.strerror(error.errno).lower()
