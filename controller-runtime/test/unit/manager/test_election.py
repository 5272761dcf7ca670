# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Managers that lead and follow: the runnables of each, and when the lease is released."""

import socket
import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

import controller_runtime as ctrl
from controller_runtime import controller, handler, rest, source
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.manager import (
    GracePeriodExceededError,
    LostLeadershipError,
)
from ctrl_testkit.managers import (
    ELECTION,
    LeaseServer,
    Polite,
    Worker,
    answer,
    failure_of,
    new_manager,
    running,
)
from ctrl_testkit.small import make_pod


async def test_the_lease_is_held_until_everything_else_ended_and_then_released(diary: list[str]) -> None:
    server = LeaseServer()
    mgr = new_manager(server, **ELECTION)
    mgr.add(Polite("controller", diary, takes=25))
    async with running(mgr):
        await mgr.elected.wait()
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"]
        mgr.stop()
        await anyio.sleep(24)
        assert server.lease["spec"]["holderIdentity"]
    assert server.lease["spec"]["holderIdentity"] == ""
    assert diary == ["controller finished"]
    assert "became leader" in server.events[0]


async def test_each_manager_has_an_identity_that_begins_with_the_name_of_its_host() -> None:
    holders = []
    for _ in range(2):
        server = LeaseServer()
        mgr = new_manager(server, **ELECTION)
        async with running(mgr):
            await mgr.elected.wait()
            assert server.lease is not None
            holders.append(server.lease["spec"]["holderIdentity"])
    assert [holder.rpartition("_")[0] for holder in holders] == [socket.gethostname()] * 2
    assert holders[0] != holders[1]


async def test_a_lease_that_is_not_to_be_released_is_left_to_expire() -> None:
    server = LeaseServer()
    mgr = new_manager(server, leader_election_release_on_cancel=False, **ELECTION)
    async with running(mgr):
        await mgr.elected.wait()
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"]


async def test_the_lease_is_kept_while_something_still_acts_on_it_beyond_the_grace_period(
    diary: list[str],
) -> None:
    server = LeaseServer()
    mgr = new_manager(server, graceful_shutdown_timeout=25, **ELECTION)
    mgr.add(Polite("controller", diary, takes=1000))
    mgr.add(Worker("stubborn", diary, ends_after=26.5))

    async def stop() -> None:
        await mgr.elected.wait()
        mgr.stop()
        await anyio.sleep(26)
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"]
        assert server.lease["spec"]["renewTime"] != server.lease["spec"]["acquireTime"]

    assert isinstance(await failure_of(mgr, stop), GracePeriodExceededError)
    assert diary[-1] == "stubborn ended"
    assert mgr.abandoned == []
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize(("seconds", "released"), [(1, False), (14, False), (20, True)])
async def test_the_lease_is_left_to_lapse_while_a_write_may_still_take_effect(
    seconds: float, released: bool
) -> None:
    server = LeaseServer()
    mgr = new_manager(server, lease_duration=15, **ELECTION)
    async with running(mgr):
        await mgr.elected.wait()
        mgr.note_unanswered()
        await anyio.sleep(seconds)
    assert server.lease is not None
    assert (server.lease["spec"]["holderIdentity"] == "") is released


async def test_a_reconcile_in_a_thread_does_not_extend_the_grace_period_and_keeps_the_lease() -> None:
    server = LeaseServer()
    mgr = new_manager(server, graceful_shutdown_timeout=5, **ELECTION)
    begun, gate = anyio.Event(), threading.Event()

    class Calculates:
        async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
            begun.set()
            await anyio.to_thread.run_sync(gate.wait)
            return ctrl.Result()

    made = controller.Controller("calculates", Calculates())
    mgr.add(made)

    async def stop() -> None:
        await mgr.elected.wait()
        made.queue.add(ctrl.Request("ns", "a"))
        await begun.wait()
        mgr.stop()

    began = anyio.current_time()
    try:
        failure = await failure_of(mgr, stop)
        assert anyio.current_time() - began <= 8
    finally:
        gate.set()
    assert isinstance(failure, GracePeriodExceededError)
    assert mgr.abandoned == ["calculates"]
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"]


