# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A whole manager against a real API server."""

import time
from collections.abc import Callable

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import manager, recorder
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap, Event
from controller_runtime.client import Client, LiveClient, merge_from
from controller_runtime.envtest import eventually
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Config, TransportError

pytestmark = pytest.mark.integration


class Stamp:
    """Labels every ConfigMap that requests it, and records an event."""

    def __init__(self, client: Client, events: recorder.EventRecorder) -> None:
        self._client = client
        self._events = events

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        try:
            config_map = await self._client.get(ConfigMap, request)
        except NotFoundError:
            return ctrl.Result()
        if config_map.annotations.get("stamp") == "please" and "stamped" not in config_map.labels:
            before = config_map.deep_copy()
            config_map.metadata.labels = {**config_map.labels, "stamped": "yes"}
            await self._client.patch(config_map, merge_from(before))
            self._events.event(config_map, recorder.NORMAL, "Stamped", "it is stamped")
        return ctrl.Result()


def options(namespace: str, *, lease: float, deadline: float) -> ctrl.Options:
    return ctrl.Options(
        metrics_bind_address="127.0.0.1:0",
        health_probe_bind_address="127.0.0.1:0",
        leader_election=True,
        leader_election_id="stamps",
        leader_election_namespace=namespace,
        lease_duration=lease,
        renew_deadline=deadline,
        retry_period=0.2,
    )


def stamping_manager(
    config: Config, namespace: str, *, lease: float = 60, deadline: float = 30
) -> ctrl.Manager:
    mgr = ctrl.Manager(config, options(namespace, lease=lease, deadline=deadline))
    reconciler = Stamp(mgr.client, mgr.event_recorder_for("stamper"))
    ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(reconciler)
    return mgr


async def ask_for_stamp(client: LiveClient, namespace: str, name: str) -> None:
    metadata = {"namespace": namespace, "name": name, "annotations": {"stamp": "please"}}
    await client.create(ConfigMap.from_dict({"metadata": metadata}))


async def stamped(client: LiveClient, namespace: str, name: str) -> bool:
    return "stamped" in (await client.get(ConfigMap, NamespacedName(namespace, name))).labels


async def test_a_controller_works_tells_and_hands_over(
    rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    first, second = (stamping_manager(rest_config, namespace) for _ in range(2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.start)
        await first.elected.wait()
        tasks.start_soon(second.start)
        await ask_for_stamp(live_client, namespace, "one")
        await eventually(lambda: stamped(live_client, namespace, "one"), reason="one is stamped")
        assert not second.elected.is_set()
        first.stop()
        with anyio.fail_after(20):  # the first manager released the lease, which would expire much later
            await second.elected.wait()
        await ask_for_stamp(live_client, namespace, "two")
        await eventually(lambda: stamped(live_client, namespace, "two"), reason="two is stamped")
        second.stop()
    lease = await live_client.get(Lease, NamespacedName(namespace, "stamps"))
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("", 1)
    events = await live_client.list(Event, namespace=namespace)
    told = [event for event in events if event.reason == "Stamped"]
    assert sorted(event.involved_object.name or "" for event in told if event.involved_object) == [
        "one",
        "two",
    ]
    assert all(event.first_timestamp and event.count == 1 for event in told)


def stall(seconds: float, until: Callable[[], bool] = lambda: False) -> None:
    """Block the event loop and keep the interpreter busy, for ``seconds`` or until ``until()`` is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        sum(range(1000))


async def test_a_busy_event_loop_does_not_cost_the_lease(
    rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    mgr = stamping_manager(rest_config, namespace, deadline=5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        before = await live_client.get(Lease, NamespacedName(namespace, "stamps"))
        stall(5.5)  # longer than the renew deadline
        await ask_for_stamp(live_client, namespace, "one")
        await eventually(lambda: stamped(live_client, namespace, "one"), reason="one is stamped")
        after = await live_client.get(Lease, NamespacedName(namespace, "stamps"))
        assert after.spec.holder_identity == before.spec.holder_identity
        assert after.spec.lease_transitions == before.spec.lease_transitions
        mgr.stop()


async def test_an_event_loop_that_stands_still_for_longer_than_the_lease_ends_its_manager(
    rest_config: Config, live_client: LiveClient, namespace: str
) -> None:
    mgr = stamping_manager(rest_config, namespace, lease=6, deadline=5)

    async def run() -> None:
        with pytest.raises(manager.LostLeadershipError, match="the event loop has not run for"):
            await mgr.start()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await mgr.elected.wait()
        stall(60, until=lambda: not mgr.may_write())
        with pytest.raises(TransportError, match="leadership was lost"):
            await mgr.client.create(
                ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": "one"}})
            )
    lease = await live_client.get(Lease, NamespacedName(namespace, "stamps"))
    # The lease is not released: requests that the process sent before it blocked may still arrive.
    assert lease.spec.holder_identity
