# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Connection: one request after another over one socket. Incoming: the response to one of them, as it arrives.

Error           no response, or only a part of it, was received; the text is one line
└── GoneError   the connection was closed before the first byte of the response

A connection handles one request at a time. It notifies its owner when a response is complete and the connection can be
reused (``free``), and when the connection can no longer be used (``lost``). A request that is cancelled, times out or
gets an unexpected response closes only its own connection.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

import httptools

from controller_runtime.machinery.errors import one_line
from controller_runtime.machinery.lru import LRU

_JOINED: Final = frozenset((b"warning", b"transfer-encoding", b"connection", b"content-encoding"))
"""If one of these headers has several lines, they are joined. For any other header, only the first line is used."""
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNFIT: Final = re.compile(r"[\x00\r\n]")
_UNFIT_TARGET: Final = re.compile(r"[\x00-\x20\x7f]")
_BODY_EXPECTED: Final = frozenset(("POST", "PUT", "PATCH"))
_MOST_RENDERED: Final = 256
_SMALL: Final = 1 << 16
"""A body of up to this many bytes is sent together with the head; a larger body is sent in parts of this size."""
_LONGEST_HEAD: Final = 1 << 20
_LONGEST_JOINED: Final = 1 << 16
"""Maximum number of bytes of a header that has several lines. Joining tens of thousands of lines would take seconds."""
HIGH: Final = 1 << 18
"""The connection stops reading a stream that has more unread bytes than this."""
LOW: Final = 1 << 16


class Error(Exception):
    """No response, or only a part of it, was received."""


class GoneError(Error):
    """The connection was closed before the first byte of the response; the request may have taken effect."""


class Bounds(NamedTuple):
    """The limits of a whole response: bytes of its body and total seconds."""

    size: int
    seconds: float
    unread: int = 0
    """A response that is larger than ``size`` and is not an error is read and discarded, up to this many bytes."""


ORDINARY: Final = Bounds(1 << 24, 120.0)
"""Limits for one object. They are higher than etcd's size limit and an API server's request timeout."""
_EXPANSION: Final = 1 << 24
"""A response is refused if the data of one read decompresses to more bytes than this."""
_BUFFER: Final = 1 << 17
_buffers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview]] = WeakKeyDictionary()
"""One buffer per event loop is enough, because data is parsed as soon as it is read. Without this buffer, TLS would
allocate 256 KiB for each read."""


