# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import anyio
import pytest

from controller_runtime import metrics
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import LiveClient, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.leaderelection import (
    InvalidTimingError,
    LeaderElectionLostError,
    LeaderElector,
    Timing,
)
from controller_runtime.machinery.errors import ConflictError, ServerError
from controller_runtime.rest import ConnectError, FakeResponse, FakeTransport, Request
from ctrl_testkit.leases import KEY, LeaseStore


@pytest.fixture
def server() -> LeaseStore:
    return LeaseStore()


def elector(server: LeaseStore, name: str, *, skew: float = 0) -> LeaderElector:
    def now() -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=anyio.current_time() - 1000 + skew)

    return LeaderElector(server.client, KEY, name, Timing(), now=now, rng=lambda: 0.0)


async def lead(one: LeaderElector, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await one.renew()


async def test_the_first_one_makes_the_lease(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    spec = (await server.lease()).spec
    assert spec.to_dict() == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert metrics.REGISTRY.get_sample_value("leader_election_master_status", {"name": "lock"}) == 1


async def test_a_holder_renews_with_one_request_each_period(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    server.store.calls.clear()
    await lead(one, 9)
    assert [call.verb for call in server.store.calls] == ["update"] * 4
    spec = (await server.lease()).spec
    assert (spec.acquire_time, spec.renew_time) == (
        "2026-01-01T00:00:00.000000Z",
        "2026-01-01T00:00:08.000000Z",
    )


async def test_the_second_waits_for_the_lease_to_lapse_from_when_it_saw_it_whatever_the_clocks_say(
    server: LeaseStore,
) -> None:
    await elector(server, "a").acquire()
    began = anyio.current_time()
    other = elector(server, "b", skew=-3600)
    await other.acquire()
    # Not after 16 s, although a candidate reads the lease only every 2 s.
    assert anyio.current_time() - began == 15
    spec = (await server.lease()).spec
    assert (spec.holder_identity, spec.lease_transitions) == ("b", 1)


@pytest.mark.parametrize(("chance", "period"), [(0.0, 2.0), (0.5, 2.2), (1.0, 2.4)])
async def test_a_candidate_looks_after_a_period_and_up_to_a_fifth_more(
    server: LeaseStore, chance: float, period: float
) -> None:
    server.fails = True
    looks: list[float] = []

    async def look(client: Any, *args: Any, **options: Any) -> Any:
        looks.append(anyio.current_time())
        return await client.get(*args, **options)

    client = interceptor.wrap(server.client, interceptor.Funcs(get=look))
    with anyio.move_on_after(7):
        await LeaderElector(client, KEY, "a", Timing(), rng=lambda: chance).acquire()
    assert [later - earlier for earlier, later in pairwise(looks)] == pytest.approx(
        [period] * (len(looks) - 1)
    )
    assert len(looks) == 1 + int(7 / period)


@pytest.mark.parametrize("duration", [1.9, 2.5, 15.001, 15.0])
async def test_a_lease_of_fractional_seconds_does_not_lapse_while_its_holder_acts(
    server: LeaseStore, duration: float
) -> None:
    timing = Timing(lease_duration=duration, renew_deadline=0.99 * duration, retry_period=0.1)
    one, two = (LeaderElector(server.client, KEY, name, timing, rng=lambda: 0.0) for name in ("a", "b"))
    await one.acquire()
    with anyio.move_on_after(0.01):
        await two.acquire()

    async def hold() -> None:
        while one.is_leader:
            assert not two.is_leader
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await two.acquire()
        assert not one.is_leader
    spec = (await server.lease()).spec
    assert spec.lease_duration_seconds is not None
    assert duration <= spec.lease_duration_seconds < duration + 1


async def test_the_second_does_not_take_a_lease_that_is_renewed(server: LeaseStore) -> None:
    one, two = elector(server, "a"), elector(server, "b", skew=3600)
    await one.acquire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.renew)
        with anyio.move_on_after(300) as waited:
            await two.acquire()
        tasks.cancel_scope.cancel()
    assert waited.cancelled_caught
    assert (await server.lease()).spec.holder_identity == "a"


async def test_a_released_lease_is_taken_at_the_next_look(server: LeaseStore) -> None:
    one, two = elector(server, "a"), elector(server, "b")
    await one.acquire()
    await one.release()
    assert (await server.lease()).spec.holder_identity == ""
    began = anyio.current_time()
    await two.acquire()
    assert anyio.current_time() == began
    assert (await server.lease()).spec.lease_transitions == 1


async def test_a_lease_is_released_although_its_last_renewal_was_cancelled_on_the_wire(
    server: LeaseStore,
) -> None:
    one = elector(server, "a")
    await one.acquire()
    server.loses_answers = True
    await lead(one, 2.5)
    server.loses_answers = False
    await one.release()
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_candidate_stopped_while_its_first_write_is_on_the_wire_leaves_no_held_lease(
    server: LeaseStore,
) -> None:
    one = elector(server, "a")
    server.loses_answers = True
    with anyio.move_on_after(1):
        await one.acquire()
    server.loses_answers = False
    assert (await server.lease()).spec.holder_identity == "a"
    await one.release()
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_candidate_whose_first_write_was_stored_and_answered_with_500_leaves_no_held_lease(
    server: LeaseStore,
) -> None:
    async def fail(client: FakeClient, lease: Lease, **_: Any) -> Lease:
        await client.create(lease)
        raise ServerError("etcdserver: request timed out", code=500)

    one = LeaderElector(
        interceptor.wrap(server.store, interceptor.Funcs(create=fail)), KEY, "a", Timing(), rng=lambda: 0.0
    )
    with anyio.move_on_after(1):
        await one.acquire()
    assert (await server.lease()).spec.holder_identity == "a"
    await one.release()
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_write_that_the_stop_overtakes_does_not_acquire_the_lease_later(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    await one.release()
    late: list[Lease] = []

    async def keep(client: FakeClient, lease: Lease, **_: Any) -> Lease:
        late.append(lease.deep_copy())
        await anyio.sleep_forever()
        return lease

    slow = interceptor.wrap(server.store, interceptor.Funcs(update=keep))
    two = LeaderElector(slow, KEY, "b", Timing(), rng=lambda: 0.0)
    with anyio.move_on_after(1):
        await two.acquire()
    two._client = server.client
    await two.release()
    with pytest.raises(ConflictError):
        await server.store.update(late[0])
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_holder_whose_writes_were_answered_releases_with_one_request(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    await lead(one, 5)
    server.store.calls.clear()
    await one.release()
    assert [call.verb for call in server.store.calls] == ["update"]


async def test_a_holder_whose_last_renewal_was_not_sent_releases_with_one_request(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    server.error = ConnectError("no connection within 5 s")
    await lead(one, 3)
    server.error = None
    server.store.calls.clear()
    await one.release()
    assert [call.verb for call in server.store.calls] == ["update"]
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_candidate_whose_writes_were_not_sent_asks_nothing_of_the_server_when_it_stops(
    server: LeaseStore,
) -> None:
    server.error, server.error_of = ConnectError("connection refused"), ("create", "update")
    two = elector(server, "b")
    with anyio.move_on_after(3):
        await two.acquire()
    server.hangs = True
    began = anyio.current_time()
    await two.release()
    assert anyio.current_time() == began


async def test_a_write_that_was_not_sent_does_not_make_an_earlier_one_known(server: LeaseStore) -> None:
    one = elector(server, "a")
    server.loses_answers = True
    with anyio.move_on_after(1):
        await one.acquire()
    server.loses_answers = False
    server.error, server.error_of = ConnectError("connection refused"), ("create", "update")
    with anyio.move_on_after(3):
        await one.acquire()
    server.error = None
    await one.release()
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_candidate_that_stops_while_it_takes_a_lapsed_lease_leaves_no_held_lease(
    server: LeaseStore,
) -> None:
    await elector(server, "a").acquire()  # and ends without a release

    async def wait(*_: Any, **__: Any) -> Lease:
        await anyio.sleep_forever()
        raise AssertionError

    two = LeaderElector(
        interceptor.wrap(server.store, interceptor.Funcs(update=wait)), KEY, "b", Timing(), rng=lambda: 0.0
    )
    with anyio.move_on_after(16):
        await two.acquire()
    two._client = server.client
    await two.release()
    assert (await server.lease()).spec.holder_identity == ""


async def test_a_candidate_that_never_wrote_asks_nothing_of_the_server_when_it_stops(
    server: LeaseStore,
) -> None:
    await elector(server, "a").acquire()
    two = elector(server, "b")
    with anyio.move_on_after(1):
        await two.acquire()
    server.hangs = True
    began = anyio.current_time()
    await two.release()
    assert anyio.current_time() == began
    assert (await server.lease()).spec.holder_identity == "a"


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_a_holder_that_cannot_renew_gives_up_before_the_lease_lapses(
    server: LeaseStore, how: str
) -> None:
    one = elector(server, "a")
    await one.acquire()
    began = anyio.current_time()
    setattr(server, how, True)
    with pytest.raises(LeaderElectionLostError, match="was not renewed in time"):
        await one.renew()
    assert anyio.current_time() - began == pytest.approx(9.8)  # a moment before the renew deadline
    assert not one.is_leader


async def test_a_holder_survives_an_outage_shorter_than_its_tenure(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    server.hangs = True

    async def heal() -> None:
        await anyio.sleep(8)
        server.hangs = False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heal)
        await lead(one, 60)
    assert one.is_leader


async def test_a_holder_that_finds_somebody_elses_name_gives_up_at_once(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    lease = await server.lease()
    lease.spec.holder_identity = "b"
    await server.store.update(lease)
    with pytest.raises(LeaderElectionLostError, match="held by b"):
        await one.renew()


async def test_a_deleted_lease_is_made_again_by_its_holder(server: LeaseStore) -> None:
    one = elector(server, "a")
    await one.acquire()
    await server.store.delete(await server.lease())
    await lead(one, 3)
    assert (await server.lease()).spec.holder_identity == "a"


async def test_acquiring_outlives_a_server_that_is_away(server: LeaseStore) -> None:
    server.hangs = True
    one = elector(server, "a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.acquire)
        await anyio.sleep(60)
        server.hangs = False
    assert one.is_leader


GARBAGE = {
    "a page": FakeResponse(200, b"<html>", headers={"Content-Type": "text/html"}),
    "a page without a type": FakeResponse(200, b"<html>"),
    "nothing": FakeResponse(204),
    "a redirect": FakeResponse(302, headers={"Location": "https://login.example.com/"}),
    "an empty object": FakeResponse(200, {}),
    "another's lease": FakeResponse(200, {"metadata": {"name": "other"}, "spec": {"holderIdentity": "a"}}),
    "a lease of other types": FakeResponse(
        200, {"metadata": {"name": "lock"}, "spec": {"leaseDurationSeconds": "x"}}
    ),
    "a lease of nobody": FakeResponse(200, {"metadata": {"name": "lock"}}),
    "a lease without an end": FakeResponse(
        200,
        b'{"metadata":{"name":"lock"},"spec":{"holderIdentity":"b","leaseDurationSeconds":1'
        + b"0" * 400
        + b"}}",
    ),
    "a strange refusal": FakeResponse(
        503, {"kind": "Status", "details": {"causes": 7}}, headers={"Retry-After": "9" * 400}
    ),
    "deep": FakeResponse(200, b"[" * 100_000),
}
garbage = pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)


class Proxy:
    """An API server with one lease; while ``on`` is set, it gives the same ``answer`` to every request."""

    def __init__(self, answer: FakeResponse) -> None:
        self.on = False
        self._answer = answer
        self._stored: dict[str, Any] = {}
        self.client = LiveClient(FakeTransport(self._send))

    def _send(self, request: Request) -> FakeResponse:
        if self.on:
            return self._answer
        if request.body is None:
            return FakeResponse(200, self._stored) if self._stored else FakeResponse(404)
        self._stored = json.loads(request.body)
        return FakeResponse(200, self._stored)


@garbage
async def test_a_candidate_survives_any_answer(answer: FakeResponse) -> None:
    proxy = Proxy(answer)
    proxy.on = True
    one = LeaderElector(proxy.client, KEY, "a")
    with anyio.move_on_after(60) as waited:
        await one.acquire()
    assert waited.cancelled_caught
    assert not one.is_leader
    proxy.on = False
    if one.leader != "b":  # the answer "a lease without an end" says that "b" holds it
        await one.acquire()
        assert one.is_leader


@garbage
async def test_a_holder_survives_any_answer_within_its_tenure_and_says_it_lost_the_lease_after(
    request: pytest.FixtureRequest, answer: FakeResponse
) -> None:
    proxy = Proxy(answer)
    one = LeaderElector(proxy.client, KEY, "a")
    await one.acquire()

    async def interrupt() -> None:
        await anyio.sleep(3)
        proxy.on = True
        await anyio.sleep(5)
        proxy.on = False

    names_another = request.node.callspec.id in {"a lease without an end", "a lease of nobody"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interrupt)
        if names_another:
            with pytest.raises(LeaderElectionLostError, match="held by"):
                await one.renew()
            tasks.cancel_scope.cancel()
            return
        await lead(one, 30)
    assert one.is_leader
    proxy.on = True
    with pytest.raises(LeaderElectionLostError, match="not renewed in time"):
        await one.renew()


@pytest.mark.parametrize(
    ("timing", "message"),
    [
        (Timing(lease_duration=10), "lease duration must be greater than renew deadline"),
        (Timing(renew_deadline=2.4), "renew deadline must be greater than retry period"),
        (Timing(retry_period=0), "must be positive"),
    ],
)
async def test_durations_that_give_no_guarantee_are_refused(
    server: LeaseStore, timing: Timing, message: str
) -> None:
    with pytest.raises(InvalidTimingError, match=message):
        LeaderElector(server.client, KEY, "a", timing)
