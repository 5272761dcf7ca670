# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A lease is renewed while the event loop is busy; a program that lost it while its loop was blocked stops."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import rest
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.leaderelection import (
    InvalidTimingError,
    LeaderElectionLostError,
    LeaderElector,
    ThreadedElector,
    Timing,
    connection,
)
from ctrl_testkit.leases import KEY, LeaseStore

pytestmark = pytest.mark.real_time
FAST = Timing(lease_duration=2.0, renew_deadline=1.5, retry_period=0.2)
STEADY = Timing(lease_duration=5.0, renew_deadline=4.5, retry_period=0.2)
"""For tests in which the lease must be kept: it outlasts a short pause of the machine."""


def stall(seconds: float, until: Callable[[], bool] = lambda: False) -> None:
    """Block the event loop and keep the interpreter busy, for ``seconds`` or until ``until()`` is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        sum(range(1000))


def may_act(elector: ThreadedElector) -> bool:
    return elector.may_act


async def asks_no_more(server: LeaseStore) -> None:
    """Wait until the server gets no request for several retry periods."""
    with anyio.fail_after(30):
        while server.threads:
            server.threads.clear()
            await anyio.sleep(5 * FAST.retry_period)


@asynccontextmanager
async def renewed(
    server: LeaseStore, timing: Timing = STEADY
) -> AsyncIterator[tuple[ThreadedElector, asyncio.Task[None]]]:
    """Acquire the lease with an elector, and start a task that renews it; yield both."""
    async with ThreadedElector(server.connect, KEY, "a", timing) as elector:
        await elector.acquire()
        renewing = asyncio.ensure_future(elector.renew())
        await anyio.lowlevel.checkpoint()
        yield elector, renewing


async def test_the_lease_is_renewed_while_the_loop_stands_still() -> None:
    server = LeaseStore()
    async with renewed(server) as (one, renewing):
        before, written = await server.lease(), len(server.store.writes)
        stall(60, until=lambda: len(server.store.writes) > written + 3)
        assert may_act(one)
        await anyio.sleep(0.1)
        assert not renewing.done()
        lease = await server.lease()
        assert lease.spec.holder_identity == "a"
        assert (lease.spec.renew_time or "") > (before.spec.renew_time or "")
        assert server.threads == {"leader-election"}
        renewing.cancel()


async def test_a_lease_lost_while_the_loop_stands_still_stops_writes_before_any_task_hears_of_it() -> None:
    server = LeaseStore()
    async with renewed(server, FAST) as (one, renewing):
        assert may_act(one)
        server.fails = True
        stall(60, until=lambda: not may_act(one))
        assert not may_act(one)
        with pytest.raises(LeaderElectionLostError, match="not renewed in time"):
            await renewing
        assert not may_act(one)


async def test_a_loop_that_stands_still_for_longer_than_the_lease_does_not_lead() -> None:
    server = LeaseStore()
    async with renewed(server) as (one, renewing):
        stall(60, until=lambda: not may_act(one))
        with pytest.raises(LeaderElectionLostError, match="the event loop has not run for"):
            await renewing
        await asks_no_more(server)


async def test_a_lease_taken_by_another_ends_the_renewal() -> None:
    server = LeaseStore()
    async with ThreadedElector(server.connect, KEY, "a", FAST) as one:
        await one.acquire()
        lease = await server.lease()
        lease.spec.holder_identity = "b"
        await server.store.update(lease)
        with pytest.raises(LeaderElectionLostError), anyio.fail_after(30):
            await one.renew()
        assert not may_act(one)
        await one.release()
    assert (await server.lease()).spec.holder_identity == "b"


async def test_a_stopped_leader_releases_the_lease_and_its_thread_ends() -> None:
    server = LeaseStore()
    async with ThreadedElector(server.connect, KEY, "a", STEADY) as one:
        assert one.lease.name == "lock"
        await one.acquire()
        assert one.lease.spec.holder_identity == "a"
        with anyio.move_on_after(0.3):
            await one.renew()
        await one.release()
        assert (await server.lease()).spec.holder_identity == ""
    assert "leader-election" not in {thread.name for thread in threading.enumerate()}


async def test_a_leader_that_releases_nothing_renews_no_more_once_it_is_stopped() -> None:
    server = LeaseStore()
    async with ThreadedElector(server.connect, KEY, "a", STEADY) as one:
        await one.acquire()
        with anyio.move_on_after(0.3):
            await one.renew()
        await asks_no_more(server)
        assert (await server.lease()).spec.holder_identity == "a"
        assert not may_act(one)


async def test_a_candidate_that_is_stopped_takes_no_lease_later() -> None:
    server = LeaseStore()
    await LeaderElector(server.client, KEY, "b", STEADY).acquire()
    async with ThreadedElector(server.connect, KEY, "a", FAST) as one:
        with anyio.move_on_after(0.3) as waited:
            await one.acquire()
        assert waited.cancelled_caught
        # Writes are blocked only after a lost lease: followers write events and certificates.
        assert may_act(one)
        await asks_no_more(server)
        assert (await server.lease()).spec.holder_identity == "b"
    await one.release()


async def test_what_keeps_the_thread_from_starting_is_raised() -> None:
    class Broken(LeaseStore):
        @asynccontextmanager
        async def connect(self) -> AsyncIterator[Any]:
            if not self.threads:
                raise rest.ConfigError("no certificate")
            yield

    async with ThreadedElector(Broken().connect, KEY, "a", FAST) as one:
        with pytest.raises(rest.ConfigError, match="no certificate"):
            await one.acquire()


async def test_a_bug_in_the_thread_reaches_the_program() -> None:
    server = LeaseStore()
    server._pass = None  # type: ignore[method-assign, assignment]  # the client below does not use it

    async def broken(client: FakeClient, *args: Any, **options: Any) -> Any:
        raise ZeroDivisionError

    server.client = interceptor.wrap(server.store, interceptor.Funcs(get=broken))
    async with ThreadedElector(server.connect, KEY, "a", FAST) as one:
        with pytest.raises(ZeroDivisionError):
            await one.acquire()


async def test_a_thread_that_ends_loses_the_lease() -> None:
    async with ThreadedElector(LeaseStore().connect, KEY, "a", FAST) as one:
        await one.acquire()
        inner = one._inner
        assert inner is not None
        inner.call_soon_threadsafe(inner.stop)
        with pytest.raises(LeaderElectionLostError, match="the thread of lease ns/lock has ended"):
            await one.renew()
        assert not may_act(one)
        await one.release()


@pytest.mark.parametrize("closed", [False, True], ids=["stopped", "closed"])
async def test_a_release_returns_when_the_loop_of_the_thread_has_ended(closed: bool) -> None:
    async with ThreadedElector(LeaseStore().connect, KEY, "a", FAST) as one:
        await one.acquire()
        inner, thread, ended = one._inner, one._thread, asyncio.new_event_loop()
        if closed:
            ended.close()
        # The thread still runs for a moment after its loop has ended.
        one._inner, one._thread = ended, threading.Thread(target=time.sleep, args=(0.3,))
        one._thread.start()
        try:
            with anyio.fail_after(60):
                await one.release()
        finally:
            ended.close()
            one._inner, one._thread = inner, thread


def test_durations_are_checked_at_once() -> None:
    with pytest.raises(InvalidTimingError):
        ThreadedElector(LeaseStore().connect, KEY, "a", Timing(lease_duration=5))


def test_only_credentials_that_can_serve_two_loops_go_to_the_thread() -> None:
    class OneLoop(rest.Credentials):
        async def headers(self) -> dict[str, str]:
            return {}

    def to(credentials: rest.Credentials) -> object:
        return connection(rest.Config("https://c.test", credentials=credentials), lambda *_: None)

    assert to(OneLoop()) is None
    for each in (rest.Anonymous(), rest.StaticToken("t"), rest.Basic("a", "b"), rest.TokenFile("/token")):
        assert to(each) is not None


async def test_a_replica_that_waited_for_longer_than_the_lease_leads_when_its_turn_comes() -> None:
    server = LeaseStore()
    former = LeaderElector(server.client, KEY, "b", STEADY)
    await former.acquire()
    holding = asyncio.ensure_future(former.renew())
    async with ThreadedElector(server.connect, KEY, "a", STEADY) as one:
        waiting = asyncio.ensure_future(one.acquire())
        await anyio.sleep(STEADY.lease_duration + 2 * STEADY.retry_period)
        assert not waiting.done()
        holding.cancel()
        await former.release()
        with anyio.fail_after(30):
            await waiting
        renewing = asyncio.ensure_future(one.renew())
        await anyio.sleep(2 * STEADY.retry_period)
        assert not renewing.done()
        assert may_act(one)
        renewing.cancel()
