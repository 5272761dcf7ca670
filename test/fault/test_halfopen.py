# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Connections that stay open while the other end has gone."""

from typing import Any

import anyio
import pytest

from pkg.apis.core.v1 import ConfigMap
from pkg.apis.machinery.gvk import NamespacedName
from pkg.ctrl.cache import Cache
from pkg.ctrl.client import LiveClient
from pkg.ctrl.envtest import eventually
from pkg.ctrl.leaderelection import LeaderElectionLostError, LeaderElector
from pkg.ctrl.rest import RESTMapper, Transport, TransportTimeoutError

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
            figure("half-open connection: a call gives up", anyio.current_time() - began, at_most=30.5)
            again = anyio.current_time()
            await asker.get(ConfigMap, (namespace, "news"))
            figure("half-open connection: the next call", anyio.current_time() - again, at_most=1)
            await eventually(
                lambda: caches[0].get(ConfigMap, (namespace, "news")), timeout=90, reason="the watch is dead"
            )
            figure("half-open connection: the watch goes on", anyio.current_time() - began, at_most=75)
            assert watches(dead) == 2
            # Past a bookmark, and past the silence after which a watch is given up.
            await anyio.sleep(max(0.0, began + 73 - anyio.current_time()))
            figure("connections of a quiet watch", watches(quiet), at_most=1, unit="connections")
            tasks.cancel_scope.cancel()


async def test_a_leader_that_reaches_nobody_stops_in_time(namespace: str, proxy: Any, figure: Any) -> None:
    async with Transport(proxy.config) as transport:
        lock = NamespacedName(namespace, "lock")
        elector = LeaderElector(LiveClient(transport, RESTMapper(transport)), lock, "one")
        await elector.acquire()
        renewed = anyio.current_time()
        proxy.freeze(new=True)
        with pytest.raises(LeaderElectionLostError):
            await elector.renew()
        # A busy machine may wake us a little late; the lease holds for 5 s more.
        figure("half-open connection: a leader stops", anyio.current_time() - renewed, at_most=10.2)
        assert not elector.is_leader
