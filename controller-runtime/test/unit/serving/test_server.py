# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The whole server on loopback, on asyncio's event loop and on uvloop, with and without TLS."""

import asyncio
import http.client
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from controller_runtime import webhook
from controller_runtime.serving import Address, HTTPRequest, HTTPResponse, Server
from controller_runtime.serving.sharedstate import default_max_connections

uvloop = pytest.importorskip("uvloop")
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.SelectorEventLoop, uvloop.new_event_loop]
Body = Callable[[Server, list[dict[str, Any]]], Coroutine[Any, Any, None]]


async def size(request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse(body=b"%d %s" % (len(request.body), str(request.body_rejected).encode()))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], body: Body, *, tls: bool) -> None:
    """Call ``body`` with a running server and the list of errors that the event loop has reported."""

    async def main() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        certificates = webhook.SelfSigned() if tls else None
        server = Server(Address("127.0.0.1", 0), {"/size": size}, tls=certificates, max_body=1_000_000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.start)
            await server.ready()
            await body(server, complaints)
            tasks.cancel_scope.cancel()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
def test_bodies_of_any_size_are_read_whole_or_refused(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tls: bool
) -> None:
    sizes = [0, 1, 16_384, 65_536, 65_537, 300_000, 1_000_000]

    async def body(server: Server, complaints: list[dict[str, Any]]) -> None:
        def ask() -> list[bytes]:
            if tls:
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    "127.0.0.1", server.port, timeout=60, context=trusting()
                )
            else:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            answers = []
            for count in [
                *sizes,
                3_000_000,
                5,
            ]:  # 3 MB is too much and closes the connection; 5 uses a new one
                connection.request("POST", "/size", b"x" * count)
                answers.append(connection.getresponse().read())
            connection.close()
            return answers

        assert await anyio.to_thread.run_sync(ask) == [
            *(b"%d False" % count for count in sizes),
            b"0 True",
            b"5 False",
        ]
        assert complaints == []

    run(loop_factory, body, tls=tls)


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
def test_what_is_no_tls_at_a_tls_port_is_nobodys_trouble(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def body(server: Server, complaints: list[dict[str, Any]]) -> None:
        def speak(said: bytes) -> None:
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                client.sendall(said)
                if said:
                    try:
                        while client.recv(1000):
                            pass
                    except ConnectionResetError:
                        pass

        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b""):
            if len(said) == 3:  # the server waits for the rest of this TLS hello, so do not wait for it
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.sendall(said)
            else:
                await anyio.to_thread.run_sync(speak, said)
        await asyncio.sleep(0.05)
        assert complaints == []

    with caplog.at_level(logging.INFO):
        run(loop_factory, body, tls=True)
    assert caplog.records == []


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
def test_a_stopped_server_closes_what_is_idle_and_lets_nobody_in(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tls: bool
) -> None:
    kept: list[http.client.HTTPConnection] = []
    ports: list[int] = []

    async def body(server: Server, complaints: list[dict[str, Any]]) -> None:
        del complaints

        def ask() -> bytes:
            connection = (
                http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=trusting())
                if tls
                else http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            )
            kept.append(connection)
            connection.request("GET", "/size")
            return connection.getresponse().read()

        assert await anyio.to_thread.run_sync(ask) == b"0 False"
        ports.append(server.port)

    run(loop_factory, body, tls=tls)
    (connection,) = kept
    assert connection.sock is not None
    assert connection.sock.recv(1) == b""
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=60)


@pytest.mark.parametrize(
    ("loop_factory", "tls"),
    [(LOOPS[0], False), (LOOPS[0], True), (LOOPS[1], True)],
    ids=["idle connections", "handshakes of asyncio", "handshakes of uvloop"],
)
def test_idle_connections_and_handshakes_without_end_leave_room_for_those_who_ask(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tls: bool
) -> None:
    async def main() -> None:
        certificates = webhook.SelfSigned() if tls else None
        server = Server(Address("127.0.0.1", 0), {"/size": size}, tls=certificates, max_connections=16)

        def ask() -> bytes:
            connection = (
                http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=trusting())
                if tls
                else http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            )
            connection.request("GET", "/size")
            answer = connection.getresponse().read()
            connection.close()
            return answer

        before = open_files()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.start)
            await server.ready()
            idle = [socket.socket() for _ in range(40)]
            for each in idle:
                each.setblocking(False)
                await asyncio.get_running_loop().sock_connect(each, ("127.0.0.1", server.port))
            for _ in range(3):
                assert await anyio.to_thread.run_sync(ask) == b"0 False"
            # 16 connections, and 12 files of the listener and the event loop.
            assert open_files() - before - len(idle) <= 16 + 12
            for each in idle:
                each.close()
            tasks.cancel_scope.cancel()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    ("files", "connections"),
    [(256, 32), (1024, 128), (1 << 20, 1024), (resource.RLIM_INFINITY, 1024), (64, 16)],
)
def test_the_limit_of_files_decides_how_many_connections_a_server_takes(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert default_max_connections() == connections
