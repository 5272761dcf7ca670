# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Connection: one request after another over one socket.

A connection handles one request at a time. It notifies its owner when a response is complete and the connection can be
reused (``free``), and when the connection can no longer be used (``lost``). A request that is cancelled, times out or
gets an unexpected response closes only its own connection.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from controller_runtime.machinery.errors import one_line

from .incoming import HIGH, ORDINARY, Bounds, Incoming, ResponseParser, buffer_of
from .message import Error, GoneError

_SMALL: Final = 1 << 16
"""A body of up to this many bytes is sent together with the head; a larger body is sent in parts of this size."""
_LONGEST_HEAD: Final = 1 << 20


class Owner(Protocol):
    """Owns connections and assigns them to requests."""

    def free(self, connection: Connection) -> None:
        """Called when the connection can be used again."""

    def lost(self, connection: Connection) -> None:
        """Called at least once when the connection can no longer be used."""


class Connection(asyncio.BufferedProtocol):
    """An asyncio protocol; ``context`` is a value by which the owner distinguishes its connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner, context: object = None) -> None:
        self.context = context
        self.idle_since = 0.0
        self._loop = loop
        self._buffer = buffer_of(loop)
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._answer: Incoming | None = None
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
            TimeoutError: the response was not received in time.
        """
        transport = self.transport
        answer = self._answer = self._parser.answer = Incoming(self._loop, bounds)
        self._parser.bodiless, self._head_size, self._last_input = bodiless, 0, 0.0
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
            await answer.arrive()
        except BaseException:
            self.give_up(answer)
            raise
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
        if answer.whole and self._last_input:
            deadline = max(deadline, self._last_input + self._idle_timeout)
            if deadline > self._total_deadline and self._loop.time() >= self._total_deadline:
                self.abort(Error(f"the response did not end within {answer.total_timeout:g} s"))
                return
            deadline = min(deadline, max(self._total_deadline, self._deadline or 0.0))
        if self._loop.time() < deadline:
            self._wait_until(deadline)
        else:
            self.abort(TimeoutError())

    def _end(self, error: BaseException | None) -> None:
        """End the current response and report the connection as lost."""
        answer, self._answer, self._parser.answer = self._answer, None, None
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
        elif not answer.status and not self._head_size and not self._parser.informational:
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
        self._parser.close()
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
        if answer.status:
            self._last_input = self._loop.time()
        else:
            self._head_size += len(data)
        parser = self._parser
        try:
            parser.feed(data)
        except Error as error:
            self.abort(error)
            return
        if parser.finished:
            self._finish(answer)
        elif not answer.status:
            if self._head_size > _LONGEST_HEAD:
                self.abort(Error(f"malformed response: its head is longer than {_LONGEST_HEAD} bytes"))
        elif not answer.whole:
            answer.wake()
            if answer.held > HIGH and answer.resume is None and self._transport is not None:
                self._transport.pause_reading()
                answer.resume = self._resume

    def _resume(self) -> None:
        answer = self._answer
        if answer is not None and self._transport is not None:
            answer.resume = None
            self._transport.resume_reading()

    def _finish(self, answer: Incoming) -> None:
        """Deliver the complete response, and free or close the connection."""
        parser = self._parser
        parser.finished = False
        reusable = parser.reusable and not self._sending and not parser.extra
        if answer.resume is not None:
            answer.resume()
        if not parser.bodiless and not reusable:
            answer.end()
            self.abort()
            return
        self._answer = parser.answer = self._deadline = None
        answer.end()
        if not parser.bodiless:
            self._owner.free(self)
