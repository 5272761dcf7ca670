# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Answers of a simulated server: bytes, as they would come over a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from controller_runtime.apis.machinery import errors
from controller_runtime.rest import Response

JSON = {"Content-Type": "application/json"}


class Answer(Response):
    """A whole answer."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = JSON if headers is None else headers
        self.body = body

    async def read(self) -> bytes:
        """Return the body."""
        return self.body

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the body."""
        for line in self.body.splitlines():
            yield line

    async def close(self) -> None:
        """There is no connection to give up."""


class Stream(Response):
    """An answer whose lines come over time."""

    def __init__(self, lines: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        self.status = 200
        self.headers = JSON
        self._lines = lines
        self._on_close = on_close

    async def read(self) -> bytes:
        """Return all lines."""
        return b"\n".join([line async for line in self._lines])

    def lines(self) -> AsyncIterator[bytes]:
        """Yield lines as they come."""
        return self._lines

    async def close(self) -> None:
        """End the stream."""
        self._on_close()


def success(body: Any, status: int = 200) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, msgspec.json.encode(body))


def refusal(error: errors.StatusError) -> Answer:
    """Return the answer that a refusal is."""
    headers = dict(JSON)
    if error.retry_after is not None:
        headers["Retry-After"] = str(int(error.retry_after))
    return Answer(error.code, msgspec.json.encode(errors.to_status(error)), headers)


def page(status: int = 502) -> Answer:
    """Return a proxy's error page."""
    return Answer(status, b"<html><body><h1>Bad Gateway</h1></body></html>", {"Content-Type": "text/html"})
