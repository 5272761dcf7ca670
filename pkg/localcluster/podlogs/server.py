# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Logs over HTTP/1.1 as a kubelet serves them: ``/containerLogs/NAMESPACE/POD/CONTAINER``.

A connection carries one request. The answer has no length: it grows while a pod runs, and ends with the connection's
last chunk.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.rest import RestError

from pkg.localcluster.podlogs.container import Container
from pkg.localcluster.podlogs.query import Query
from pkg.localcluster.podlogs.training import lines
from pkg.why.things import Thing

HEALTH: Final = "/healthz"
LOGS: Final = "/containerLogs/"
_HEAD_SECONDS: Final = 10.0
_POLL: Final = 0.25
_END: Final = b"0\r\n\r\n"
_log = logging.getLogger(__name__)

ReadPod = Callable[[str, str], Awaitable[Thing | None]]
"""Returns the pod of a namespace and a name, or None if it does not exist."""


class LogError(Exception):
    """The request gets no log; ``status`` is that of the answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class LogServer:
    """Answers requests for logs; ``read_pod`` is called for each, and again while a log is followed."""

    def __init__(
        self,
        read_pod: ReadPod,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        poll: float = _POLL,
    ) -> None:
        self._read_pod = read_pod
        self._now = now
        self._poll = poll

    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Listen until cancelled.

        Raises:
            OSError: the address cannot be bound.
        """
        async with await asyncio.start_server(self._connected, host, port, ssl=tls) as server:
            await server.serve_forever()

    async def log(self, target: str) -> AsyncIterator[bytes]:
        """Yield the pieces of a log; a followed one ends with its container or its pod.

        Raises:
            LogError: the log does not exist; nothing was yielded.
        """
        container, query = await self._requested(target)
        written = lines(container, self._now())
        new, left = query.first(written), query.limit
        while True:
            data = b"".join(map(query.render, new))[:left]
            left = None if left is None else left - len(data)
            yield data
            if not query.follow or container.ended is not None or left == 0:
                return
            await anyio.sleep(self._poll)
            pod = await self._read_pod(container.pod.namespace, container.pod.name)
            if pod is None or pod.uid != container.pod.uid:
                return
            sent, container = len(written), Container(pod, container.name)
            written = lines(container, self._now())
            new = written[sent:]

    async def _requested(self, target: str) -> tuple[Container, Query]:
        """Return the container and the options of a request."""
        url = urlsplit(target)
        names = unquote(url.path).removeprefix(LOGS).split("/")
        if not url.path.startswith(LOGS) or len(names) != 3:
            raise LogError(HTTPStatus.NOT_FOUND, f"{url.path} is not served")
        try:
            query = Query.parse(parse_qs(url.query), self._now())
        except ValueError as error:
            raise LogError(HTTPStatus.BAD_REQUEST, str(error)) from error
        namespace, pod_name, name = names
        pod = await self._read_pod(namespace, pod_name)
        if pod is None:
            raise LogError(HTTPStatus.NOT_FOUND, f'pod "{pod_name}" not found')
        container, place = Container(pod, name), f'container "{name}" in pod "{pod_name}"'
        if container.spec is None:
            raise LogError(HTTPStatus.NOT_FOUND, f"{place} not found")
        if query.previous:
            raise LogError(HTTPStatus.BAD_REQUEST, f"previous terminated {place} not found")
        if container.started is None:
            raise LogError(HTTPStatus.BAD_REQUEST, f"{place} is waiting to start: {container.waiting_reason}")
        return container, query

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the request of one connection. A client that disconnects ends it."""
        try:
            with anyio.fail_after(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.partition(b"\r\n")[0].decode("ascii").split(" ")
            if method != "GET":
                await _refuse(writer, LogError(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not served"))
            elif target == HEALTH:
                await _send(writer, HTTPStatus.OK, b"ok")
            else:
                await self._answer(target, writer)
        except (ValueError, TimeoutError, OSError, EOFError, asyncio.LimitOverrunError) as error:
            _log.debug("A request was not answered: %s", error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        begun = False
        try:
            async for data in self.log(target):
                if not begun:
                    writer.write(_start(HTTPStatus.OK) + b"Transfer-Encoding: chunked\r\n\r\n")
                    begun = True
                if data:
                    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
            writer.write(_END)
            await writer.drain()
        except LogError as error:
            await _refuse(writer, error)
        except (StatusError, RestError) as error:
            _log.warning("The log of %s cannot be sent: %s", target, error)
            if not begun:
                await _send(writer, HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode())


async def _refuse(writer: asyncio.StreamWriter, error: LogError) -> None:
    await _send(writer, error.status, f"{error}\n".encode())


async def _send(writer: asyncio.StreamWriter, status: HTTPStatus, body: bytes) -> None:
    writer.write(_start(status) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


def _start(status: HTTPStatus) -> bytes:
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
    return f"{line}Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n".encode()
