# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the HTTP, metrics and webhook servers serve to a client on loopback."""

import asyncio
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from controller_runtime import metrics, webhook
from controller_runtime.manager import ManagerError
from controller_runtime.serving import KEEP_ALIVE, Address, HTTPRequest, HTTPResponse, Server
from ctrl_testkit.managers import new_manager

pytestmark = pytest.mark.real_time
LOOPBACK = Address("127.0.0.1", 0)
TRUSTING = ssl.create_default_context()
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


async def echo(request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text(f"{request.method} {request.path} {len(request.body)} {request.body_rejected}")


@asynccontextmanager
async def serving(server: Any) -> AsyncIterator[str]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        yield f"127.0.0.1:{server.port}"
        tasks.cancel_scope.cancel()


async def fetch(url: str, data: bytes | None = None) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, context=TRUSTING, timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    return await anyio.to_thread.run_sync(ask)


async def test_paths_are_exact_and_those_with_a_slash_serve_what_is_below() -> None:
    async with serving(Server(LOOPBACK, {"/a": echo, "/b/": echo})) as at:
        assert await fetch(f"http://{at}/a") == (200, b"GET /a 0 False")
        assert await fetch(f"http://{at}/b/c/d", b"xyz") == (200, b"POST /b/c/d 3 False")
        assert (await fetch(f"http://{at}/a/b"))[0] == 404


async def test_the_longest_route_above_a_path_serves_it() -> None:
    async def below(_request: HTTPRequest) -> HTTPResponse:
        return HTTPResponse.text("below")

    async with serving(Server(LOOPBACK, {"/a/": echo, "/a/b/": below, "/a/b/c": echo})) as at:
        assert (await fetch(f"http://{at}/a/x"))[1].startswith(b"GET /a/x")
        assert (await fetch(f"http://{at}/a/b/x"))[1] == b"below"
        assert (await fetch(f"http://{at}/a/b/c"))[1].startswith(b"GET /a/b/c")


async def test_a_request_in_work_is_finished_after_the_stop() -> None:
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(_request: HTTPRequest) -> HTTPResponse:
        began.set()
        await go_on.wait()
        return HTTPResponse.text("done")

    answers: list[tuple[int, bytes]] = []
    async with anyio.create_task_group() as tasks, serving(Server(LOOPBACK, {"/slow": slow})) as at:

        async def ask() -> None:
            answers.append(await fetch(f"http://{at}/slow"))

        tasks.start_soon(ask)
        await began.wait()
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    assert answers == [(200, b"done")]


async def test_metrics_are_served_over_tls_with_a_certificate_of_our_own() -> None:
    async with serving(metrics.MetricsServer(LOOPBACK, tls=webhook.SelfSigned())) as at:
        status, body = await fetch(f"https://{at}/metrics")
    assert status == 200
    assert b"\nworkqueue_depth" in body or b"# TYPE workqueue_depth gauge" in body


async def test_a_filter_stands_before_every_path_of_the_metrics_server() -> None:
    def nobody(_handler: Any) -> Any:
        async def refuse(_request: HTTPRequest) -> HTTPResponse:
            return HTTPResponse.text("who are you?", status=401)

        return refuse

    server = metrics.MetricsServer(LOOPBACK, filter_=nobody, extra={"/debug": echo})
    async with serving(server) as at:
        assert [(await fetch(f"http://{at}{path}"))[0] for path in ("/metrics", "/debug")] == [401, 401]


@pytest.fixture
def cert_dir(tmp_path: Path) -> Path:
    for name, content in zip(("tls.crt", "tls.key"), webhook.SelfSigned().pair(), strict=True):
        (tmp_path / name).write_bytes(content)
    return tmp_path


async def test_the_webhook_server_reads_seven_mebibytes_and_no_more(cert_dir: Path) -> None:
    server = webhook.Server("127.0.0.1", 0, cert_dir)
    server.register_http("/echo", echo)
    async with serving(server) as at:
        size = 7 * 1024 * 1024
        assert await fetch(f"https://{at}/echo", b"x" * size) == (200, f"POST /echo {size} False".encode())
        assert await fetch(f"https://{at}/echo", b"x" * (size + 1)) == (200, b"POST /echo 0 True")


async def test_a_server_without_a_host_listens_to_all_that_the_machine_speaks() -> None:
    hosts = ["127.0.0.1", "[::1]"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    server = Server(Address("", 0), {"/a": echo})
    async with serving(server):
        for host in hosts:
            assert (await fetch(f"http://{host}:{server.port}/a"))[0] == 200


async def test_a_taken_port_ends_the_manager_with_its_address() -> None:
    async with serving(Server(LOOPBACK, {})) as at:
        mgr = new_manager(metrics_bind_address=at)
        with pytest.raises(ManagerError, match=f"listen on {at}: Address already in use"):
            await mgr.start()


def test_a_connection_is_kept_for_longer_than_the_api_server_keeps_it() -> None:
    assert KEEP_ALIVE > 90