class Headers(Mapping[str, str]):
    """The headers of a response. Names are case-insensitive; bytes that are not UTF-8 become surrogates."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[bytes, tuple[bytes, bytes]] = {}
        """For each name in lower case, the name as it was sent, and the value."""

    def add(self, name: bytes, value: bytes) -> None:
        """Add a line.

        Raises:
            Error: the lines of a header that are joined are too long together.
        """
        key = name.lower()
        if key not in self.lines:
            self.lines[key] = (name, value)
        elif key in _JOINED:
            joined = self.lines[key][1] + b", " + value
            if len(joined) > _LONGEST_JOINED:
                raise Error(f"malformed response: its header {key!r} is longer than {_LONGEST_JOINED} bytes")
            self.lines[key] = (name, joined)

    def clear(self) -> None:
        """Remove all lines. This is called after the head of an interim response."""
        self.lines.clear()

    def raw(self, key: bytes) -> bytes:
        """Return the value of the header ``key``, which is in lower case, or empty bytes."""
        line = self.lines.get(key)
        return line[1].strip() if line is not None else b""

    def __getitem__(self, name: str) -> str:
        try:
            value = self.lines[name.lower().encode()][1]
            return value.strip(b" \t").decode("utf-8", "surrogateescape")
        except KeyError:
            raise KeyError(name) from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode() in self.lines

    def __iter__(self) -> Iterator[str]:
        return (name.decode("utf-8", "surrogateescape") for name, _ in self.lines.values())

    def __len__(self) -> int:
        return len(self.lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class Incoming:
    """One response; ``status`` is 0 until its head has arrived. Without ``bounds`` it is a stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bounds: Bounds | None) -> None:
        self.status = 0
        self.headers = Headers()
        self.is_buffered = bounds is not None
        """True if the reader waits for the end of the response, False if it waits only for the head."""
        self.ended = False
        self.error: BaseException | None = None
        self.unread = 0
        self.resume: Callable[[], None] | None = None
        """Makes the connection read again. It is set only while the connection has stopped reading."""
        self._bounds = bounds or ORDINARY
        self.total_timeout = self._bounds.seconds
        """Seconds after which a whole response is aborted even if bytes still arrive."""
        self._loop = loop
        self._pieces: deque[bytes] = deque()
        self.waiter: asyncio.Future[None] | None = None
        """The future that the reader waits for."""
        self.decoder: _Decoder | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            Error: the body was cut off.
        """
        pieces = self._pieces
        while True:
            while pieces:
                self.unread -= len(pieces[0])
                if self.resume is not None and self.unread <= LOW:
                    self.resume()
                yield pieces.popleft()
            if self.error is not None:
                raise self.error
            if self.ended:
                return
            self.waiter = self._loop.create_future()
            await self.waiter

    def take_body(self) -> bytes:
        """Return the whole body. The body is not kept: a second call returns empty bytes."""
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def add(self, piece: bytes) -> None:
        """Add a part of the body.

        Raises:
            Error: the part cannot be decoded, or the body is too large.
        """
        if self.decoder is not None:
            piece = self.decoder.decode(piece)
        if piece:
            self._pieces.append(piece)
            self.unread += len(piece)
            if self.is_buffered and self.unread > self._bounds.size:
                self._pieces.clear()
                most = max(self._bounds.size, self._bounds.unread if self.status < 400 else 0)
                if self.unread > most:
                    raise Error(f"the response is larger than {most} bytes")

    @property
    def ends_with_connection(self) -> bool:
        """True if the body ends when the connection ends, because no header states the length of the body."""
        codings = self.headers.raw(b"transfer-encoding").lower().split(b",")
        return not self.headers.raw(b"content-length") and codings[-1].strip() != b"chunked"

    def end(self, error: BaseException | None = None) -> None:
        """End the response; if the response is incomplete, ``error`` is the reason."""
        if self.ended:
            return
        if error is None and self.decoder is not None and not self.decoder.complete:
            error = Error("the response was cut off: its compressed body is incomplete")
        self.ended = True
        self.error = error
        self.resume = None
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Heads:
    """Renders the heads of requests to one server; shared headers are rendered once.

    A header of the request replaces the shared header of the same name.
    """

    def __init__(self, prefix: str, shared: Iterable[tuple[str, str]]) -> None:
        self._prefix = prefix
        self._shared = [(name.lower(), _line(name, value)) for name, value in shared]
        self._shared_names = {name for name, _ in self._shared}
        self._constant = b"".join(line for _, line in self._shared)
        self._rendered: LRU[tuple[str, str], tuple[bytes, bool]] = LRU(_MOST_RENDERED)

    def render(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return a head that ends in an empty line.

        Raises:
            Error: the method, the target or a header contains characters that are not allowed.
        """
        target = self._prefix + target
        if _UNFIT_TARGET.search(target) or not _NAME.fullmatch(method):
            raise Error(f"{method} {target!r} is not a request line")
        lines = [f"{method} {target or '/'} HTTP/1.1\r\n".encode(), self._constant]
        replaced = False
        for pair in headers.items():
            known = self._rendered.get(pair)
            if known is None:
                known = self._rendered[pair] = (_line(*pair), pair[0].lower() in self._shared_names)
            lines.append(known[0])
            replaced |= known[1]
        if replaced:
            names = {name.lower() for name in headers}
            lines[1] = b"".join(line for name, line in self._shared if name not in names)
        if body is not None or method in _BODY_EXPECTED:
            lines.append(b"Content-Length: %d\r\n" % len(body or b""))
        lines.append(b"\r\n")
        return b"".join(lines)


def _line(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name) or _UNFIT.search(value):
        raise Error(f"the header {name!r} cannot be sent: its name or value contains invalid characters")
    return f"{name}: {value}\r\n".encode("utf-8", "surrogateescape")


class ConnectionOwner(Protocol):
    """Owns connections and assigns them to requests."""

    def free(self, connection: Connection) -> None:
        """Called when the connection can be used again."""

    def lost(self, connection: Connection) -> None:
        """Called at least once when the connection can no longer be used."""


