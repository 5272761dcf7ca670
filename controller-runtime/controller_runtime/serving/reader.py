# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Parse the bytes of a connection into requests, and reject malformed requests.

::

    IDLE ──first byte──► HEAD ──blank line──► BODY ──last byte──► IDLE, or OVER when it was the last request
      └── malformed input is answered with 4xx or 5xx ──► OVER

A head that Go's net/http refuses is refused here, too: a proxy in front of the server might interpret such a head
differently. A request whose body exceeds the limit is delivered at once, without its body; the rest of the body is
discarded.
"""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Callable
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from . import message
from .message import Headers, HTTPRequest, HTTPResponse, Inspection

MAX_HEAD: Final = 64 * 1024
"""Maximum number of bytes of a request's head; a longer head is refused."""
_OVERHEAD: Final = 8
"""A client that sends a body in chunks may send this many times the body's size in total."""

_HOST: Final = re.compile(rb"[A-Za-z0-9!$%&'()*+,\-.:;=\[\]_~]*[ \t]*")
"""Hosts that Go's server accepts. An empty host is valid."""
_PART: Final = 8 * 1024
"""Small pieces of a body are joined into parts of at least this many bytes."""

Deliver = Callable[[HTTPRequest | HTTPResponse, bytes], None]
"""Takes a request, or the response to a malformed request. The second argument is the Connection header of the
response."""

# Do not import the log package here: it forwards the records of this logger.
_log = logging.getLogger("controller_runtime.http")


class State(enum.Enum):
    """The part of a request that the reader is reading."""

    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    OVER = enum.auto()
    """No further input is parsed."""


class _RefusedError(Exception):
    """Ends the parsing of a request that has been refused."""


