# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The first answer of the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from controller_runtime import log, rest

from .errors import UnreachableError

_CONNECT_RETRY: Final = 1.0

_log = log.logger_from("controller-runtime.manager")


class FirstAnswer:
    """The first answer over ``transport``, which is requested once; the connection is kept for later requests."""

    def __init__(self, transport: rest.RoundTripper, address: str) -> None:
        self._transport = transport
        self._address = address
        self._status = 0

    async def status(self, timeout: float) -> int:
        """Return its HTTP status, the known one or as :func:`reach`."""
        return self._status or await self._ask(timeout, lambda _error: None)

    async def wait(self, timeout: float) -> None:
        """Return once there is one, or at once if ``timeout`` is 0; each retry is logged. Raises like :func:`reach`."""
        if timeout > 0 and not self._status:
            await self._ask(timeout, self._report)

    async def _ask(self, timeout: float, report: Callable[[rest.TransportError], None]) -> int:
        self._status = await reach(self._transport, timeout=timeout, report=report)
        return self._status

    def _report(self, error: rest.TransportError) -> None:
        _log.info("API server cannot be reached yet", host=self._address, error=error)


class SpareConnection:
    """A runnable that opens a connection while the caches fill, so that the first write does not wait for it."""

    name = "connection of the first write"

    def __init__(self, transport: rest.Transport) -> None:
        self._transport = transport

    async def start(self) -> None:
        """Open it, and end."""
        await self._transport.prepare()


async def reach(
    transport: rest.RoundTripper,
    *,
    timeout: float,
    report: Callable[[rest.TransportError], None] = lambda _error: None,
) -> int:
    """Return the HTTP status of the server's first answer; ``report`` is called before each retry.

    Raises:
        UnreachableError: no answer came within ``timeout`` seconds.
    """
    deadline = anyio.current_time() + timeout
    while True:
        left = max(_CONNECT_RETRY, deadline - anyio.current_time())
        try:
            response = await transport.send(rest.Request("GET", "/version", timeout=left))
            await response.close()
        except rest.TransportError as error:
            if anyio.current_time() + _CONNECT_RETRY >= deadline:
                raise UnreachableError(f"the API server cannot be reached: {error}") from error
            report(error)
        else:
            return response.status
        await anyio.sleep(_CONNECT_RETRY)
