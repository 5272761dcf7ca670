# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The server: its address, its TLS options and its routes. It accepts connections, and ends them when it stops."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec

from .connection import Connection
from .message import Handler, Inspection, ServerError
from .sharedstate import SharedState

HTTP_1_1: Final = "http/1.1"
_DRAIN: Final = 10.0
"""Seconds for which requests in progress may continue after the server was stopped."""
_HANDSHAKE: Final = 10.0
"""Seconds that a TLS handshake may take."""
_TLS_SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds that closing a TLS session may take."""
_NO_ACCEPT: Final = 0.5
"""Seconds to wait after a connection could not be accepted, e.g. because file descriptors are used up."""

_log = logging.getLogger("controller_runtime.http")


class TLSProvider(Protocol):
    """The source of a server's TLS context."""

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection.

        This method is called for each connection. It must return the same object until the certificate changes, and
        then a new object.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """TLS options of a server. The defaults are TLS 1.2 and newer, OpenSSL's ciphers, and no client certificate."""

    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum_version: ssl.TLSVersion | None = None
    ciphers: str = ""
    """Ciphers for TLS 1.2 and older, in OpenSSL's notation. The ciphers of TLS 1.3 cannot be chosen."""
    next_protocols: tuple[str, ...] = (HTTP_1_1,)
    """Protocols to offer by ALPN; may be empty. The server implements only HTTP/1.1."""
    client_ca: bytes | Path | None = None
    """Certificate authorities, in PEM, for client certificates. If None, the server requests no client certificates."""
    client_certificate_required: bool = True
    """If False, clients without a certificate are served even if ``client_ca`` is set."""
    configure: Callable[[ssl.SSLContext], None] | None = None
    """A function that changes the context after all other options were set. Use it for settings without an option."""

    def apply(self, context: ssl.SSLContext) -> None:
        """Set the options on a server's ``context``.

        Raises:
            ServerError: an option is not valid, or ``client_ca`` cannot be read.
        """
        try:
            with warnings.catch_warnings():
                # The interpreter warns of TLS versions before 1.2, but the operator has chosen the version.
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = self.minimum_version
                if self.maximum_version is not None:
                    context.maximum_version = self.maximum_version
            if self.ciphers:
                context.set_ciphers(self.ciphers)
            if self.client_ca is not None:
                authorities = self.client_ca
                pem = authorities if isinstance(authorities, bytes) else authorities.read_bytes()
                context.load_verify_locations(cadata=pem.decode("ascii", errors="ignore"))
                context.verify_mode = (
                    ssl.CERT_REQUIRED if self.client_certificate_required else ssl.CERT_OPTIONAL
                )
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ServerError(f"TLS options: {error}") from error
        if set(self.next_protocols) - {HTTP_1_1}:
            raise ServerError(
                f"TLS options: next protocols {', '.join(self.next_protocols)}: only {HTTP_1_1} is served"
            )
        context.set_alpn_protocols(list(self.next_protocols))
        if self.configure is not None:
            self.configure(context)


class Address(msgspec.Struct, frozen=True):
    """The host and port to listen on. No host means all interfaces; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address in one of Go's forms: ``host:port``, ``:port`` or ``[v6]:port``.

        Raises:
            ServerError: the address has none of these forms.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ServerError(f"listen on {text!r}: want host:port")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Server:
    """Serves ``routes`` until cancelled. A route that ends in ``/`` also serves the paths below it."""

    def __init__(
        self,
        address: Address,
        routes: Mapping[str, Handler],
        *,
        tls: TLSProvider | None = None,
        tls_options: TLSOptions | None = None,
        max_body: int = 1 << 20,
        max_connections: int | None = None,
        inspection: Inspection | None = None,
        name: str = "server",
    ) -> None:
        """Make a server. The default of ``max_connections`` depends on how many files the process may open."""
        self.name = name
        self._address = address
        self._routes = routes
        self._tls = tls
        self._tls_options = tls_options
        self._max_body = max_body
        self._max_connections = max_connections
        self._inspection = inspection
        self._socket: socket.socket | None = None
        self._accepting = anyio.Event()

    @property
    def port(self) -> int:
        """The port that the server listens on; before :meth:`listen`, the requested port."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else self._address.port

    def listen(self) -> socket.socket:
        """Bind the address now, so that an address in use is reported before anything else starts.

        A second call returns the same socket.

        Raises:
            ServerError: the address cannot be bound.
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
            # The library adds the address to strerror, so ask the system for the text. If a name does not resolve,
            # errno is negative.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ServerError(f"listen on {self._address}: {reason}") from error
        self._socket.setblocking(False)
        # Connections inherit this option, so that a peer that has disappeared is noticed eventually.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return self._socket

    def close(self) -> None:
        """Release the address of a server that was never started."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def ready(self) -> None:
        """Return once connections are accepted."""
        await self._accepting.wait()

    async def start(self) -> None:
        """Serve until cancelled; then refuse new connections, and give requests in progress time to finish.

        Raises:
            ServerError: the address cannot be bound, or the TLS options cannot be used.
        """
        listening = self.listen()
        shared = SharedState(
            self._routes,
            self._max_body,
            max_connections=self._max_connections,
            inspection=self._inspection,
        )
        try:
            context = self._context()
            async with anyio.create_task_group() as handshakes:
                self._accepting.set()
                while True:
                    accepted = await _accept(listening, shared)
                    try:
                        await shared.wait_for_room()
                    except BaseException:
                        accepted.close()
                        raise
                    handshake = shared.begin_handshake()
                    context = self._renewed(context)
                    handshakes.start_soon(_welcome, accepted, handshake, shared, context)
        finally:
            listening.close()
            self._socket = None
            with anyio.CancelScope(shield=True):
                await shared.drain(_DRAIN)

    def _context(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        context = self._tls.context()
        self._apply_options(context)
        return context

    def _renewed(self, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """Return the context for the next connection: the provider's newest context or, if that is not usable,
        ``context``.
        """
        if self._tls is None:
            return None
        try:
            newest = self._tls.context()
            if newest is not context:
                self._apply_options(newest)
        except Exception:  # the provider may raise anything; the former certificate stays in use
            _log.exception("Certificate cannot be replaced")
            return context
        return newest

    def _apply_options(self, context: ssl.SSLContext) -> None:
        if self._tls_options is not None:
            self._tls_options.apply(context)


async def _accept(listening: socket.socket, shared: SharedState) -> socket.socket:
    """Return the next connection. If it cannot be accepted, e.g. because file descriptors are used up, close another
    connection that waits for its client, and retry.
    """
    complained = False
    while True:
        try:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        except OSError as error:
            if not complained:
                _log.error("Connections cannot be accepted: %s", error)  # the stack does not help
            complained = True
            shared.evict()
            await anyio.sleep(_NO_ACCEPT)
        else:
            return accepted


async def _welcome(
    accepted: socket.socket, handshake: anyio.CancelScope, shared: SharedState, context: ssl.SSLContext | None
) -> None:
    """Make a connection of an accepted socket. If the TLS handshake fails, this is logged for debugging only."""
    made = False
    try:
        with handshake:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(shared),
                accepted,
                ssl=context,
                # Without TLS, these arguments are not allowed.
                ssl_handshake_timeout=_HANDSHAKE if context is not None else None,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_TIMEOUT if context is not None else None,
            )
            made = True
    except OSError as error:
        _log.debug("Connection was not made: %s", error)
    finally:
        shared.end_handshake(handshake)
        if not made:
            accepted.close()
