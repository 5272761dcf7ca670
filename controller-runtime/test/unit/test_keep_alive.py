# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The server's idle timeout: an API server closes its idle connections after 90 s, and must be the first to close."""

import http.client

import anyio
import anyio.to_thread

from controller_runtime.serving import Address, HTTPRequest, HTTPResponse, Server


async def hello(_request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text("hello")


async def test_an_idle_connection_is_kept_for_longer_than_90_seconds_and_not_for_ever() -> None:
    server = Server(Address("127.0.0.1", 0), {"/": hello})
    connection = http.client.HTTPConnection("127.0.0.1", server.listen().getsockname()[1], timeout=10)

    def ask() -> bytes:
        connection.request("GET", "/")
        assert connection.sock is not None
        return connection.getresponse().read()

    def is_open() -> bool:
        sock = connection.sock
        sock.settimeout(0.2)
        try:
            return bool(sock.recv(1))
        except TimeoutError:
            return True
        finally:
            sock.settimeout(10)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        assert await anyio.to_thread.run_sync(ask) == b"hello"
        first = connection.sock
        for idle in (95.0, 100.0):
            await anyio.sleep(idle)
            assert await anyio.to_thread.run_sync(ask) == b"hello"
            assert connection.sock is first
        await anyio.sleep(130.0)
        assert not await anyio.to_thread.run_sync(is_open)
        connection.close()
        tasks.cancel_scope.cancel()
