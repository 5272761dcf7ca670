# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import ByObject, Cache, EventHandlerFuncs, Options
from controller_runtime.client import CachedClient, LiveClient
from controller_runtime.envtest import eventually, open_crd
from controller_runtime.machinery import GVK, metadata_only, unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request, Response

pytestmark = pytest.mark.integration

CRD = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
WIDGET = unstructured(GVK("cache.example.org", "v1", "Widget"))
WIDGETS = open_crd(WIDGET.gvk)


class Recorder:
    """Forwards requests and records them."""

    def __init__(self, client: LiveClient) -> None:
        self._client = client
        self.queries: list[dict[str, str]] = []

    async def send(self, request: Request) -> Response:
        self.queries.append(dict(request.query))
        return await self._client.transport.send(request)


Start = Callable[..., Awaitable[Cache]]


@pytest.fixture
def recorder(live_client: LiveClient) -> Recorder:
    return Recorder(live_client)


@pytest.fixture
async def start(recorder: Recorder) -> AsyncIterator[Start]:
    running: list[asyncio.Task[None]] = []

    async def start_one(**options: Any) -> Cache:
        made = Cache(recorder, options=Options(**options))
        running.append(asyncio.create_task(made.start()))
        await anyio.lowlevel.checkpoint()
        return made

    yield start_one
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def config_map(namespace: str, name: str, **fields: Any) -> ConfigMap:
    labels = fields.pop("labels", None)
    return ConfigMap.from_dict(
        {"metadata": {"namespace": namespace, "name": name, "labels": labels}, **fields}
    )


@pytest.mark.parametrize("stream_lists", [True, False], ids=["streaming", "paging"])
async def test_a_real_server_fills_and_follows(
    live_client: LiveClient, recorder: Recorder, start: Start, namespace: str, stream_lists: bool
) -> None:
    for number in range(5):
        await live_client.create(config_map(namespace, f"n{number}", data={"n": str(number)}))
    here = ByObject(namespaces=(namespace,))
    cache = await start(stream_lists=stream_lists, page_size=2, by_object={ConfigMap: here})
    heard: list[str] = []
    (await cache.get_informer(ConfigMap)).add_event_handler(
        EventHandlerFuncs(
            on_add=lambda obj, initial: heard.append(f"add {obj.name} {initial}"),
            on_update=lambda _old, new: heard.append(f"update {new.name}"),
            on_delete=lambda obj, unknown: heard.append(f"delete {obj.name} {unknown}"),
        )
    )
    await cache.wait_for_sync(10)
    assert sorted(heard) == [f"add n{number} True" for number in range(5)]
    # Listed once, in the requested way: a real server supports streaming lists.
    assert ("sendInitialEvents" in recorder.queries[0]) is stream_lists
    # Otherwise page by page: the newest state is requested, and split into pages.
    assert sum("watch" not in query for query in recorder.queries) == (0 if stream_lists else 3)
    heard.clear()
    changed = await cache.get(ConfigMap, (namespace, "n1"))
    assert changed.metadata.managed_fields is None
    changed.data = {"n": "one"}
    await live_client.update(changed)
    await live_client.delete(changed)
    await live_client.create(config_map(namespace, "n9"))
    await eventually(lambda: len(heard) == 3, reason="three events arrive")
    assert heard == ["update n1", "delete n1 False", "add n9 False"]


async def test_a_read_right_after_a_write_sees_it(
    live_client: LiveClient, start: Start, namespace: str
) -> None:
    cache = await start(by_object={ConfigMap: ByObject(namespaces=(namespace,))})
    client = CachedClient(live_client, cache)
    assert await client.list(ConfigMap) == []
    for number in range(30):
        name = f"n{number}"
        await client.create(config_map(namespace, name, data={"v": "0"}))
        obj = await client.get(ConfigMap, (namespace, name))
        obj.data = {"v": "1"}
        await client.update(obj)
        assert (await client.get(ConfigMap, (namespace, name))).data == {"v": "1"}
        if number % 2:
            await client.delete(obj)
            with pytest.raises(NotFoundError):
                await client.get(ConfigMap, (namespace, name))
    names = {obj.name for obj in await client.list(ConfigMap)}
    assert names == {f"n{number}" for number in range(0, 30, 2)}


async def test_metadata_alone_comes_over_the_wire(
    live_client: LiveClient, start: Start, namespace: str
) -> None:
    await live_client.create(config_map(namespace, "a", data={"big": "x" * 10_000}, labels={"a": "b"}))
    outline = metadata_only(ConfigMap)
    for stream_lists in (True, False):
        cache = await start(stream_lists=stream_lists, by_object={outline: ByObject(namespaces=(namespace,))})
        got = await cache.get(outline, (namespace, "a"))
        assert (got.kind, got.labels) == ("ConfigMap", {"a": "b"})
        assert "data" not in got.to_dict()


async def test_a_kind_without_its_crd_heals_when_the_crd_comes(
    live_client: LiveClient, start: Start, namespace: str
) -> None:
    cache = await start()
    informer = await cache.get_informer(WIDGET)
    await cache.wait_for_sync(10)
    assert informer.problem == 'no matches for kind "Widget" in version "cache.example.org/v1"'
    assert await cache.list(ConfigMap, namespace=namespace) is not None
    crd = await live_client.create(CRD.from_dict(WIDGETS))
    try:
        await informer.wait_for_sync(40)
        assert cache.degraded() == {}
        widget = {"metadata": {"namespace": namespace, "name": "a"}, "size": 3}
        await live_client.create(WIDGET.from_dict(widget))
        got = await eventually(lambda: cache.get(WIDGET, (namespace, "a")), reason="the widget is cached")
        assert got["size"] == 3
    finally:
        await live_client.delete(crd)
