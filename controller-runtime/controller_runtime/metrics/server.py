# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint: ``/metrics`` over plain HTTP or TLS, behind an optional filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import anyio
from prometheus_client.registry import CollectorRegistry

from controller_runtime import log, serving

from .registry import CONTENT_TYPE, REGISTRY, render

PATH: Final = "/metrics"
MAX_AGE: Final = 1.0
"""Seconds for which one rendered text is the response to all scrapes, because rendering blocks the event loop."""

Filter = Callable[[serving.Handler], serving.Handler]
"""Wraps every handler of the server, e.g. to authenticate clients."""

_log = log.logger_from("controller-runtime.metrics")


class MetricsServer(serving.Server):
    """A runnable that serves ``registry``; also on managers that do not lead."""

    def __init__(
        self,
        address: serving.Address,
        *,
        registry: CollectorRegistry = REGISTRY,
        tls: serving.TLSProvider | None = None,
        tls_options: serving.TLSOptions | None = None,
        filter_: Filter | None = None,
        extra: Mapping[str, serving.Handler] | None = None,
    ) -> None:
        """Make a server; ``filter_`` guards the handlers in ``extra``, too. Raises like :meth:`add_extra_handler`."""
        self._registry = registry
        self._filter = filter_
        self._handlers: dict[str, serving.Handler] = {}
        self._guard(PATH, self._serve)
        for path, handler in (extra or {}).items():
            self.add_extra_handler(path, handler)
        self._rendered: tuple[float, bytes] = (-math.inf, b"")
        super().__init__(address, self._handlers, tls=tls, tls_options=tls_options, name="metrics server")

    def add_extra_handler(self, path: str, handler: serving.Handler) -> None:
        """Serve ``handler`` at ``path``, behind the server's filter. This is also possible while the server runs.

        Raises:
            ValueError: the path is taken or is not absolute.
        """
        if not path.startswith("/"):
            raise ValueError(f"metrics server: path {path!r} does not begin with /")
        if path in self._handlers:
            raise ValueError(f"metrics server: path {path} is taken")
        self._guard(path, handler)

    def _guard(self, path: str, handler: serving.Handler) -> None:
        self._handlers[path] = handler if self._filter is None else self._filter(handler)

    def need_leader_election(self) -> bool:
        """Return False: a follower serves its metrics, too."""
        return False

    async def start(self) -> None:
        """Serve until cancelled."""
        self.listen()
        _log.info("Serving metrics server", bindAddress=str(self._address), secure=self._tls is not None)
        await super().start()

    async def _serve(self, _request: serving.HTTPRequest) -> serving.HTTPResponse:
        now = anyio.current_time()
        if now - self._rendered[0] >= MAX_AGE:
            self._rendered = (now, render(self._registry))
        return serving.HTTPResponse(body=self._rendered[1], content_type=CONTENT_TYPE)
