# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One client's connection: requests go to their handlers one after the other, and responses are sent in that order.

While a request is in progress, we parse no further request, and stop reading when new input arrives. So a client that
does not wait for responses fills its own buffers, not ours. If a client disconnects, the handler still runs to its end,
because the handler's work may have effects; only the response is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

import anyio

from . import message
from .message import HTTPRequest, HTTPResponse
from .reader import Reader, State
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


class Connection(asyncio.BufferedProtocol):
    """Passes requests from a transport to the handlers, and responses back."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._deadline = 0.0
        self._reader = Reader(self._enqueue, shared.max_body, shared.count_kept, shared.inspection)
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
                self._transport.write(self._shared.render(answer, connection, headless=headless))
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
        if not self._lost and not self._ended:
            self._resume()

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

    def _resume(self) -> None:
        """Parse the input that arrived while a request was in progress, and wait for more."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._feed(rest)
        if self._task is None or self._reader.discarding:
            self._go_on_reading()
        if self._task is None:
            self._wait_for_more(State.IDLE)
            if self._eof:
                self._transport.close()
