# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a handler is given and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol

import msgspec


class ServerError(Exception):
    """A server cannot listen; the message names the address or the option."""


class Headers(Mapping[str, str]):
    """The headers of a request, found by name in any case; of several with one name, the first."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        """``fields`` have names in lower case."""
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        # Decoded when asked for: of the half dozen that a client sends, a handler looks at one.
        return self._fields[name.lower().encode()].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class HTTPRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its whole body."""

    method: str = "GET"
    path: str
    query: Mapping[str, list[str]] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    too_large: bool = False
    """The body was longer than the server's limit, or was refused by its inspection; ``body`` is empty then."""
    refusal: str = ""
    """Why the inspection refused the body."""


class HTTPResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}

    @classmethod
    def text(cls, text: str, *, status: int = 200) -> HTTPResponse:
        """Return a plain text answer that browsers do not guess about."""
        return cls(status=status, body=text.encode(), headers={"X-Content-Type-Options": "nosniff"})


class Inspection(Protocol):
    """Looks at bodies while they arrive, so that one that will be refused is neither kept nor read."""

    size: int
    """Bytes of a body from which on it is looked at: a smaller one is left to its handler."""

    def begin(self) -> Callable[[bytes], str | None]:
        """Return what is called with each piece of one body, and returns why the body is refused, or None so far."""
        ...


Handler = Callable[[HTTPRequest], Awaitable[HTTPResponse]]