async def test_what_is_blocked_in_a_thread_before_it_is_ready_does_not_hold_the_manager() -> None:
    begun, gate = anyio.Event(), threading.Event()

    class Migrates:
        async def start(self) -> None:
            begun.set()
            await anyio.to_thread.run_sync(gate.wait)

        async def ready(self) -> None:
            await anyio.sleep_forever()

    mgr = new_manager(LeaseServer(), graceful_shutdown_timeout=5, **ELECTION)
    mgr.add(Migrates())

    async def stop() -> None:
        await begun.wait()
        mgr.stop()

    began = anyio.current_time()
    try:
        with anyio.fail_after(60):
            failure = await failure_of(mgr, stop)
        assert anyio.current_time() - began <= 8
    finally:
        gate.set()
    assert isinstance(failure, GracePeriodExceededError)


async def test_a_follower_runs_what_needs_no_leader_only(diary: list[str]) -> None:
    server = LeaseServer()
    server.lease = Lease.from_dict(
        {
            "metadata": {"namespace": "ns", "name": "lock"},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600},
        }
    ).to_dict()
    mgr = new_manager(server, **ELECTION)
    mgr.add(Worker("controller", diary))
    mgr.add(Worker("other", diary, leader=False))
    async with running(mgr):
        await anyio.sleep(600)
        assert diary == ["other starts at 0"]
    assert server.lease["spec"]["holderIdentity"] == "another"


def held_by_another(server: LeaseServer) -> None:
    server.lease = Lease.from_dict(
        {
            "metadata": {"namespace": "ns", "name": "lock", "resourceVersion": "1"},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 15},
        }
    ).to_dict()


async def test_a_follower_that_is_stopping_leaves_the_lease_to_the_others(diary: list[str]) -> None:
    server = LeaseServer()
    held_by_another(server)
    mgr = new_manager(server, **ELECTION)
    mgr.add(Worker("controller", diary))
    mgr.add(Worker("other", diary, leader=False, ends_after=25))
    async with running(mgr):
        await anyio.sleep(1)
    assert diary == ["other starts at 0", "other ended"]
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == "another"


async def test_who_wins_the_lease_at_the_moment_of_the_stop_releases_it_and_starts_nothing(
    diary: list[str],
) -> None:
    class Stops(LeaseServer):
        async def __call__(self, request: rest.Request) -> rest.FakeResponse:
            if request.method == "POST" and request.path.endswith("/leases"):
                mgr.stop()
            return await super().__call__(request)

    server = Stops()
    mgr = new_manager(server, **ELECTION)
    mgr.add(Worker("controller", diary))
    mgr.add(Worker("other", diary, leader=False, ends_after=5))
    await mgr.start()
    assert diary == ["other starts at 0", "other ended"]
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""


def elected_manager(world: Any, server: LeaseServer) -> ctrl.Manager:
    """Return a manager that reads pods and ConfigMaps from ``world``, and everything else from ``server``."""

    async def api(request: rest.Request) -> Any:
        of_world = request.path in ("/api/v1/pods", "/api/v1/configmaps")
        return await (world.transport.send if of_world else server)(request)

    return new_manager(api, **ELECTION)


