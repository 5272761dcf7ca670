# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A controller under load while the API server is down, or answers 429."""

import itertools
import statistics
from collections import Counter
from typing import Any

import anyio
import pytest
from aiohttp import web

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Client, LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery.errors import AlreadyExistsError, NotFoundError
from controller_runtime.rest import Config, TransportError

pytestmark = pytest.mark.fault
COPY = "copy-of-"


class Copier:
    """Makes one copy of each ConfigMap."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        if request.namespace != self._namespace or request.name.startswith(COPY):
            return ctrl.Result()
        try:
            await self._client.get(ConfigMap, (request.namespace, COPY + request.name))
        except NotFoundError:
            copy = {"metadata": {"namespace": request.namespace, "name": COPY + request.name}}
            await self._client.create(ConfigMap.from_dict(copy))
        return ctrl.Result()


def copier(config: Config, namespace: str, workers: int) -> ctrl.Manager:
    mgr = ctrl.Manager(config, ctrl.Options(metrics_bind_address="0"))
    (
        ctrl.new_controller_managed_by(mgr)
        .for_(ConfigMap)
        .with_options(ctrl.controller.Options(max_concurrent_reconciles=workers, skip_name_validation=True))
        .complete(Copier(mgr.client, namespace))
    )
    return mgr


async def make_source(client: LiveClient, namespace: str, number: int) -> None:
    """Create an object, and try again until the API server has it."""
    source = ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": f"source-{number}"}})
    while True:
        try:
            await client.create(source)
        except TransportError:
            await anyio.sleep(0.2)
        except AlreadyExistsError:
            return  # an earlier try created it, though its answer was lost
        else:
            return


async def missing(client: LiveClient, namespace: str) -> set[str]:
    names = {each.name for each in await client.list(ConfigMap, namespace=namespace)}
    sources = {name for name in names if name.startswith("source-")}
    return {name for name in sources if COPY + name not in names}


async def test_nothing_is_lost_or_doubled_while_the_api_server_is_away(
    control_plane: Environment,
    client: LiveClient,
    namespace: str,
    proxy: Any,
    writes: Any,
    figure: Any,
    outage_seconds: float,
) -> None:
    mgr = copier(proxy.config, namespace, workers=4)
    await mgr.cache.get_informer(Secret)
    numbers = itertools.count()
    made: list[int] = []

    async def load() -> None:
        while True:
            number = next(numbers)
            await make_source(client, namespace, number)
            made.append(number)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        async with anyio.create_task_group() as loading:
            for _ in range(4):
                loading.start_soon(load)
            await anyio.sleep(1)
            # Only the controller's requests go through the proxy: it lags behind the sources from now on.
            proxy.cut()
            away = anyio.current_time()
            control_plane.control_plane.kill_api_server()
            before = len(made)
            await anyio.sleep(outage_seconds)
            await control_plane.control_plane.start_api_server()
            back = anyio.current_time()
            await anyio.sleep(1)
            loading.cancel_scope.cancel()
        for number in range(next(numbers)):
            await make_source(client, namespace, number)

        async def caught_up() -> bool:
            return not await missing(client, namespace)

        await eventually(caught_up, timeout=60, reason="every source has a copy")
        figure(f"apiserver away for {back - away:.0f} s: caught up", anyio.current_time() - back, at_most=15)
        # These are the requests of the informers: nothing else sends a GET through the proxy.
        connects = Counter(each.path for each in proxy.seen if each.at >= away and each.method == "GET")
        await eventually(lambda: mgr.cache.degraded() == {}, reason="every kind is followed again")
        mgr.stop()
    assert len(made) > before > 20
    assert len(connects) == 2
    figure("connects per informer", max(connects.values()), at_most=8, unit="connects")
    created = Counter(
        each["objectRef"]["name"]
        for each in writes(namespace)
        if each["verb"] == "create"
        and each["responseStatus"]["code"] == 201
        and each["objectRef"].get("name", "").startswith(COPY)
    )
    assert max(created.values()) == 1


def too_many() -> web.Response:
    status = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests"}
    return web.json_response(status, status=429, headers={"Retry-After": "3"})


async def test_a_busy_server_is_asked_when_it_said_and_the_loop_stays_free(
    client: LiveClient, namespace: str, proxy: Any, figure: Any, outage_seconds: float
) -> None:
    mgr = copier(proxy.config, namespace, workers=1)
    await mgr.cache.get_informer(Secret)
    lags: list[float] = []

    async def measure() -> None:
        while True:
            asked = anyio.current_time()
            await anyio.sleep(0.005)
            lags.append(anyio.current_time() - asked - 0.005)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        await anyio.sleep(1.5)  # a watch that ends after less than a second is retried by other rules
        proxy.refuse = too_many
        busy = anyio.current_time()
        for number in range(30):
            tasks.start_soon(make_source, client, namespace, number)
        # The open watches still deliver events, so the worker starts and gets its first 429.
        await eventually(
            lambda: any(each.method == "POST" for each in proxy.seen), reason="the worker sends a write"
        )
        proxy.cut(watches=True)
        tasks.start_soon(measure)
        await anyio.sleep(outage_seconds)
        proxy.refuse = None
        free = anyio.current_time()

        async def resumed() -> bool:
            return not await missing(client, namespace)

        await eventually(resumed, timeout=30, reason="every source has a copy")
        figure(f"429 for {free - busy:.0f} s: resumed", anyio.current_time() - free, at_most=4)
        mgr.stop()
        tasks.cancel_scope.cancel()
    callers: dict[str, list[float]] = {}
    for each in proxy.seen:
        if busy < each.at < free:
            callers.setdefault(each.path if "watch" in each.query else "worker", []).append(each.at)
    assert len(callers) == 3
    gaps = [later - sooner for times in callers.values() for sooner, later in itertools.pairwise(times)]
    figure("requests per 3 s and caller", 3 / min(gaps), at_most=1.01, unit="requests")
    figure("event-loop lag p99", 1000 * statistics.quantiles(lags, n=100)[98], at_most=50, unit="ms")