class Connection(asyncio.BufferedProtocol):
    """An asyncio protocol; ``context`` is a value by which the owner distinguishes its connections.

    The ``on_…`` methods are called by httptools, whose parser is written in C.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owner: ConnectionOwner, context: object = None
    ) -> None:
        self.context = context
        self.idle_since = 0.0
        self._loop = loop
        buffer = _buffers.get(loop)
        if buffer is None:
            buffer = _buffers[loop] = memoryview(bytearray(_BUFFER))
        self._buffer = buffer
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._answer: Incoming | None = None
        self._bodiless = False
        """True if the response ends with its head, regardless of its headers."""
        self._extra = False
        """True if bytes arrived after the end of the requested response."""
        self._finished = False
        self._informational = False
        self._reusable = False
        """True if the server keeps the connection open."""
        self._sending = False
        self._head_size = 0
        self._writable: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None
        self._deadline: float | None = None
        self._idle_timeout = self._last_input = self._total_deadline = self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """True if a request can be sent now."""
        transport = self._transport
        return transport is not None and self._answer is None and not transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport:
        """The transport; a tunnel through a proxy needs it.

        Raises:
            GoneError: the connection is closed.
        """
        if self._transport is None:
            raise GoneError("the server closed the connection without a response")
        return self._transport

    def closed(self) -> asyncio.Future[None]:
        """Return a future that is done once the socket is closed."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            if self._transport is None:
                self._closed.set_result(None)
        return self._closed

    async def ask(
        self,
        head: bytes,
        body: bytes | None = None,
        *,
        bounds: Bounds | None = ORDINARY,
        bodiless: bool = False,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> Incoming:
        """Return the response.

        Without ``bounds``, a successful response is a stream: it is returned when its head has arrived. Any other
        response is returned with its whole body.

        The request is aborted if the head of the response has not arrived at ``deadline``. A response with ``bounds``
        is also aborted if no part of its body arrives for ``timeout`` seconds, or if the response takes longer than
        ``bounds.seconds``. Without a ``deadline``, the time is not limited. With ``bodiless``, the response ends with
        its head, even if its headers announce a body; afterwards, the connection belongs to the caller.

        Raises:
            GoneError: the connection was closed before the first byte of the response.
            Error: the response is malformed, was cut off, or exceeds ``bounds``.
            TimeoutError: the response was not received in time; the text says which part of it.
        """
        transport = self._transport or self.transport
        answer = self._answer = Incoming(self._loop, bounds)
        self._bodiless, self._head_size = bodiless, 0
        if deadline is not None:
            self._idle_timeout = timeout or 0.0
            self._total_deadline = self._loop.time() + answer.total_timeout
            self._wait_until(deadline)
        try:
            if not body:
                transport.write(head)
            elif len(body) <= _SMALL:
                transport.write(head + body)
            else:
                await self._send(transport, head, body, answer)
            while not (answer.ended or (answer.status and not answer.is_buffered)):
                answer.waiter = self._loop.create_future()
                await answer.waiter
        except BaseException:
            self.give_up(answer)
            raise
        if answer.error is not None:
            raise answer.error
        if self._answer is answer:
            self._deadline = None
        return answer

    def give_up(self, answer: Incoming) -> None:
        """Abort the connection if ``answer`` is incomplete.

        If it is complete, another request may already use the connection.
        """
        if self._answer is answer:
            self.abort()

    def abort(self, error: BaseException | None = None) -> None:
        """Close the connection at once; a task waiting for its response gets ``error``."""
        self._end(error or Error("the connection was aborted"))
        transport = self._transport
        if transport is not None:
            transport.abort()

    async def _send(self, transport: asyncio.Transport, head: bytes, body: bytes, answer: Incoming) -> None:
        """Send a large body in parts. Stop as soon as the response arrives: the server may reject the request early."""
        self._sending = True
        transport.write(head)
        view = memoryview(body)
        for at in range(0, len(body), _SMALL):
            if answer.ended or self._answer is not answer:
                return
            transport.write(view[at : at + _SMALL])
            if self._writable is None:
                await asyncio.sleep(0)
            else:
                await self._writable
        self._sending = False

    def _wait_until(self, deadline: float) -> None:
        """Start a timer for ``deadline``.

        If an earlier timer is running, it is kept and checks the deadline when it fires: most requests have finished by
        then.
        """
        self._deadline = deadline
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._late)

    def _late(self) -> None:
        self._timer = None
        answer, deadline = self._answer, self._deadline
        if answer is None or deadline is None:
            return
        if answer.status and not answer.is_buffered:
            return  # the head of a stream came in time, although its reader has not been resumed yet
        if answer.status:
            deadline = max(deadline, self._last_input + self._idle_timeout)
            if deadline > self._total_deadline and self._loop.time() >= self._total_deadline:
                self.abort(Error(f"the response did not end within {answer.total_timeout:g} s"))
                return
            deadline = min(deadline, max(self._total_deadline, self._deadline or 0.0))
        if self._loop.time() < deadline:
            self._wait_until(deadline)
        else:
            self.abort(TimeoutError("no further part of the response" if answer.status else "no response"))

    def _end(self, error: BaseException | None) -> None:
        """End the current response and report the connection as lost."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.end(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume_writing()
        self._owner.lost(self)

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's interface, but not its class.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        error: Error | None
        if answer is None:
            error = None
        elif not answer.status and not self._head_size and not self._informational:
            error = GoneError(
                one_line(exc) if exc is not None else "the server closed the connection without a response"
            )
        elif exc is None and answer.status and answer.ends_with_connection:
            error = None
        else:
            error = Error("the response was cut off" + (f": {one_line(exc)}" if exc is not None else ""))
        if error is not None:
            error.__cause__ = exc
        self._end(error)
        self._transport = None
        self._parser = None
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the bytes just read."""
        data = self._buffer[:nbytes]
        answer = self._answer
        if answer is None:
            # No request is in progress: these bytes could be mistaken for the next response.
            self.abort()
            return
        if not answer.status:
            self._head_size += len(data)
            if self._head_size > _LONGEST_HEAD:
                self.abort(Error(f"malformed response: its head is longer than {_LONGEST_HEAD} bytes"))
                return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._extra = True
            if not self._finished:
                refused = error.__context__
                if not isinstance(refused, Error):
                    upgrade = isinstance(error, httptools.HttpParserUpgrade)  # its text is only a position
                    reason = "it switches to another protocol" if upgrade else one_line(error)
                    refused = Error(f"malformed response: {reason}")
                    refused.__cause__ = error
                self.abort(refused)
                return
        if self._finished:
            # The response is complete: deliver it, and free or close the connection.
            self._finished = False
            reusable = self._reusable and not self._sending and not self._extra
            if answer.resume is not None:
                answer.resume()
            if not self._bodiless and not reusable:
                answer.end()
                self.abort()
                return
            self._answer = self._deadline = None
            answer.end()
            if not self._bodiless:
                self._owner.free(self)
        elif answer.status:
            self._last_input = self._loop.time()
            streams = not answer.is_buffered
            if streams and answer.waiter is not None and not answer.waiter.done():
                answer.waiter.set_result(None)
            if streams and answer.unread > HIGH and answer.resume is None and self._transport is not None:
                self._transport.pause_reading()
                answer.resume = self._resume

    def _resume(self) -> None:
        answer = self._answer
        if answer is not None and self._transport is not None:
            answer.resume = None
            self._transport.resume_reading()

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self._extra = self._finished

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self._answer
        if answer is not None and not answer.status:
            answer.headers.add(name, value)

    def on_headers_complete(self) -> None:
        answer = self._answer
        status = self._parser.get_status_code()
        if answer is None or self._finished:
            self._extra = True
        elif status < 200:
            self._informational = True
            answer.headers.clear()
        else:
            self._informational = False
            self._reusable = self._parser.should_keep_alive()
            answer.status, answer.is_buffered = status, answer.is_buffered or status >= 400
            if b"content-encoding" in answer.headers.lines:
                answer.decoder = _Decoder.of(answer.headers.raw(b"content-encoding").lower())
            self._finished = self._bodiless

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        if answer is None or self._finished:
            self._extra = True
        else:
            answer.add(body)

    def on_message_complete(self) -> None:
        if not self._informational:
            self._finished = True


class _Decoder:
    """Decompresses a body. Some proxies compress responses although no request asks for it."""

    def __init__(self, bits: int) -> None:
        self._inflate = zlib.decompressobj(bits)
        self._fed = False

    @classmethod
    def of(cls, encoding: bytes) -> _Decoder | None:
        if encoding == b"identity":
            return None
        if encoding in (b"gzip", b"x-gzip", b"deflate"):
            return cls(zlib.MAX_WBITS | 32)
        raise Error(
            f"the response is encoded as {encoding.decode('ascii', 'replace')!r}, which was not requested"
        )

    @property
    def complete(self) -> bool:
        return self._inflate.eof or not self._fed

    def decode(self, piece: bytes) -> bytes:
        self._fed = True
        try:
            decoded = self._inflate.decompress(piece, _EXPANSION)
        except zlib.error as error:
            raise Error(f"the response cannot be decoded: {error}") from error
        if self._inflate.unconsumed_tail:
            raise Error(f"the response cannot be decoded: {len(piece)} bytes become more than {_EXPANSION}")
        if self._inflate.unused_data:
            raise Error("the response cannot be decoded: other data follows its compressed body")
        return decoded
