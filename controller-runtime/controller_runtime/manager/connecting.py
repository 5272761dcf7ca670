# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The wait for an API server before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from controller_runtime import rest

from .errors import UnreachableError

_RETRY: Final = 1.0


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
        left = max(_RETRY, deadline - anyio.current_time())
        try:
            response = await transport.send(rest.Request("GET", "/version", timeout=left))
            await response.close()
        except rest.TransportError as error:
            if anyio.current_time() + _RETRY >= deadline:
                raise UnreachableError(f"the API server cannot be reached: {error}") from error
            report(error)
        else:
            return response.status
        await anyio.sleep(_RETRY)
