# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs commands in pods that run as local processes: ``/exec/NAMESPACE/POD/CONTAINER`` over WebSocket.

The protocol is ``v4.channel.k8s.io``: the first byte of each message is the number of its stream. Two things differ
from a kubelet: an empty message of the standard input ends this input, and a command is killed when its client
disconnects.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import os
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import msgspec
from controller_runtime.machinery import JSON

from trainerctl.localcluster.podlogs.server import EXEC, LogError
from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.pod import PodRunner

PROTOCOL: Final = "v4.channel.k8s.io"
PID: Final = "CONTAINER_PID"
"""The environment variable of commands with the PID of the container's first process. In a real container it is 1."""
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)
_SALT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LONGEST_MESSAGE: Final = 1 << 20
_CHUNK: Final = 1 << 15
_DRAIN_SECONDS: Final = 1.0
"""After a command has ended, its output is read for this time: a daemon that it has started may keep it open."""
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


@dataclass(frozen=True)
class _Wanted:
    """The command and the container that a request names."""

    namespace: str
    pod: str
    container: str
    command: list[str]
    stdin: bool
    tty: bool

    @classmethod
    def parse(cls, target: str) -> Self:
        try:
            url = urlsplit(target)
            query = parse_qs(url.query, keep_blank_values=True)
            namespace, pod, container = unquote(url.path).removeprefix(EXEC).split("/")
        except ValueError as error:
            raise LogError(HTTPStatus.NOT_FOUND, f"{target[:256]} is not served") from error
        command = query.get("command", [])
        if not command or not command[0] or any("\0" in each for each in command):
            raise LogError(HTTPStatus.BAD_REQUEST, "a command is required")

        def flag(name: str) -> bool:
            return query.get(name, [""])[-1].lower() in {"1", "true"}

        return cls(namespace, pod, container, command, flag("input"), flag("tty"))


