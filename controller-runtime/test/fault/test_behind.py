# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Two API servers share one etcd; one of them gets each of etcd's answers and events five seconds late."""

import asyncio
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.abc
import pytest
from yarl import URL

import controller_runtime as ctrl
from controller_runtime import cache, controller, handler
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Client, LiveClient, merge_from
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.rest import Config, Request, RESTMapper, Transport

pytestmark = pytest.mark.fault
BEHIND = 5.0
LABEL = "source"
NAMESPACE = unstructured(GVK("", "v1", "Namespace"))


class SlowWire:
    """A relay between an API server and etcd that delivers each message of etcd ``delay`` seconds late."""

    def __init__(self, etcd_url: str) -> None:
        self.delay = 0.0
        self.url = ""
        etcd = URL(etcd_url)
        self._etcd = etcd.host or "", etcd.port or 0

    async def run(self, *, task_status: Any) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"https://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        async with listener:
            task_status.started()
            await listener.serve(self._serve)

    async def _serve(self, server: anyio.abc.SocketStream) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with server, await anyio.connect_tcp(*self._etcd) as etcd, anyio.create_task_group() as tasks:

            async def ask() -> None:
                async for piece in server:
                    await etcd.send(piece)
                tasks.cancel_scope.cancel()

            async def hear() -> None:
                async for piece in etcd:
                    pieces.put_nowait((anyio.current_time() + self.delay, piece))
                tasks.cancel_scope.cancel()

            async def answer() -> None:
                while True:
                    due, piece = await pieces.get()
                    await anyio.sleep(max(0.0, due - anyio.current_time()))
                    await server.send(piece)

            for way in (ask, hear, answer):
                tasks.start_soon(self._until_broken, way, tasks.cancel_scope)

    async def _until_broken(self, way: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        try:
            await way()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()


class Mirror:
    """Creates one Secret for each ConfigMap and gives it the same value; it reads only from the cache."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        source = await self._client.get(ConfigMap, request)
        value = source.annotations["value"]
        copies = await self._client.list(Secret, namespace=request.namespace, labels={LABEL: request.name})
        if not copies:
            copy = Secret.from_dict(
                {"metadata": {"namespace": request.namespace, "generateName": f"{request.name}-"}}
            )
            copy.metadata.labels = {LABEL: request.name}
            copy.metadata.annotations = {"value": value}
            await self._client.create(copy)
        for copy in copies:
            if copy.annotations["value"] != value:
                before = copy.deep_copy()
                copy.metadata.annotations = {"value": value}
                await self._client.patch(copy, merge_from(before))
        return ctrl.Result()


class History:
    """Records the creations, values and reverted values of a namespace's copies, as the server on time reports them."""

    def __init__(self, namespace: str) -> None:
        self.created: Counter[str] = Counter()
        self.reverting: list[str] = []
        self.values: dict[str, int] = {}
        self._namespace = namespace

    @property
    def handler(self) -> cache.EventHandlerFuncs[Secret]:
        return cache.EventHandlerFuncs(on_add=self._add, on_update=self._update)

    def _add(self, copy: Secret, _initial: bool) -> None:
        if copy.namespace == self._namespace and LABEL in copy.labels:
            self.created[copy.labels[LABEL]] += 1
            self.values[copy.labels[LABEL]] = int(copy.annotations["value"])

    def _update(self, old: Secret, new: Secret) -> None:
        if new.namespace == self._namespace and LABEL in new.labels:
            before, after = int(old.annotations["value"]), int(new.annotations["value"])
            if after < before:
                self.reverting.append(f"{new.labels[LABEL]}: {before}, then {after}")
            self.values[new.labels[LABEL]] = after


class Balanced:
    """A manager of one namespace that alternates between two servers and restarts from time to time."""

    def __init__(self, proxy: Any, namespace: str, *, stream_lists: bool) -> None:
        self.namespace = namespace
        self.history = History(namespace)
        self.calm = self.done = False
        self._proxy = proxy
        self._options = ctrl.Options(
            metrics_bind_address="0",
            cache=cache.Options(default_namespaces=(namespace,), stream_lists=stream_lists),
        )

    async def run(self, *, restart_every: float) -> None:
        while not self.done:
            mgr = ctrl.Manager(self._proxy.config, self._options)
            options = controller.Options(max_concurrent_reconciles=4, skip_name_validation=True)
            (
                ctrl.new_controller_managed_by(mgr)
                .for_(ConfigMap)
                .watches(Secret, handler.enqueue_requests_from_map_func(source_of))
                .with_options(options)
                .complete(Mirror(mgr.client))
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mgr.start)
                began = anyio.current_time()
                while not self.done and (self.calm or anyio.current_time() - began < restart_every):
                    await anyio.sleep(2)
                    if not self.calm:
                        self._proxy.cut(watches=True)
                mgr.stop()


async def source_of(copy: Secret) -> list[ctrl.Request]:
    return [ctrl.Request(copy.namespace, copy.labels[LABEL])] if LABEL in copy.labels else []


def at_random(on_time: Config, behind: Config) -> Callable[[Any], Config]:
    """Return a route that sends half of the reads and a quarter of the writes to the server that is behind."""
    dice = random.Random(1)

    def route(seen: Any) -> Config:
        return behind if dice.random() < (0.5 if seen.method == "GET" else 0.25) else on_time

    return route


async def test_a_server_that_is_behind_makes_nobody_do_a_thing_twice_or_undo_it(
    new_proxy: Any, figure: Any, outage_seconds: float
) -> None:
    async with (
        Environment() as environment,
        Transport(environment.config) as transport,
        anyio.create_task_group() as tasks,
    ):
        client = LiveClient(transport, RESTMapper(transport))
        wire = SlowWire(environment.control_plane.etcd_url)
        await tasks.start(wire.run)
        url = await environment.control_plane.start_another_api_server("behind", etcd_url=wire.url)
        behind = dataclasses.replace(environment.config, host=url)
        truth = cache.Cache(transport)
        await tasks.start(truth.start)
        secrets = await truth.get_informer(Secret)
        managers = []
        for streams in (True, False):
            proxy = await new_proxy(environment.config)
            proxy.route = at_random(environment.config, behind)
            namespace = f"behind-{streams}".lower()
            await client.create(NAMESPACE.from_dict({"metadata": {"name": namespace}}))
            managers.append(Balanced(proxy, namespace, stream_lists=streams))
            secrets.add_event_handler(managers[-1].history.handler)
        await truth.wait_for_sync(10)
        wire.delay = BEHIND
        figure("two API servers: one is behind, at least", -await lag(client, behind), at_most=-BEHIND + 1)

        values: dict[str, int] = {}
        for each in managers:
            tasks.start_soon(partial(each.run, restart_every=4))
        until = anyio.current_time() + outage_seconds
        for number in itertools.count():
            if anyio.current_time() > until:
                break
            # Most rounds change a source that may exist already; every twentieth creates a new one.
            name = f"source-{10 + number // 20 if number % 20 == 0 else number % 10}"
            values[name] = values.get(name, 0) + 1
            for each in managers:
                await client.apply(source(each.namespace, name, values[name]), field_owner="user", force=True)
            await anyio.sleep(0.03)
        ended = anyio.current_time()
        for each in managers:
            each.calm = True
        await eventually(
            lambda: all(each.history.values == values for each in managers),
            timeout=150,
            reason="the copies have caught up",
        )
        # A request whose writes failed several times, because it read old state, is retried only after its backoff.
        figure("two API servers: caught up", anyio.current_time() - ended, at_most=120)
        for each in managers:
            each.done = True
        for way, each in zip(("streaming", "paging"), managers, strict=True):
            copies, undone = max(each.history.created.values()), len(each.history.reverting)
            figure(f"two API servers, {way}: copies of one object", copies, at_most=1, unit="copies")
            figure(f"two API servers, {way}: reverting writes", undone, at_most=0, unit="writes")
        tasks.cancel_scope.cancel()


def source(namespace: str, name: str, value: int) -> ConfigMap:
    metadata = {"namespace": namespace, "name": name, "annotations": {"value": str(value)}}
    return ConfigMap.from_dict({"metadata": metadata})


async def lag(client: LiveClient, behind: Config) -> float:
    """Return after how many seconds the server that is behind lists a new object."""
    await client.create(ConfigMap.from_dict({"metadata": {"namespace": "default", "name": "probe"}}))
    began = anyio.current_time()
    async with Transport(behind) as transport:

        async def seen() -> bool:
            query = (("resourceVersion", "0"),)
            answer = await transport.send(
                Request("GET", "/api/v1/namespaces/default/configmaps", query=query)
            )
            return b'"probe"' in await answer.read()

        await eventually(seen, timeout=30, reason="the server that is behind shows the object")
    return anyio.current_time() - began
