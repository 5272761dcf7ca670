# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watches, strategic merge patches and clients with settings, on a real API server."""

import aiohttp
import anyio
import pytest

from controller_runtime import log
from controller_runtime.apis.core.v1 import ConfigMap, Container, Event, Pod, PodSpec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.policy.v1 import Eviction
from controller_runtime.client import (
    LiveClient,
    Watch,
)
from controller_runtime.envtest import Environment
from controller_runtime.machinery import GVK, errors, unstructured
from controller_runtime.rest import Config, Request, Response, RESTMapper, Transport

pytestmark = pytest.mark.integration


def config_map(namespace: str, name: str, value: str = "") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data={"k": value})


async def take(watch: Watch[ConfigMap], count: int) -> list[str]:
    with anyio.fail_after(30):
        events = [await anext(watch) for _ in range(count)]
    return [f"{event.type} {event.object.name} {(event.object.data or {}).get('k')}" for event in events]


class Breaking:
    """A transport that ends each watch after one line."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.watches: list[str] = []

    async def send(self, request: Request) -> Response:
        response = await self._transport.send(request)
        query = dict(request.query)
        if "watch" in query:
            self.watches.append(query["resourceVersion"])
            response = OneLine(response)
        return response


class OneLine(Response):
    def __init__(self, response: Response) -> None:
        self._response = response
        self.status = response.status
        self.headers = response.headers

    async def read(self) -> bytes:
        return await self._response.read()

    async def lines(self):  # type: ignore[no-untyped-def]  # as in the base class
        async for line in self._response.lines():
            yield line
            return

    async def close(self) -> None:
        await self._response.close()


async def test_a_broken_watch_continues_and_repeats_nothing(
    live_client: LiveClient, rest_config: Config, namespace: str
) -> None:
    async with Transport(rest_config) as transport:
        breaking = Breaking(transport)
        client = LiveClient(breaking, RESTMapper(breaking))
        listed = await client.list(ConfigMap, namespace=namespace)
        watch = client.watch(ConfigMap, namespace=namespace, resource_version=listed.resource_version)
        wanted = [f"ADDED c{number} " for number in range(3)]
        seen: list[str] = []
        async with watch:
            for number in range(3):
                await live_client.create(config_map(namespace, f"c{number}"))
            while not set(wanted) <= set(seen):
                seen += await take(watch, 1)
        assert [line for line in seen if line in wanted] == wanted
        assert len(breaking.watches) >= 3


async def test_a_watch_from_a_compacted_version_is_expired() -> None:
    async with Environment(etcd_gateway=True) as environment, Transport(environment.config) as transport:
        client, plane = LiveClient(transport, RESTMapper(transport)), environment.control_plane
        newest = (await client.create(config_map("default", "newest"))).metadata.resource_version
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=plane.etcd_tls)) as session,
            session.post(f"{plane.etcd_url}/v3/kv/compaction", json={"revision": newest}) as answer,
        ):
            assert answer.status == 200
        # Events are read from etcd: the API server keeps no earlier ones in memory.
        async with client.watch(Event, namespace="default", resource_version="1") as watch:
            with pytest.raises(errors.ExpiredError), anyio.fail_after(30):
                await anext(watch)


async def test_an_eviction_that_a_budget_refuses_is_retried_and_named(
    live_client: LiveClient, namespace: str
) -> None:
    budget = unstructured(GVK("policy", "v1", "PodDisruptionBudget")).from_dict(
        {
            "metadata": {"name": "b", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        }
    )
    metadata = ObjectMeta(name="p", namespace=namespace, labels={"app": "a"})
    pod = await live_client.create(
        Pod(metadata=metadata, spec=PodSpec(containers=[Container(name="c", image="i")]))
    )
    pod.status.phase = "Running"
    pod = await live_client.status.update(pod)
    budget = await live_client.create(budget)
    with (
        log.captured() as lines,
        anyio.move_on_after(3) as waiting,
    ):  # nobody computes the status of the budget
        await live_client.subresource("eviction").create(pod, Eviction())
    assert waiting.cancelled_caught
    (line,) = [each for each in lines if "asks to retry it later" in each["event"]]
    assert line["path"] == f"/api/v1/namespaces/{namespace}/pods/p/eviction"
    assert "The disruption budget b is still being processed by the server." in line["reason"]

    await live_client.delete(budget)
    await live_client.subresource("eviction").create(pod, Eviction())
    with pytest.raises(errors.NotFoundError):
        await live_client.get(Pod, pod.key)


async def test_the_log_of_a_pod_without_a_node_is_refused_with_the_reason_of_the_server(
    live_client: LiveClient, namespace: str
) -> None:
    metadata = ObjectMeta(name="p", namespace=namespace)
    pod = await live_client.create(
        Pod(metadata=metadata, spec=PodSpec(containers=[Container(name="c", image="i")]))
    )
    logs = live_client.subresource("log")
    assert await logs.get(pod) == ""
    with pytest.raises(errors.BadRequestError, match="container x is not valid for pod p"):
        await logs.get(pod, container="x", tail_lines=3)
    async with logs.stream(pod, follow=True) as lines:
        assert [line async for line in lines] == []
