# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint: ``/metrics`` over plain HTTP or TLS, behind an optional filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import anyio
from prometheus_client.registry import CollectorRegistry

from controller_runtime import log
from controller_runtime.serving import (
    Address,
    Handler,
    HTTPRequest,
    HTTPResponse,
    Server,
    TLSOptions,
    TLSProvider,
)

from .registry import CONTENT_TYPE, REGISTRY, render

PATH: Final = "/metrics"
MAX_AGE: Final = 1.0
"""Scrapes within this many seconds get the same text, because rendering it blocks the event loop."""

Filter = Callable[[Handler], Handler]
"""Wraps every handler of the server, e.g. to authenticate clients."""

_log = log.logger_from("controller-runtime.metrics")


class MetricsServer:
    """A runnable that serves ``registry``. It runs on followers, too."""

    name = "metrics server"

    def __init__(
        self,
        address: Address,
        *,
        registry: CollectorRegistry = REGISTRY,
        tls: TLSProvider | None = None,
        tls_options: TLSOptions | None = None,
        filter_: Filter | None = None,
        extra: Mapping[str, Handler] | None = None,
    ) -> None:
        """Make a server. ``filter_`` also guards the handlers in ``extra``. Raises like :meth:`add_extra_handler`."""
        self._registry = registry
        self._filter = filter_
        self._routes: dict[str, Handler] = {}
        self._route(PATH, self._serve)
        for path, handler in (extra or {}).items():
            self.add_extra_handler(path, handler)
        self._rendered: tuple[float, bytes] = (-math.inf, b"")
        self._address = address
        self._secure = tls is not None
        self._server = Server(address, self._routes, tls=tls, tls_options=tls_options)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    def add_extra_handler(self, path: str, handler: Handler) -> None:
        """Serve ``handler`` at ``path``, behind the server's filter. This is also possible while the server runs.

        Raises:
            ValueError: the path is taken or is not absolute.
        """
        if not path.startswith("/"):
            raise ValueError(f"metrics server: path {path!r} does not begin with /")
        if path in self._routes:
            raise ValueError(f"metrics server: path {path} is taken")
        self._route(path, handler)

    def _route(self, path: str, handler: Handler) -> None:
        self._routes[path] = handler if self._filter is None else self._filter(handler)

    def listen(self) -> None:
        """Bind the address. Raises like :meth:`controller_runtime.serving.Server.listen`."""
        self._server.listen()

    def close(self) -> None:
        """Release the address of a server that was never started."""
        self._server.close()

    def need_leader_election(self) -> bool:
        """Return False: a follower serves its metrics, too."""
        return False

    async def ready(self) -> None:
        """Return when the server accepts connections."""
        await self._server.ready()

    async def start(self) -> None:
        """Serve until cancelled."""
        self.listen()
        _log.info("Serving metrics server", bindAddress=str(self._address), secure=self._secure)
        await self._server.start()

    async def _serve(self, _request: HTTPRequest) -> HTTPResponse:
        now = anyio.current_time()
        if now - self._rendered[0] >= MAX_AGE:
            self._rendered = (now, render(self._registry))
        return HTTPResponse(body=self._rendered[1], content_type=CONTENT_TYPE)