class Reader:
    """Reads requests. The parser calls the ``on_…`` methods."""

    def __init__(
        self,
        deliver: Deliver,
        max_body: int,
        count_kept: Callable[[int], None],
        inspection: Inspection | None = None,
    ) -> None:
        """Make a reader.

        When the reader keeps a piece of a body, it calls ``count_kept`` with the number of bytes. When the reader drops
        bytes, it calls ``count_kept`` with a negative number. The receiver of a request owns the request's body, and
        must itself call ``count_kept`` to release the bytes.
        """
        self.state = State.IDLE
        self.discarding = False
        """True if the body is too long or was refused. The request was delivered without the body."""
        self.unread = False
        """True if the last request was refused before the whole request had arrived."""
        self.expecting = False
        """True if the client waits for ``100 Continue`` before it sends the body."""
        self.kept = 0
        """How many bytes of an unfinished body are in memory."""
        self._deliver = deliver
        self._count_kept = count_kept
        self._max_body = max_body
        self._inspection = inspection
        self._inspect: Callable[[bytes], str | None] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._fields: list[tuple[bytes, bytes]] = []
        self._url = b""
        self._parts: list[bytes] = []
        self._crumbs: list[bytes] = []
        self._head_size = self._size = self._loose = self._wire = 0
        self._parser = HttpRequestParser(self)

    def close(self) -> None:
        """Stop reading, and free the memory at once, without waiting for the garbage collector."""
        self.state = State.OVER
        self._let_go()
        self._deliver = _drop
        if hasattr(self, "_parser"):
            del self._parser  # the parser refers to this reader

    def _let_go(self) -> None:
        self._parts.clear()
        self._crumbs.clear()
        kept, self.kept = self.kept, 0
        if kept:
            self._count_kept(-kept)

    def feed(self, piece: bytes | memoryview) -> None:
        """Parse a piece; must not be called in :attr:`State.OVER`."""
        try:
            self._parser.feed_data(piece)
        except HttpParserUpgrade:
            self.state = State.OVER  # answered as a plain request
        except HttpParserError as error:
            _log.debug("Bad request: %s", error)
            self._refuse(400, "400 bad request\n")
        if self.state is State.HEAD:
            self._head_size += len(piece)
            if self._head_size > MAX_HEAD:
                self._refuse(431, "431 request header fields too large\n")
        elif self.state is State.BODY:
            self._wire += len(piece)
            if self._wire > _OVERHEAD * self._size + MAX_HEAD:  # e.g. empty chunks or endless trailers
                self._refuse(400, "400 bad request\n")

    def _refuse(self, status: int, text: str) -> None:
        """Deliver a last response. No more input is parsed."""
        if self.state is State.OVER:
            return  # something after the last request
        self.state = State.OVER
        if not self.discarding:
            self.unread = True
            self._deliver(HTTPResponse.text(text, status=status), message.CLOSE)

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        self.state, self._url, self._head_size = State.HEAD, b"", 0

    def on_url(self, piece: bytes) -> None:
        """Note the target, or a piece of the target."""
        self._url += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; ignore trailers."""
        if self.state is State.HEAD:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check the head. Refuse a body that is too long, and note whether the client waits for ``100 Continue``."""
        # If several headers have the same name, the first one counts.
        self._headers = headers = dict(reversed(self._fields))
        self._check_head(headers)
        self._fields.clear()
        self.state, self._size, self._loose, self._wire = State.BODY, 0, 0, 0
        self._inspect = None
        length = int(headers.get(b"content-length", 0))
        if length > self._max_body:
            self._discard()
        elif b"expect" in headers:
            self.expecting = (
                headers[b"expect"].lower() == b"100-continue"
                and (length > 0 or b"transfer-encoding" in headers)
                and self._parser.get_http_version() == "1.1"
            )

    def _check_head(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a head that Go's server refuses. The parser has already refused conflicting lengths and malformed
        fields.
        """
        version, host = self._parser.get_http_version(), headers.get(b"host")
        repeated = len(headers) < len(self._fields)
        names = [name for name, _ in self._fields] if repeated else []
        if version not in {"1.0", "1.1"}:
            status, text = 505, "505 HTTP Version Not Supported: unsupported protocol version"
        elif names.count(b"host") > 1:
            status, text = 400, "400 Bad Request: too many Host headers"
        elif host is None and version == "1.1":
            status, text = 400, "400 Bad Request: missing required Host header"
        elif host is not None and not _HOST.fullmatch(host):
            status, text = 400, "400 Bad Request: malformed Host header"
        elif b"transfer-encoding" not in headers:
            return
        elif version == "1.0":  # other servers ignore this header, and see the body end elsewhere
            status, text = 400, "400 bad request\n"
        elif (
            names.count(b"transfer-encoding") > 1
            or headers[b"transfer-encoding"].strip(b" \t").lower() != b"chunked"
        ):
            status, text = 501, "501 Not Implemented: unsupported transfer encoding"
        else:
            return
        self._refuse(status, text)
        raise _RefusedError(text)

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body, unless the body is too long."""
        self._size += len(piece)
        if self.discarding:
            return
        self._crumbs.append(piece)
        self._loose += len(piece)
        self.kept += len(piece)
        self._count_kept(len(piece))
        if self._size > self._max_body:
            self._let_go()
            self._discard()
        elif self._loose >= _PART:
            self._join()

    def _join(self) -> None:
        """Join small pieces into one part, which needs less memory, and inspect the part."""
        self._parts.append(b"".join(self._crumbs))
        self._crumbs.clear()
        self._loose = 0
        inspection = self._inspection
        if inspection is None or self._size < inspection.size:
            return
        unseen = self._parts[-1:] if self._inspect is not None else self._parts
        self._inspect = inspect = self._inspect or inspection.begin()
        for part in unseen:
            if (refusal := inspect(part)) is not None:
                self._let_go()
                self._discard(refusal)
                break

    def on_message_complete(self) -> None:
        """Deliver the request."""
        self.expecting = False
        if self.discarding:
            self.state, self.unread = State.OVER, False
            return
        headers = self._headers
        keep = self._parser.should_keep_alive()
        if self._parser.should_upgrade():
            # The parser treats all that follows as another protocol, even the body of this request.
            if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
                self._refuse(501, "501 not implemented\n")
                return
            keep = False
        body = b"".join((*self._parts, *self._crumbs))
        self._parts.clear()
        self._crumbs.clear()
        self.kept = 0
        self.state = State.IDLE if keep else State.OVER
        # Write the Connection header if the client sent one, as clients of HTTP/1.0 must.
        self._deliver(
            self._request(body),
            message.CLOSE if not keep else message.KEEP if b"connection" in headers else b"",
        )

    def _discard(self, refusal: str = "") -> None:
        self.discarding = self.unread = True
        self._deliver(self._request(b"", body_rejected=True, refusal=refusal), message.CLOSE)

    def _request(self, body: bytes, *, body_rejected: bool = False, refusal: str = "") -> HTTPRequest:
        path, query = message.target(self._url)
        return HTTPRequest(
            method=self._parser.get_method().decode(),
            path=path,
            query=query,
            headers=Headers(self._headers),
            body=body,
            body_rejected=body_rejected,
            refusal=refusal,
        )


def _drop(_what: HTTPRequest | HTTPResponse, _connection: bytes) -> None:
    """Do nothing. After the reader was closed, this function replaces ``deliver``."""
