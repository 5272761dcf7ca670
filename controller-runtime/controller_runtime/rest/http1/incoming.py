# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Incoming: a response as it arrives, filled by the parser and read by the caller."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import httptools

from controller_runtime.machinery.errors import one_line

from .message import Error, Headers

HIGH: Final = 1 << 18
"""The connection stops reading a stream that has more unread bytes than this."""
LOW: Final = 1 << 16


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


def buffer_of(loop: asyncio.AbstractEventLoop) -> memoryview:
    """Return the buffer that all connections of a loop read into."""
    buffer = _buffers.get(loop)
    if buffer is None:
        buffer = _buffers[loop] = memoryview(bytearray(_BUFFER))
    return buffer


class Incoming:
    """One response; ``status`` is 0 until its head has arrived. Without ``bounds`` it is a stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bounds: Bounds | None) -> None:
        self.status = 0
        self.headers = Headers()
        self.whole = bounds is not None
        """True if the reader waits for the end of the response, False if it waits only for the head."""
        self.ended = False
        self.error: BaseException | None = None
        self.held = 0
        self.resume: Callable[[], None] | None = None
        """Makes the connection read again. It is set only while the connection has stopped reading."""
        self._bounds = bounds or ORDINARY
        self._loop = loop
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._decoder: _Decoder | None = None

    async def arrive(self) -> None:
        """Wait for the whole response, or for the head of a stream.

        Raises:
            Error: the response was cut off.
            TimeoutError: the response was not received in time.
        """
        while not (self.ended or (self.status and not self.whole)):
            await self._wait()
        if self.error is not None:
            raise self.error

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            Error: the body was cut off.
        """
        pieces = self._pieces
        while True:
            while pieces:
                self.held -= len(pieces[0])
                if self.resume is not None and self.held <= LOW:
                    self.resume()
                yield pieces.popleft()
            if self.error is not None:
                raise self.error
            if self.ended:
                return
            await self._wait()

    def body(self) -> bytes:
        """Return the whole body. The body is not kept: a second call returns empty bytes."""
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def begin(self, status: int) -> None:
        """Process the head that has arrived.

        Raises:
            Error: the content encoding is not supported.
        """
        self.status = status
        if encoding := self.headers.raw(b"content-encoding").lower():
            self._decoder = _Decoder.of(encoding)
        self.whole = self.whole or status >= 400

    def take(self, piece: bytes) -> None:
        """Add a part of the body.

        Raises:
            Error: the part cannot be decoded, or the body is too large.
        """
        if self._decoder is not None:
            piece = self._decoder.decode(piece)
        if piece:
            self._pieces.append(piece)
            self.held += len(piece)
            if self.whole and self.held > self._bounds.size:
                self._pieces.clear()
                most = max(self._bounds.size, self._bounds.unread if self.status < 400 else 0)
                if self.held > most:
                    raise Error(f"the response is larger than {most} bytes")

    @property
    def ends_with_connection(self) -> bool:
        """True if the body ends when the connection ends, because no header states the length of the body."""
        codings = self.headers.raw(b"transfer-encoding").lower().split(b",")
        return not self.headers.raw(b"content-length") and codings[-1].strip() != b"chunked"

    @property
    def total_timeout(self) -> float:
        """Seconds after which a whole response is aborted even if bytes still arrive."""
        return self._bounds.seconds

    def end(self, error: BaseException | None = None) -> None:
        """End the response; if the response is incomplete, ``error`` is the reason."""
        if self.ended:
            return
        if error is None and self._decoder is not None and not self._decoder.complete:
            error = Error("the response was cut off: its compressed body is incomplete")
        self.ended = True
        self.error = error
        self.resume = None
        self.wake()

    def wake(self) -> None:
        """Wake the reader."""
        waiter = self._waiter
        if waiter is not None and (self.ended or not self.whole) and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class ResponseParser:
    """Fills ``answer`` from the bytes of a connection; its ``on_…`` methods are called by httptools."""

    def __init__(self) -> None:
        self.answer: Incoming | None = None
        self.bodiless = False
        """True if the response ends with its head, regardless of its headers."""
        self.extra = False
        """True if bytes arrived after the end of the requested response."""
        self.finished = False
        self.informational = False
        self.reusable = False
        """True if the server keeps the connection open."""
        self._parser: Any = httptools.HttpResponseParser(self)

    def close(self) -> None:
        """Stop parsing."""
        self._parser = None

    def feed(self, data: memoryview) -> None:
        """Parse the bytes just read.

        Raises:
            Error: the response is malformed, cannot be decoded or is too large. Bytes after the end of the response
                only set ``extra``.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.extra = True
            if self.finished:
                return
            if isinstance(error.__context__, Error):
                raise error.__context__ from None
            upgrade = isinstance(error, httptools.HttpParserUpgrade)  # its text is only a position
            reason = "it switches to another protocol" if upgrade else one_line(error)
            raise Error(f"malformed response: {reason}") from error

    def on_message_begin(self) -> None:
        self.extra = self.finished

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self.answer
        if answer is not None and not answer.status:
            answer.headers.add(name, value)

    def on_headers_complete(self) -> None:
        answer = self.answer
        status = self._parser.get_status_code()
        if answer is None or self.finished:
            self.extra = True
        elif status < 200:
            self.informational = True
            answer.headers.clear()
        else:
            self.informational = False
            self.reusable = self._parser.should_keep_alive()
            answer.begin(status)
            self.finished = self.bodiless

    def on_body(self, body: bytes) -> None:
        answer = self.answer
        if answer is None or self.finished:
            self.extra = True
        else:
            answer.take(body)

    def on_message_complete(self) -> None:
        if not self.informational:
            self.finished = True


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
        return decoded