class ProcessExec:
    """Runs commands in the containers of pods. ``runner`` returns the runner of a pod that runs."""

    def __init__(self, runner: Callable[[str, str], PodRunner | None]) -> None:
        self._runner = runner

    async def answer(
        self, target: str, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run the command of a request, and pass its streams on until it has ended.

        Raises:
            LogError: the container does not run, or the request is not one of WebSocket.
        """
        wanted = _Wanted.parse(target)
        runner = self._runner(wanted.namespace, wanted.pod)
        place = runner.target(wanted.container) if runner is not None else None
        if place is None:
            text = f'container "{wanted.container}" in pod "{wanted.pod}" does not run'
            raise LogError(HTTPStatus.NOT_FOUND, text)
        key = _key(head)
        env = {**place.plan.env, PID: str(place.id.number)}
        if wanted.tty:
            env.setdefault("TERM", "xterm")
        plan = replace(place.plan, argv=wanted.command, env=env)
        socket = WebSocket(reader, writer)
        await socket.accept(key)
        try:
            async with anyio.create_task_group() as tasks:
                command = await _Command.start(place.id, plan, wanted)
                try:
                    tasks.start_soon(_receive, socket, command, tasks.cancel_scope)
                    await socket.send(_ERROR, msgspec.json.encode(_status(await command.run(socket))))
                finally:
                    await command.close()
                tasks.cancel_scope.cancel()
        except* OSError as errors:
            status = {"status": "Failure", "message": str(errors.exceptions[0]), "code": 500}
            with suppress(OSError):
                await socket.send(_ERROR, msgspec.json.encode(status))
        with suppress(OSError):
            await socket.close()


def _key(head: bytes) -> bytes:
    """Return the key of a request to use WebSocket.

    Raises:
        LogError: the request is another one, such as that of a client for SPDY.
    """
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    protocols = [each.strip() for each in headers.get(b"sec-websocket-protocol", b"").split(b",")]
    if headers.get(b"upgrade", b"").lower() != b"websocket" or PROTOCOL.encode() not in protocols:
        raise LogError(HTTPStatus.BAD_REQUEST, f"exec is served only as {PROTOCOL}: use trainerctl exec")
    return headers.get(b"sec-websocket-key", b"")


async def _receive(socket: WebSocket, command: _Command, scope: anyio.CancelScope) -> None:
    """Pass input to the command. When the client has disconnected, cancel the command."""
    with suppress(OSError, EOFError, ValueError):
        async for message in socket.messages():
            stream, data = message[0], message[1:]
            if stream == _STDIN:
                await command.write(data)
            elif stream == _RESIZE:
                command.resize(data)
    scope.cancel()


def _status(code: int) -> dict[str, JSON]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with exit code {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class _Command:
    """A command that runs in a container, with pipes or a terminal."""

    def __init__(self, running: anyio.abc.Process, terminal: int | None) -> None:
        self._running = running
        self._terminal = terminal

    @classmethod
    async def start(cls, place: process.ProcessID, plan: process.Plan, wanted: _Wanted) -> Self:
        if not wanted.tty:
            stdin = subprocess.PIPE if wanted.stdin else subprocess.DEVNULL
            pipe = subprocess.PIPE
            return cls(await process.open_beside(place, plan, stdin=stdin, stdout=pipe, stderr=pipe), None)
        terminal, other = os.openpty()
        os.set_blocking(terminal, False)
        try:
            running = await process.open_beside(place, plan, stdin=other, stdout=other, stderr=other)
        except BaseException:
            os.close(terminal)
            raise
        finally:
            os.close(other)
        return cls(running, terminal)

    async def run(self, socket: WebSocket) -> int:
        """Send the output until the command has ended. Return the exit code."""
        async with anyio.create_task_group() as readers:
            if self._terminal is not None:
                readers.start_soon(self._copy_terminal, socket, self._terminal)
            for stream, pipe in ((_STDOUT, self._running.stdout), (_STDERR, self._running.stderr)):
                if pipe is not None:
                    readers.start_soon(_copy, socket, stream, pipe)
            code = await self._running.wait()
            readers.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS
        return 128 - code if code < 0 else code

    async def _copy_terminal(self, socket: WebSocket, terminal: int) -> None:
        while True:
            await anyio.wait_readable(terminal)
            try:
                data = os.read(terminal, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # no process has the terminal any more
                return
            await socket.send(_STDOUT, data)

    async def write(self, data: bytes) -> None:
        """Write to the standard input. Without data, close it."""
        if self._terminal is not None:
            while data:
                await anyio.wait_writable(self._terminal)
                with suppress(BlockingIOError):
                    data = data[os.write(self._terminal, data) :]
        elif self._running.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await (self._running.stdin.send(data) if data else self._running.stdin.aclose())

    def resize(self, data: bytes) -> None:
        """Set the size of the terminal. A size that cannot be right is ignored."""
        try:
            size = msgspec.json.decode(data, type=dict[str, int])
            cells = struct.pack("HHHH", size.get("Height", 0), size.get("Width", 0), 0, 0)
        except (msgspec.MsgspecError, RecursionError, struct.error):
            return
        if self._terminal is not None:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, cells)

    async def close(self) -> None:
        """Kill the command if it has not ended."""
        with anyio.CancelScope(shield=True):
            if self._running.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._running.pid, signal.SIGKILL)
            await self._running.aclose()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


async def _copy(socket: WebSocket, stream: int, pipe: anyio.abc.ByteReceiveStream) -> None:
    while True:
        try:
            data = await pipe.receive(_CHUNK)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return
        await socket.send(stream, data)


class WebSocket:
    """The server's side of a connection by RFC 6455, without extensions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def accept(self, key: bytes) -> None:
        """Answer the request of a client."""
        answer = base64.b64encode(hashlib.sha1(key + _SALT, usedforsecurity=False).digest()).decode()
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {answer}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
        )
        self._writer.write(head.encode())
        await self._writer.drain()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages that are not empty, until the client has closed the connection.

        Raises:
            OSError, EOFError: the connection is lost.
            ValueError: a message is longer than a client of exec needs.
        """
        whole = b""
        while True:
            first, second = await self._reader.readexactly(2)
            length = second & 127
            if length >= 126:
                length = int.from_bytes(await self._reader.readexactly(2 if length == 126 else 8))
            if length + len(whole) > _LONGEST_MESSAGE:
                raise ValueError(f"a message has more than {_LONGEST_MESSAGE} bytes")
            mask = await self._reader.readexactly(4) if second & 128 else b""
            data = await self._reader.readexactly(length)
            if mask and data:
                repeated = (mask * (length // 4 + 1))[:length]
                data = (int.from_bytes(data) ^ int.from_bytes(repeated)).to_bytes(length)
            kind = first & 15
            if kind == _CLOSE:
                return
            if kind == _PING:
                await self._write(_PONG, data)
            if kind in (_CONTINUATION, _TEXT, _BINARY):
                whole += data
                if first & 128:
                    if whole:
                        yield whole
                    whole = b""

    async def send(self, stream: int, data: bytes) -> None:
        """Send a message of a stream."""
        await self._write(_BINARY, bytes([stream]) + data)

    async def close(self) -> None:
        """Send the message that closes the connection."""
        await self._write(_CLOSE, (1000).to_bytes(2))

    async def _write(self, kind: int, data: bytes) -> None:
        size = len(data)
        length = (
            bytes([size])
            if size < 126
            else struct.pack("!BH" if size < 1 << 16 else "!BQ", 126 if size < 1 << 16 else 127, size)
        )
        self._writer.write(bytes([128 | kind]) + length + data)
        await self._writer.drain()
