# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""etcd compacts its history while no client watches, so that watches cannot resume."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.cache import Options
from controller_runtime.client import Client, LiveClient, merge_from
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import RESTMapper, Transport

pytestmark = pytest.mark.fault
PERIOD = 5.0
# The API server must watch these kinds in etcd itself: its watch cache would still have the events that etcd dropped.
KINDS: tuple[type[Object], ...] = (ConfigMap, Secret)
UNCHANGED = 40
GONE = 10
"""The number of objects of each kind that are deleted in each round, while no client watches."""
FLAGS = ("--watch-cache-sizes=configmaps#0,secrets#0",)


class Notes:
    """Records the newest version that it read of each object of a kind, and how often each was reconciled."""

    def __init__(self, client: Client, kind: type[Object]) -> None:
        self.versions: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self._client = client
        self._kind = kind

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        self.calls[request.name] += 1
        try:
            obj = await self._client.get(self._kind, request)
        except NotFoundError:
            self.versions.pop(request.name, None)
        else:
            self.versions[request.name] = obj.metadata.resource_version or ""
        return ctrl.Result()


class World:
    """Creates, changes and deletes objects of a kind, and keeps their newest state by name."""

    def __init__(self, client: LiveClient, kind: type[Object]) -> None:
        self.objects: dict[str, Object] = {}
        self._client = client
        self._kind = kind

    @property
    def versions(self) -> dict[str, str]:
        return {name: obj.metadata.resource_version or "" for name, obj in self.objects.items()}

    async def make(self, name: str) -> None:
        made = self._kind.from_dict({"metadata": {"namespace": "default", "name": name}})
        self.objects[name] = await self._client.create(made)

    async def change(self, name: str, value: str) -> None:
        obj = self.objects[name]
        before = obj.deep_copy()
        obj.metadata.annotations = {"value": value}
        self.objects[name] = await self._client.patch(obj, merge_from(before))

    async def remove(self, name: str) -> None:
        await self._client.delete(self.objects.pop(name))


async def compact(environment: Environment, revision: int) -> None:
    """Make etcd drop its history before ``revision``."""
    body = {"revision": str(revision), "physical": True}
    etcd = environment.control_plane
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=etcd.etcd_tls)) as session,
        session.post(f"{etcd.etcd_url}/v3/kv/compaction", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()


def away() -> web.Response:
    return web.json_response({"kind": "Status", "code": 503, "reason": "ServiceUnavailable"}, status=503)


class Follower:
    """A manager that watches both kinds through its own proxy, and lists them as streams or page by page."""

    def __init__(self, proxy: Any, *, stream_lists: bool) -> None:
        self.proxy = proxy
        self.answered: list[Any] = []
        cache = Options(default_namespaces=("default",), stream_lists=stream_lists)
        self.mgr = ctrl.Manager(proxy.config, ctrl.Options(metrics_bind_address="0", cache=cache))
        self.notes = {kind: Notes(self.mgr.client, kind) for kind in KINDS}
        for kind, notes in self.notes.items():
            name = f"compaction-{kind.gvk.kind}-{stream_lists}"
            ctrl.new_controller_managed_by(self.mgr).named(name).for_(kind).complete(notes)

    def knows(self, worlds: Mapping[type[Object], World]) -> bool:
        return all(self.notes[kind].versions == worlds[kind].versions for kind in KINDS)

    def lists_per_410(self) -> float:
        """Return the number of lists per 410 response, for the informer with the most."""
        expired = Counter(each.path for each in self.proxy.expired)
        lists = Counter(
            each.path
            for each in self.answered
            if "watch" not in each.query or "sendInitialEvents" in each.query
        )
        assert len(expired) == len(KINDS)
        return max(lists[path] / count for path, count in expired.items())

    def called_again(self) -> int:
        """Return how often unchanged objects were reconciled after their first reconcile."""
        calls = [notes.calls[name] for notes in self.notes.values() for name in notes.calls if "same" in name]
        assert len(calls) == len(KINDS) * UNCHANGED
        return sum(calls) - len(calls)


async def test_watches_that_cannot_go_on_cost_one_list_each_and_nothing_is_missed(
    new_proxy: Any, figure: Any, outage_seconds: float
) -> None:
    rounds = max(2, round(outage_seconds / PERIOD))
    waits: list[float] = []
    async with (
        Environment(api_server_flags=FLAGS, etcd_gateway=True) as environment,
        Transport(environment.config) as transport,
    ):
        client = LiveClient(transport, RESTMapper(transport))
        worlds = {kind: World(client, kind) for kind in KINDS}
        followers = [
            Follower(await new_proxy(environment.config), stream_lists=streams) for streams in (True, False)
        ]
        for world in worlds.values():
            for name in (
                "changed",
                *(f"same-{number}" for number in range(UNCHANGED)),
                *(f"gone-{number}" for number in range(GONE * rounds)),
            ):
                await world.make(name)

        def all_known() -> bool:
            return all(each.knows(worlds) for each in followers)

        async with anyio.create_task_group() as tasks:
            for each in followers:
                tasks.start_soon(each.mgr.start)
            await eventually(all_known, timeout=30, reason="everything was reconciled at first")
            for each in followers:
                each.proxy.answered = each.answered.append
            for turn in range(rounds):
                began = anyio.current_time()
                for each in followers:
                    each.proxy.refuse = away
                    each.proxy.cut()
                for world in worlds.values():
                    for number in range(GONE):
                        await world.remove(f"gone-{GONE * turn + number}")
                    await world.make(f"new-{turn}")
                    await world.change("changed", str(turn))
                await compact(
                    environment,
                    max(int(each) for world in worlds.values() for each in world.versions.values()),
                )
                for each in followers:
                    each.proxy.refuse = None
                await eventually(all_known, timeout=60, reason=f"round {turn}: every change was noticed")
                waits.append(anyio.current_time() - began)
                await anyio.sleep(max(0.0, began + PERIOD - anyio.current_time()))
            for each in followers:
                each.mgr.stop()
    streaming, paging = followers
    assert all(len(each.proxy.expired) >= rounds * len(KINDS) for each in followers)
    figure("410, streaming: lists per informer and 410", streaming.lists_per_410(), at_most=1, unit="lists")
    figure("410, paging: lists per informer and 410", paging.lists_per_410(), at_most=1, unit="lists")
    figure("410: missed changes and deletions are known after", max(waits), at_most=10)
    again = sum(each.called_again() for each in followers)
    figure("410: unchanged objects reconciled again", again, at_most=0, unit="times")
