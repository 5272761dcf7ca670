# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol

import msgspec


class ServerError(Exception):
    """A server cannot listen; the message names the address or the option."""

    needs_no_stack = True


class Headers(Mapping[str, str]):
    """The headers of a request, found by name in any case; of several with one name, the first."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        """``fields`` have names in lower case."""
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        # Decode on access: a client sends half a dozen fields, and a handler reads one.
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
    """Inspects bodies while they arrive, so that a rejected one is not kept or read."""

    size: int
    """Minimum size in bytes of an inspected body: a smaller one is left to its handler."""

    def begin(self) -> Callable[[bytes], str | None]:
        """Return a function that takes each piece of one body, and returns the reason to reject it, or None."""
        ...


Handler = Callable[[HTTPRequest], Awaitable[HTTPResponse]]
