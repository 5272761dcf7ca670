# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Logs over HTTP/1.1 as a kubelet serves them: ``/containerLogs/NAMESPACE/POD/CONTAINER``.

A connection carries one request. The response is chunked and has no Content-Length, because a log grows while its pod
runs.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.meta import format_micro_time, parse_time
from controller_runtime.rest import RestError

_FLAGS = ("follow", "previous", "timestamps")
HEALTH: Final = "/healthz"
LOGS: Final = "/containerLogs/"
EXEC: Final = "/exec/"
_HEAD_SECONDS: Final = 10.0
_END: Final = b"0\r\n\r\n"
_log = logging.getLogger(__name__)
Log = Callable[[str], AsyncIterator[bytes]]
"""Takes the target of a request and yields the pieces of the log. If a piece is empty, the server only checks
whether the client has disconnected.
"""
Execute = Callable[[str, bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Takes the target and the head of a request, and its connection. It raises LogError if nothing was written yet."""


class Line(NamedTuple):
    """A line and the time at which it was written."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Query:
    """Selects the lines that are sent, and how they are sent."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    limit: int | None = None
    """Maximum number of bytes."""
    since: datetime | None = None

    @classmethod
    def parse(cls, query: Mapping[str, Sequence[str]], now: datetime) -> Self:
        """Return the options in the query of a URL.

        Raises:
            ValueError: a value is not valid; the error names the option.
        """
        values = {name: found[-1] for name, found in query.items() if found}
        since = parse_time(values["sinceTime"]) if values.get("sinceTime") else None
        if (seconds := _count(values, "sinceSeconds")) is not None:
            since = now - timedelta(seconds=seconds)
        flags = {name: values.get(name, "").lower() in {"1", "t", "true"} for name in _FLAGS}
        return cls(**flags, tail=_count(values, "tailLines"), limit=_count(values, "limitBytes"), since=since)

    def first(self, lines: Sequence[Line]) -> Sequence[Line]:
        """Return the lines to send first. ``lines`` are all lines written so far."""
        since = self.since
        found = [line for line in lines if since is None or line.at >= since]
        return found if self.tail is None else found[max(0, len(found) - self.tail) :]

    def render(self, line: Line) -> bytes:
        """Return a line in the form in which it is sent."""
        stamp = f"{format_micro_time(line.at)} " if self.timestamps else ""
        return f"{stamp}{line.text}\n".encode()


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "")
    if not text or (name == "tailLines" and text == "all"):
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{name} must be a number: {text!r}")
    return min(int(text), 2**31)


class LogError(Exception):
    """A request is answered with an error instead of a log. ``status`` is the HTTP status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Target:
    """The container that a request names, and the options of the request."""

    namespace: str
    pod: str
    container: str
    query: Query

    @classmethod
    def parse(cls, target: str, now: datetime) -> Self:
        """Parse the target of a request: its path names the container, and its query contains the options.

        Raises:
            LogError: the path is not that of a log, or an option is not valid.
        """
        try:
            url = urlsplit(target)
        except ValueError as error:
            raise LogError(HTTPStatus.BAD_REQUEST, str(error)) from error
        match unquote(url.path).removeprefix(LOGS).split("/"):
            case [namespace, pod, container] if url.path.startswith(LOGS):
                pass
            case _:
                raise LogError(HTTPStatus.NOT_FOUND, f"{url.path} is not served")
        try:
            return cls(namespace, pod, container, Query.parse(parse_qs(url.query), now))
        except ValueError as error:
            raise LogError(HTTPStatus.BAD_REQUEST, str(error)) from error

    # The refusals, with the messages of a kubelet.

    def no_pod(self) -> LogError:
        """Return the error for a pod that does not exist."""
        return LogError(HTTPStatus.NOT_FOUND, f'pod "{self.pod}" not found')

    def no_container(self) -> LogError:
        """Return the error for a container that is not in the pod."""
        return LogError(HTTPStatus.NOT_FOUND, f"{self._place} not found")

    def no_previous(self) -> LogError:
        """Return the error for a container that has not run before."""
        return LogError(HTTPStatus.BAD_REQUEST, f"previous terminated {self._place} not found")

    def waits(self, reason: str) -> LogError:
        """Return the error for a container that has not started. ``reason`` says why it waits."""
        return LogError(HTTPStatus.BAD_REQUEST, f"{self._place} is waiting to start: {reason}")

    @property
    def _place(self) -> str:
        return f'container "{self.container}" in pod "{self.pod}"'


def mutual_tls(certificate: str, key: str, client_authority: str) -> ssl.SSLContext:
    """Return the TLS settings of a server. Its clients must have a certificate signed by ``client_authority``."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_authority)
    tls.load_cert_chain(certificate, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    return tls


class LogServer:
    """Answers requests for logs. ``log`` yields the pieces of the requested log, or raises LogError.

    ``execute`` answers requests to run a command; without it, they are refused.
    """

    def __init__(self, log: Log, execute: Execute | None = None) -> None:
        self._log_of = log
        self._execute = execute

    async def serve(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Listen until cancelled.

        Raises:
            OSError: the address cannot be bound.
        """
        async with await asyncio.start_server(self._connected, host, port, ssl=tls) as server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the request of one connection. If the client disconnects, stop without an error."""
        try:
            with anyio.fail_after(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.partition(b"\r\n")[0].decode("ascii").split(" ")
            if self._execute is not None and target.startswith(EXEC):
                try:
                    await self._execute(target, head, reader, writer)
                except LogError as error:
                    await _refuse(writer, error)
            elif method != "GET":
                await _refuse(writer, LogError(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not served"))
            elif target == HEALTH:
                await _send(writer, HTTPStatus.OK, b"ok")
            else:
                await self._answer(target, reader, writer)
        except (ValueError, TimeoutError, OSError, EOFError, asyncio.LimitOverrunError) as error:
            _log.debug("A request was not answered: %s", error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = False
        try:
            async for data in self._log_of(target):
                if reader.at_eof():  # a write would fail, but a quiet container causes no write
                    return
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
