# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The network as one method: a request goes in, an answer comes out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

from . import errors
from .request import Request

_LONGEST_SHOWN: Final = 256


class Response(ABC):
    """An answer whose head has arrived.

    Of an ordinary request the body is there too; of a stream it arrives as it is read. Close a stream
    when done with it; closing twice, or a finished answer, does nothing.
    """

    status: int
    headers: Mapping[str, str]

    @abstractmethod
    async def read(self) -> bytes:
        """Return the body to its end."""

    @abstractmethod
    def lines(self) -> AsyncIterator[bytes]:
        """Yield the body's lines without their ends, however long; a last line without an end counts.

        Raises:
            TransportError: the connection broke.
        """

    @abstractmethod
    async def close(self) -> None:
        """Give the connection up."""

    async def raise_for_status(self) -> None:
        """Return when the server agreed.

        Raises:
            StatusError: it answered 400 or more. The answer is closed then.
            AnswerError: the answer is neither that nor a success in JSON. It is closed then, too.
        """
        if self.status >= 400:
            try:
                body = await self.read()
            finally:
                await self.close()
            raise errors.status_error(self.status, self.headers, body)
        if problem := _problem(self.status, self.headers):
            await self.close()
            raise errors.AnswerError(problem)


def _problem(status: int, headers: Mapping[str, str]) -> str:
    """Return why an answer below 400 cannot be an API server's, or nothing."""
    if not 200 <= status < 300:
        location = headers.get("Location", "")[:_LONGEST_SHOWN]
        return f"the answer is {status}, not the Kubernetes API's" + (
            f"; it points to {location!r}" if location else ""
        )
    media_type = headers.get("Content-Type", "")
    if media_type and "json" not in media_type.lower():
        return f"the answer is of type {media_type[:_LONGEST_SHOWN]!r}, not JSON"
    return ""


class RoundTripper(Protocol):
    """Sends requests to one server."""

    async def send(self, request: Request) -> Response:
        """Return the server's answer, whatever its status.

        Raises:
            TransportError: there was none.
        """
        ...
