# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RoundTripper and Response: the interface between requests and the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

from . import errors, http1
from .request import Request

_LONGEST_SHOWN: Final = 256
_LONGEST_LINE: Final = 1 << 26
_JSON: Final = {"Content-Type": "application/json"}


class Response(ABC):
    """A response whose head has arrived.

    For an ordinary request, the body is complete, too. For a stream, the body arrives while it is read. Close a stream
    after use; closing twice, or closing a complete response, does nothing.
    """

    status: int
    headers: Mapping[str, str]

    @abstractmethod
    async def read(self) -> bytes:
        """Return the whole body."""

    @abstractmethod
    def lines(self) -> AsyncIterator[bytes]:
        """Yield the body's lines without line ends; the last line of the body may have no line end.

        Raises:
            TransportError: the connection broke.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release the connection."""

    async def raise_for_status(self, *, media_type: str = "json") -> None:
        """Return if the request succeeded; otherwise close the response and raise.

        A successful response may lack a media type. If it has one, this must contain ``media_type``, written in lower
        case. Pass another ``media_type`` for responses that are not JSON, such as logs of pods.

        Raises:
            StatusError: the status code is 400 or more.
            AnswerError: the status code is below 400 but not 2xx, or the response has another media type.
        """
        if self.status >= 400:
            try:
                body = await self.read()
            finally:
                await self.close()
            raise errors.status_error(self.status, self.headers, body)
        found = self.headers.get("Content-Type", "")
        if 200 <= self.status < 300 and (not found or media_type in found.lower()):
            return
        await self.close()
        if 200 <= self.status < 300:
            wanted = "JSON" if media_type == "json" else media_type
            raise errors.AnswerError(f"the response is of type {found[:_LONGEST_SHOWN]!r}, not {wanted}")
        location = self.headers.get("Location", "")[:_LONGEST_SHOWN]
        raise errors.AnswerError(
            f"the response has status {self.status} and is not from the Kubernetes API"
            + (f"; it redirects to {location!r}" if location else "")
        )


class CompleteResponse(Response):
    """A response with its whole body, which is JSON unless ``headers`` say otherwise."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] = _JSON) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def read(self) -> bytes:
        return self.body

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self.body.splitlines():
            yield line

    async def close(self) -> None:
        return None


class StreamResponse(Response):
    """A response whose body arrives in pieces, which a subclass yields."""

    host: str
    """The server's address, for errors."""

    @abstractmethod
    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            TransportError, http1.Error: the connection broke.
        """

    async def read(self) -> bytes:
        try:
            return b"".join([piece async for piece in self.pieces()])
        except http1.Error as error:
            raise errors.TransportError(str(error), host=self.host) from error

    async def lines(self) -> AsyncIterator[bytes]:
        pending: list[bytes] = []
        held = 0
        try:
            async for piece in self.pieces():
                first, *others = piece.split(b"\n")
                pending.append(first)
                held = held + len(first) if not others else len(others[-1])
                if held > _LONGEST_LINE:
                    raise errors.AnswerError(f"a line is longer than {_LONGEST_LINE} bytes", host=self.host)
                for following in others:
                    # A line may be large: keep no reference to it or its parts while the caller processes it.
                    pending = [b"".join(pending)]
                    yield pending.pop()
                    pending.append(following)
        except http1.Error as error:
            raise errors.TransportError(str(error), host=self.host) from error
        if rest := b"".join(pending):
            yield rest


class RoundTripper(Protocol):
    """Sends requests to one server."""

    async def send(self, request: Request) -> Response:
        """Return the server's response, regardless of its status.

        Raises:
            TransportError: no complete response was received.
        """
