# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One client's connection: requests go to their handlers one after the other, and responses are sent in that order.

While a request is in progress, we parse no further request, and stop reading when new input arrives. So a client that
does not wait for responses fills its own buffers, not ours. If a client disconnects, the handler still runs to its end,
because the handler's work may have effects; only the response is dropped.

A :class:`RequestReader` parses the bytes of a connection into requests, and rejects malformed requests::

    IDLE ──first byte──► HEAD ──blank line──► BODY ──last byte──► IDLE, or OVER when it was the last request
      └── malformed input is answered with 4xx or 5xx ──► OVER

A head that Go's net/http refuses is refused here, too: a proxy in front of the server might interpret such a head
differently. A request whose body exceeds the limit is delivered at once, without its body; the rest of the body is
discarded.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import re
from collections import deque
from collections.abc import Callable
from typing import Final, cast

import anyio
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from . import message
from .message import Headers, HTTPRequest, HTTPResponse, Inspection
from .sharedstate import SharedState

KEEP_ALIVE: Final = 120.0
"""Seconds for which an idle connection is kept. An API server closes its idle connections after 90 s, so it never uses
a connection that we have closed. A client that sends a body or reads a response may also pause for this long."""
HEAD_TIMEOUT: Final = 30.0
"""A client must send the whole head of a request within this many seconds after the first byte."""
_LINGER: Final = 10.0
"""After a request is rejected, further input is discarded for this many seconds, so that the client can read the
response."""
_SLICE: Final = 16 * 1024
"""Input is parsed in slices of this many bytes. If a slice completes a request, the rest waits for the response."""


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


class RequestReader:
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
        # Refuse a head that Go's server refuses. The parser has already refused conflicting lengths and malformed
        # fields.
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
            status, text = 0, ""
        elif version == "1.0":  # other servers ignore this header, and see the body end elsewhere
            status, text = 400, "400 bad request\n"
        elif (
            names.count(b"transfer-encoding") > 1
            or headers[b"transfer-encoding"].strip(b" \t").lower() != b"chunked"
        ):
            status, text = 501, "501 Not Implemented: unsupported transfer encoding"
        else:
            status, text = 0, ""
        if status:
            self._refuse(status, text)
            raise _RefusedError(text)
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


