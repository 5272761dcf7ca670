# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A transport without a network, for tests: a function returns the responses."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Self

import msgspec

from .layers import Response
from .request import Request


class FakeResponse(Response):
    """A response made of bytes, of a JSON value, or of lines."""

    def __init__(
        self,
        status: int = 200,
        body: object = b"",
        *,
        headers: Mapping[str, str] | None = None,
        lines: Iterable[bytes] | AsyncIterator[bytes] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        self.closed = False
        self._body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._lines = lines

    async def read(self) -> bytes:
        if self._lines is None:
            return self._body
        return b"".join([line + b"\n" async for line in self.lines()])

    async def lines(self) -> AsyncIterator[bytes]:
        if self._lines is None:
            for line in self._body.splitlines():
                yield line
        elif isinstance(self._lines, AsyncIterator):
            async for line in self._lines:
                yield line
        else:
            for line in self._lines:
                yield line

    async def close(self) -> None:
        self.closed = True


Handler = Callable[[Request], Response | Awaitable[Response]]


class FakeTransport:
    """Records each request in ``requests`` and returns the response of ``handler``.

    ``handler`` may be a coroutine function, and may raise an error.
    """

    def __init__(self, handler: Handler) -> None:
        self.requests: list[Request] = []
        self._handler = handler

    async def send(self, request: Request) -> Response:
        """Return the handler's response."""
        self.requests.append(request)
        answer = self._handler(request)
        return await answer if inspect.isawaitable(answer) else answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None
