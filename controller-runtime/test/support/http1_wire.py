# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A connection to the test itself: bytes in, bytes out, no socket."""

import asyncio
from typing import Any

from controller_runtime.rest import http1
from controller_runtime.rest.http1 import Connection


class Line(asyncio.Transport):
    """The transport of a connection; it closes in the loop's next iteration, as real ones do."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self.sent = b""
        self.ended = False
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.end()

    def end(self, error: Exception | None = None) -> None:
        """The other side, or ours, ends it."""
        if not self.ended:
            self.ended = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


class Wire:
    """A connection and the notifications of its owner."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.connection = Connection(asyncio.get_running_loop(), self)
        self.line = Line(self.connection)
        self.connection.connection_made(self.line)

    async def ask(
        self, head: bytes, body: bytes | None = None, **options: Any
    ) -> asyncio.Task[http1.Incoming]:
        """Send a request; the task returns when its response has begun."""
        asking = asyncio.ensure_future(self.connection.ask(head, body, **options))
        await asyncio.sleep(0)
        return asking

    def is_paused(self) -> bool:
        """Return True while the connection reads nothing."""
        return self.line.paused

    def free(self, connection: Connection) -> None:
        self.told.append("free")

    def lost(self, connection: Connection) -> None:
        if "lost" not in self.told:
            self.told.append("lost")