class Connection(asyncio.BufferedProtocol):
    """Passes requests from a transport to the handlers, and responses back."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._deadline = 0.0
        self._reader = RequestReader(self._enqueue, shared.max_body, shared.count_kept, shared.inspection)
        self.last_input = self._loop.time()
        """When the client last sent something."""
        self.body_since = self.last_input
        """When the client began to send the body."""
        # The queue contains requests and ready responses in order. ``_rest`` is input that is not parsed yet; ``_room``
        # is set once there is room to write.
        self._queue: deque[tuple[HTTPRequest | HTTPResponse, bytes]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._rest = b""
        self._paused = False
        self._body_paused = False  # True: do not read until there is room for more of the body
        self._room: anyio.Event | None = None
        self._ended = False  # the last answer is written
        self._eof = False
        self._lost = False

    @property
    def busy(self) -> bool:
        """True if a request is in progress or arriving."""
        if self._task is not None:
            return True
        return not self._ended and self._reader.state in {State.HEAD, State.BODY}

    @property
    def waiting(self) -> bool:
        """True if the connection waits for its client to send a request, or to read a response."""
        return self._task is None or self._room is not None

    @property
    def kept(self) -> int:
        """How many bytes of the arriving body are in memory."""
        return self._reader.kept

    def pause_body(self) -> None:
        """Stop reading the body until :meth:`resume_body` is called."""
        self._body_paused = True
        self._pause()

    def resume_body(self) -> None:
        """Continue reading."""
        self._body_paused = False
        if self._task is None and not self._transport.is_closing():
            self._go_on_reading()

    def drop(self) -> None:
        """Close now and free the memory; a request in progress continues."""
        self._reader.close()
        self._transport.abort()

    def stop(self) -> None:
        """Close if idle; otherwise close after the next response."""
        if not self.busy:
            self._transport.close()

    def abort(self) -> None:
        """Close now, and cancel the request in progress."""
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    # Calls of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, and start its timer."""
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._loop.time() + KEEP_ALIVE
        self._timer = self._loop.call_later(HEAD_TIMEOUT, self._tick)
        self._shared.enter(self)
        if self._shared.closing:  # the handshake was completed too late
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the memory; a request in progress continues."""
        del exc
        self._lost, self._rest = True, b""
        self._reader.close()
        self._timer.cancel()
        self._clear_queue()
        if self._room is not None:
            self._room.set()
        if self._task is None:
            self._shared.leave(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        del sizehint
        return self._shared.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the input, or keep it until the request in progress is answered."""
        data = self._shared.buffer[:nbytes]
        self.last_input = self._loop.time()
        if self._task is not None and not self._reader.discarding:
            self._rest += data
            self._pause()
            return
        before = self._reader.state
        self._feed(data)
        if self._task is None and not self._ended:
            self._wait_for_more(before)
            if self._shared.crowded and self.kept:
                self._shared.pause_body(self)

    def eof_received(self) -> bool:
        """Return True to keep the transport half open, so that a request in progress is answered (not with TLS)."""
        self._eof = True
        return self._task is not None and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        """Start no further request until the client has read the responses that we sent."""
        self._room = anyio.Event()
        self._deadline = self._loop.time() + KEEP_ALIVE

    def resume_writing(self) -> None:
        """Continue writing."""
        if self._room is not None:
            self._room.set()
            self._room = None

    def _tick(self) -> None:
        now = self._loop.time()
        if self._task is not None and self._room is None:
            until = now + HEAD_TIMEOUT  # the client waits for us
        elif now < self._deadline:
            # The timer runs at least this often, so that a deadline is met even if it has been moved to an earlier
            # time.
            until = min(self._deadline, now + HEAD_TIMEOUT)
        else:
            # With unsent data, abort: close would wait until the client has read the data, but the client does not
            # read.
            unsent = self._transport.get_write_buffer_size()
            (self._transport.abort if unsent else self._transport.close)()
            return
        self._timer = self._loop.call_at(until, self._tick)

    # Input.

    def _feed(self, data: bytes | memoryview) -> None:
        reader = self._reader
        for at in range(0, len(data), _SLICE):
            if reader.state is State.OVER:
                break
            if self._task is not None and not reader.discarding:
                self._rest = bytes(data[at:])
                self._pause()
                break
            reader.feed(data[at : at + _SLICE])
        if self._ended and not reader.unread:  # the rest of the refused body has arrived
            self._transport.close()

    def _wait_for_more(self, before: State) -> None:
        state = self._reader.state
        if self._reader.expecting:
            self._reader.expecting = False
            self._transport.write(message.CONTINUE)
        if state is State.BODY and before is not State.BODY:
            self.body_since = self.last_input
        if state is not State.HEAD:
            self._deadline = self._loop.time() + KEEP_ALIVE
        elif before is not State.HEAD:
            self._deadline = self._loop.time() + HEAD_TIMEOUT

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _go_on_reading(self) -> None:
        if self._paused and not self._body_paused:
            self._paused = False
            self._transport.resume_reading()

    # Output.

    def _enqueue(self, item: HTTPRequest | HTTPResponse, connection: bytes) -> None:
        self._queue.append((item, connection))
        if self._task is None:
            # The connection owns this task, and the shared state waits for the connection.
            self._task = self._loop.create_task(self._work())

    async def _work(self) -> None:
        """Answer the queued requests."""
        try:
            while self._queue:
                item, connection = self._queue.popleft()
                if isinstance(item, HTTPRequest):
                    try:
                        answer = await self._shared.answer(item)
                    finally:
                        self._shared.count_kept(-len(item.body))
                else:
                    answer = item
                if self._lost:
                    break
                if self._shared.closing and not self._queue:
                    connection = message.CLOSE
                headless = isinstance(item, HTTPRequest) and item.method == "HEAD"
                del item  # its body is not needed while the client reads
                second = int(self._shared.now())
                self._transport.write(message.render(answer, connection, second, headless=headless))
                if connection is message.CLOSE:
                    self._end()
                    break
                if self._room is not None:
                    await self._room.wait()
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self._task = None
            if self._lost:
                self._shared.leave(self)
        if self._lost or self._ended:
            return
        # Parse the input that arrived while a request was in progress. Wait for more if it contains no whole request.
        if self._rest:
            rest, self._rest = self._rest, b""
            self._feed(rest)
        if self._paused and (not self._queue or self._reader.discarding):
            self._go_on_reading()
        if not self._queue:
            self._wait_for_more(State.IDLE)
            if self._eof:
                self._transport.close()

    def _end(self) -> None:
        """Close the connection after the last response, but give the client time to read it."""
        self._ended, self._rest = True, b""
        self._clear_queue()
        self._shared.changed()
        if not self._reader.unread or self._eof:
            self._deadline = self._loop.time() + KEEP_ALIVE
            self._transport.close()
            return
        # Closing a connection with unread input would reset it, and the client could lose the response.
        self._deadline = self._loop.time() + _LINGER
        self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._tick)
        self._go_on_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _clear_queue(self) -> None:
        for item, _ in self._queue:
            if isinstance(item, HTTPRequest):
                self._shared.count_kept(-len(item.body))
        self._queue.clear()
