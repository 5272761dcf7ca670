# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests and responses as handlers see them, and the conversion from and to the bytes of a connection."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from controller_runtime.machinery.raised import ExpectedError

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE: Final = b"Connection: close\r\n"
KEEP: Final = b"Connection: keep-alive\r\n"
_BODILESS: Final = frozenset({204, 304})
_REMEMBERED: Final = 256
"""Targets of at most this many bytes are cached."""

_log = logging.getLogger("controller_runtime.http")


class ServerError(ExpectedError):
    """A server cannot listen; the message names the address or the option."""


class Headers(Mapping[str, str]):
    """The headers of a request. Names are case-insensitive. If several headers have the same name, only the first one
    is used.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        """Wrap ``fields``, whose names are in lower case."""
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
    body_rejected: bool = False
    """True if the body was longer than the server's limit, or the inspection refused it. Then ``body`` is empty."""
    refusal: str = ""
    """Why the inspection refused the body, or an empty string."""


class HTTPResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response with its whole body."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}

    @classmethod
    def text(cls, text: str, *, status: int = 200) -> HTTPResponse:
        """Return a plain text response, with a header that forbids browsers to guess another type."""
        return cls(status=status, body=text.encode(), headers={"X-Content-Type-Options": "nosniff"})


BROKEN: Final = HTTPResponse.text("500 internal server error\n", status=500)
"""Answers a request whose handler fails."""


class Inspection(Protocol):
    """Inspects bodies while they arrive. If a body is rejected, the rest of it is discarded."""

    size: int
    """Bodies with fewer bytes are not inspected."""

    def begin(self) -> Callable[[bytes], str | None]:
        """Return a function that takes the pieces of one body, one after the other. It returns the reason to reject the
        body, or None.
        """


Handler = Callable[[HTTPRequest], Awaitable[HTTPResponse]]


def target(raw: bytes) -> tuple[str, dict[str, list[str]]]:
    """Decode a request's target: return its path and its query."""
    # A few clients send the same few requests again and again.
    return _remembered(raw) if len(raw) <= _REMEMBERED else _split(raw)


def _split(raw: bytes) -> tuple[str, dict[str, list[str]]]:
    text = raw.decode("ascii", "replace")
    if text.startswith("/"):
        path, _, query = text.partition("#")[0].partition("?")
    else:  # the form of requests to a proxy
        try:
            parts = urlsplit(text)
        except ValueError:  # an invalid host
            return text, {}
        path, query = parts.path or "/", parts.query
    return unquote(path), parse_qs(query, keep_blank_values=True)


_remembered = lru_cache(maxsize=64)(_split)


def render(response: HTTPResponse, connection: bytes, second: int, *, headless: bool = False) -> bytes:
    """Return the bytes of a response. ``connection`` is empty, :data:`CLOSE` or :data:`KEEP`.

    ``headless`` omits the body, as in the response to a HEAD request. If a header cannot be written, e.g. because it
    contains a line break, return the bytes of a 500.
    """
    extra = b""
    try:
        start = _start(response.status, response.content_type, second)
        if response.headers:
            extra = b"".join([_field(name, value) for name, value in response.headers.items()])
    except ValueError:
        _log.exception("Error handling request")
        return render(BROKEN, connection, second, headless=headless)
    body = response.body
    if response.status in _BODILESS:
        return b"%b%b%b\r\n" % (start, extra, connection)
    return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (
        start,
        extra,
        connection,
        len(body),
        b"" if headless else body,
    )


@lru_cache(maxsize=16)
def _start(status: int, content_type: str, second: int) -> bytes:
    """Return the first lines of a response. Within a second, responses of the same status and type share them."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    line = f"HTTP/1.1 {status} {phrase}\r\nDate: {formatdate(second, usegmt=True)}\r\n".encode()
    return line if status in _BODILESS else line + _field("Content-Type", content_type)


def _field(name: str, value: str) -> bytes:
    field = f"{name}: {value}".encode()
    if b"\r" in field or b"\n" in field:
        raise ValueError(f"header {name!r}: contains a line break")
    return field + b"\r\n"
