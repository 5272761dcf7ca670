# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Connections that stay open although the other side no longer answers."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import Cache, Options
from controller_runtime.client import Client, LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.manager import LostLeadershipError
from controller_runtime.rest import RESTMapper, Transport, TransportTimeoutError

pytestmark = pytest.mark.fault


def watches(proxy: Any) -> int:
    return sum("watch" in each.query for each in proxy.seen)


async def test_watches_and_calls_notice_and_a_quiet_watch_is_left_alone(
    client: LiveClient, namespace: str, new_proxy: Any, figure: Any
) -> None:
    dead, quiet = await new_proxy(), await new_proxy()
    async with Transport(dead.config) as broken, Transport(quiet.config) as whole:
        caches = Cache(broken), Cache(whole)
        asker = LiveClient(broken, RESTMapper(broken))
        async with anyio.create_task_group() as tasks:
            for cache in caches:
                await tasks.start(cache.start)
                await (await cache.get_informer(ConfigMap)).wait_for_sync(10)
            async with anyio.create_task_group() as several:
                for _ in range(3):
                    several.start_soon(asker.list, ConfigMap)
            dead.freeze()
            began = anyio.current_time()
            await client.create(ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": "news"}}))
            with pytest.raises(TransportTimeoutError):
                await asker.get(ConfigMap, (namespace, "news"))
            figure("half-open connection: a call gives up", anyio.current_time() - began, at_most=40.5)
            again = anyio.current_time()
            await asker.get(ConfigMap, (namespace, "news"))
            figure("half-open connection: the next call", anyio.current_time() - again, at_most=1)
            await eventually(
                lambda: caches[0].get(ConfigMap, (namespace, "news")),
                timeout=90,
                reason="the watch delivers the object",
            )
            figure("half-open connection: the watch goes on", anyio.current_time() - began, at_most=75)
            assert watches(dead) == 2
            # Long enough for the quiet watch to get a bookmark, and for a watch without one to be given up.
            await anyio.sleep(max(0.0, began + 73 - anyio.current_time()))
            figure("connections of a quiet watch", watches(quiet), at_most=1, unit="connections")
            tasks.cancel_scope.cancel()


class Writer:
    """Writes five times a second, and does not wait long for an answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._count = 0

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        self._count += 1
        work = ConfigMap.from_dict({"metadata": {"namespace": request.namespace, "name": request.name}})
        work.metadata.annotations = {"count": str(self._count)}
        with anyio.move_on_after(1):
            await self._client.apply(work, field_owner="writer", force=True)
        return ctrl.Result(requeue_after=timedelta(seconds=0.2))


async def test_a_leader_whose_renewals_get_no_answer_stops_writing_in_time(
    client: LiveClient, namespace: str, proxy: Any, figure: Any
) -> None:
    await client.create(ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": "work"}}))
    mgr = ctrl.Manager(
        proxy.config,
        ctrl.Options(
            metrics_bind_address="0",
            leader_election=True,
            leader_election_id="lock",
            leader_election_namespace=namespace,
            cache=Options(default_namespaces=(namespace,)),
        ),
    )
    ctrl.new_controller_managed_by(mgr).named("half-open").for_(ConfigMap).complete(Writer(mgr.client))

    def written(since: float) -> list[float]:
        return [each.at - since for each in proxy.seen if each.method == "PATCH" and each.at > since]

    with pytest.RaisesGroup(LostLeadershipError, flatten_subgroups=True, allow_unwrapped=True):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mgr.start)
            began = anyio.current_time()
            await eventually(lambda: len(written(began)) > 5, timeout=20, reason="the leader works")
            renewals = [each.at for each in proxy.seen if each.method == "PUT" and "/leases/" in each.path]
            await eventually(
                lambda: len(renewals) < sum(each.method == "PUT" for each in proxy.seen),
                timeout=10,
                reason="the lease is renewed",
            )
            # Open connections hang; new ones work, except that requests for the lease get no answer.
            proxy.hold = lambda seen: "/leases/" in seen.path
            proxy.freeze()
            frozen = anyio.current_time()
    assert max(written(frozen)) > 3
    figure("half-open connection: a leader writes for", max(written(frozen)), at_most=10)
    figure("half-open connection: a leader has ended after", anyio.current_time() - frozen, at_most=12)