class Seen:
    """A reconciler that records its requests and their times."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        self.calls.append((request.name, anyio.current_time()))
        return ctrl.Result()


async def test_a_follower_keeps_its_controllers_kinds_warm_and_leads_without_listing(world: Any) -> None:
    server, seen = LeaseServer(), Seen()
    held_by_another(server)
    lists_take = 0.0

    async def api(request: rest.Request) -> Any:
        if request.path != "/api/v1/pods":
            return await server(request)
        await anyio.sleep(lists_take)
        return await world.transport.send(request)

    mgr = new_manager(api, **ELECTION)
    ctrl.new_controller_managed_by(mgr).named("warm").for_(Pod).complete(seen)
    world.put(make_pod("before"))
    async with running(mgr):
        await anyio.sleep(1)
        assert world.watched() == ["pods"]
        world.put(make_pod("meanwhile"))
        world.put(make_pod("gone"))
        world.remove(make_pod("gone"))
        await anyio.sleep(1)
        assert seen.calls == []
        lists_take, asked = 60.0, len(world.transport.requests)
        await mgr.elected.wait()
        leads = anyio.current_time()
        await anyio.sleep(1)
        assert seen.calls == [("before", leads), ("meanwhile", leads)]
        assert len(world.transport.requests) == asked


async def test_a_follower_whose_controller_is_not_to_be_warmed_up_watches_nothing(world: Any) -> None:
    server, seen = LeaseServer(), Seen()
    held_by_another(server)

    mgr = elected_manager(world, server)
    cold = controller.Options(enable_warmup=False)
    ctrl.new_controller_managed_by(mgr).named("cold").for_(Pod).with_options(cold).complete(seen)
    world.put(make_pod("a"))
    async with running(mgr):
        await anyio.sleep(10)
        assert world.watched() == []
        await mgr.elected.wait()
        await anyio.sleep(1)
        assert [name for name, _ in seen.calls] == ["a"]


async def test_a_kind_that_is_never_listed_does_not_hold_up_the_election(world: Any) -> None:
    world.held.add(Pod)
    server = LeaseServer()

    mgr = elected_manager(world, server)
    ctrl.new_controller_managed_by(mgr).named("held").for_(Pod).complete(Seen())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await anyio.sleep(1)
        assert server.lease is not None
        assert server.lease["spec"]["holderIdentity"]
        assert not mgr.elected.is_set()
        mgr.stop()


async def test_kinds_of_controllers_are_listed_while_the_caches_fill(world: Any) -> None:
    world.held.add(ConfigMap)

    async def api(request: rest.Request) -> Any:
        return await world.transport.send(request) if request.path != "/version" else answer(request)

    mgr = new_manager(api)
    await mgr.cache.get_informer(ConfigMap)
    ctrl.new_controller_managed_by(mgr).named("pods").for_(Pod).complete(Seen())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await anyio.sleep(1)
        assert world.watched() == ["configmaps", "pods"]
        assert not mgr.elected.is_set()
        mgr.stop()


async def test_what_is_added_to_a_follower_is_warmed_up_at_once(world: Any) -> None:
    server = LeaseServer()
    held_by_another(server)

    mgr = elected_manager(world, server)
    async with running(mgr):
        await anyio.sleep(1)
        ctrl.new_controller_managed_by(mgr).named("added").for_(Pod).complete(Seen())
        await anyio.sleep(1)
        assert world.watched() == ["pods"]
        assert not mgr.elected.is_set()


async def test_a_source_that_a_followers_controller_gets_later_is_warmed_up_too(world: Any) -> None:
    server = LeaseServer()
    held_by_another(server)

    mgr = elected_manager(world, server)
    made = ctrl.new_controller_managed_by(mgr).named("late").for_(Pod).build(Seen())
    async with running(mgr):
        await anyio.sleep(1)
        assert world.watched() == ["pods"]
        made.watch(source.Kind(mgr.cache, ConfigMap, handler.EnqueueRequestForObject()))
        await anyio.sleep(1)
        assert world.watched() == ["configmaps", "pods"]
        assert not mgr.elected.is_set()


async def test_losing_the_lease_cancels_everything_without_grace(diary: list[str]) -> None:
    server = LeaseServer()
    mgr = new_manager(server, **ELECTION)
    mgr.add(Polite("controller", diary, takes=25))

    async def go_away() -> None:
        await mgr.elected.wait()
        server.away = True

    failure = await failure_of(mgr, go_away)
    assert isinstance(failure, LostLeadershipError)
    assert str(failure) == "leader election lost: lease ns/lock was not renewed in time"
    assert diary == ["controller was cancelled"]
    assert anyio.current_time() == pytest.approx(1009.8)
