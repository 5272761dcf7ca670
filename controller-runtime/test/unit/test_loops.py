# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Programs and tests that call ``asyncio.run`` several times, or run event loops in several threads."""

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from controller_runtime import cache, rest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.fake import FakeClient

pytestmark = [
    pytest.mark.real_time,
    # A transport that its program did not close before the end of the loop.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
RUNNERS = [
    pytest.param(asyncio.run, id="asyncio"),
    pytest.param(lambda started: anyio.run(lambda: started), id="anyio"),
]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Server(BaseHTTPRequestHandler):
    """Answers each request with a ConfigMap, and keeps connections."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps(ConfigMap(metadata=ObjectMeta(namespace="ns", name="one")).to_dict()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def host() -> Iterator[str]:
    """A server in a thread, which lasts longer than an event loop."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # closed loops reset connections
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Free what is left of closed loops here, where their warnings are expected, and not in a test of another module."""
    yield
    gc.collect()


async def get(client: LiveClient) -> str:
    with anyio.fail_after(30):
        return (await client.get(ConfigMap, ("ns", "one"))).name


async def opened(transport: rest.Transport) -> LiveClient:
    return LiveClient(await transport.__aenter__())


async def inside(transport: rest.Transport) -> str:
    async with transport:
        return await get(LiveClient(transport))


async def closed(transport: rest.Transport) -> None:
    await transport.__aexit__(None, None, None)


async def used(transport: rest.Transport) -> LiveClient:
    """Open the transport and use it, so that it has an idle connection."""
    client = await opened(transport)
    await get(client)
    return client


@pytest.mark.parametrize("run", RUNNERS)
def test_a_client_works_in_one_loop_after_the_other(host: str, run: Run) -> None:
    transport = rest.Transport(rest.Config(host))
    client = run(used(transport))
    assert [run(get(client)) for _ in range(3)] == ["one"] * 3
    run(closed(transport))
    with pytest.raises(rest.TransportError, match="the transport is not open"):
        run(get(client))
    assert [run(inside(transport)) for _ in range(2)] == ["one"] * 2


def test_requests_that_waited_in_a_closed_loop_do_not_delay_those_of_the_next(host: str) -> None:
    transport = rest.Transport(rest.Config(host, qps=0.01, burst=1))

    async def many() -> None:
        client = await opened(transport)
        with anyio.move_on_after(0.2):
            await asyncio.gather(*(get(client) for _ in range(3)))

    asyncio.run(many())
    assert asyncio.run(get(LiveClient(transport))) == "one"
    asyncio.run(closed(transport))


@pytest.mark.parametrize(
    "use", [lambda transport: get(LiveClient(transport)), opened, closed], ids=["use", "open", "close"]
)
def test_a_transport_says_that_another_loop_uses_it(host: str, use: Callable[[rest.Transport], Any]) -> None:
    async def program() -> None:
        async with rest.Transport(rest.Config(host)) as transport:
            await get(LiveClient(transport))
            with pytest.raises(
                RuntimeError, match=r"^the transport is open in another event loop: open a transport in each"
            ):
                await anyio.to_thread.run_sync(lambda: asyncio.run(use(transport)))
            assert await get(LiveClient(transport)) == "one"

    asyncio.run(program())


def test_a_cache_says_that_it_runs_in_another_loop_and_answers_what_it_has() -> None:
    client = FakeClient()
    for kind in (ConfigMap, Secret):
        asyncio.run(client.create(kind(metadata=ObjectMeta(namespace="ns", name="one"))))

    async def program() -> None:
        made = cache.Cache(client.transport)
        async with anyio.create_task_group() as tasks:
            await tasks.start(made.start)
            assert len(await made.list(ConfigMap)) == 1
            elsewhere = partial(anyio.to_thread.run_sync, lambda: asyncio.run(made.list(Secret)))
            with pytest.raises(RuntimeError, match=r"^Secret: the cache runs in another event loop$"):
                await elsewhere()
            assert await anyio.to_thread.run_sync(lambda: len(asyncio.run(made.list(ConfigMap)))) == 1
            assert len(await made.list(Secret)) == 1
            tasks.cancel_scope.cancel()

    asyncio.run(program())


def test_a_cache_that_has_stopped_cannot_start_again() -> None:
    made = cache.Cache(FakeClient().transport)

    async def briefly() -> None:
        with anyio.move_on_after(0.05):
            await made.start()

    asyncio.run(briefly())
    with pytest.raises(cache.CacheNotStartedError, match="the cache has stopped: make another one"):
        asyncio.run(briefly())


def test_a_watch_of_the_fake_client_works_in_one_loop_after_the_other() -> None:
    client = FakeClient()
    watch = client.watch(ConfigMap)

    async def name_of_the_next(name: str) -> str:
        await client.create(ConfigMap(metadata=ObjectMeta(namespace="team", name=name)))
        return (await anext(watch)).object.name

    assert [asyncio.run(name_of_the_next(name)) for name in "abc"] == ["a", "b", "c"]


def test_a_program_without_asyncio_is_told_what_is_missing() -> None:
    opening: Any = rest.Transport(rest.Config("http://127.0.0.1:1")).__aenter__()
    with pytest.raises(RuntimeError, match="a transport works only in an event loop of asyncio"):
        opening.send(None)
