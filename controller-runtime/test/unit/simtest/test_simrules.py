# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the simulation report each violation."""

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

import controller_runtime as ctrl
from controller_runtime import cache, controller, handler, metrics, rest, simtest, source, workqueue
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap, Namespace
from controller_runtime.apis.core.v1 import Event as Reported
from controller_runtime.fake import FakeClient, Server
from controller_runtime.machinery import LazyObject, NamespacedName
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.rest import CompleteResponse, FakeResponse, FakeTransport
from controller_runtime.simtest import Event, Process, cacherules, queuerules
from controller_runtime.simtest.cacherules import Resumes, Told
from controller_runtime.simtest.leases import Holders, Leases
from controller_runtime.simtest.replicas import BreakableWatches
from controller_runtime.simtest.reportrules import Events
from ctrl_testkit.lives import failure_of, watch_config_maps

KEY = NamespacedName("default", "a")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def engine_at(version: str) -> Any:
    """Return an informer whose watch has reached a version, and which remembers an own write at version 5."""
    watched = await cache.Cache(rest.FakeTransport(lambda _: rest.FakeResponse(404, {}))).get_informer(
        ConfigMap
    )
    made, now = watched.shared, anyio.current_time()
    made.informers[""].synced = True
    text = b'{"metadata":{"namespace":"default","name":"a","uid":"u","resourceVersion":"5"}}'
    made.remember_write(text, None, now)
    written = made.store.get(KEY, now)
    assert written is not None
    made.informers[""].reached(version)
    made.store.remember_write(written, {}, now)
    return made


def table_of(kind: type[ctrl.Object]) -> Any:
    server = Server(FakeClient().storage)
    server.serve(kind)
    return next(table for table in server.tables.values() if table.properties.gvk == kind.gvk)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lease(holder: str) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "leader", "uid": "u"}
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


def changed(before: str | None, after: str, **fields: Any) -> Event:
    table, document = table_of(Lease), lease(after)
    old = None if before is None else lease(before)
    document["spec"] |= {"leaseTransitions": int(before is not None and before != after)} | fields
    return Event(1, "MODIFIED" if old else "ADDED", table, NamespacedName("default", "leader"), document, old)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_lease_may_be_renewed_released_and_taken_after_its_time(clock: Clock) -> None:
    leases = Leases(clock)
    for at, before, after in ((0, None, "a"), (5, "a", "a"), (20, "a", "b"), (21, "b", ""), (22, "", "a")):
        clock.now = at
        leases.see(changed(before, after))


def test_a_lease_that_is_taken_before_its_time_is_found(clock: Clock) -> None:
    leases = Leases(clock)
    leases.see(changed(None, "a"))
    clock.now = 10
    leases.see(changed("a", "a"))
    clock.now = 24
    with pytest.raises(AssertionError, match=r"too early: leader: 1\.0 s"):
        leases.see(changed("a", "b"))


@pytest.mark.parametrize(
    ("after", "fields", "found"),
    [
        ("a", {"acquireTime": "later"}, "when a lease was acquired"),
        ("a", {"leaseTransitions": 1}, "1 transitions, not 0"),
        ("b", {"leaseTransitions": 0}, "0 transitions, not 1"),
    ],
)
def test_the_terms_of_a_lease_are_counted(
    clock: Clock, after: str, fields: dict[str, Any], found: str
) -> None:
    leases = Leases(clock)
    leases.see(changed(None, "a"))
    clock.now = 20
    with pytest.raises(AssertionError, match=found):
        leases.see(changed("a", after, **fields))


def test_a_person_may_take_a_lease(clock: Clock) -> None:
    leases = Leases(clock, lambda holder: holder in ("a", "b"))
    for before, after in ((None, "a"), ("a", "someone")):
        leases.see(changed(before, after))


@pytest.mark.parametrize(("shown", "found"), [("other", 1), ("me", 0), ("", 0)])
def test_a_leader_ends_when_it_sees_that_another_holds_its_lease(shown: str, found: int) -> None:
    problems: list[str] = []
    holders = Holders(lambda: [lease("other")], lambda _: 9.0, problems.append, Clock())
    process = Process("manager-0")
    holders.follow(process, "me")
    look = rest.Request("GET", LEASES + "/leader")

    holders.answered(process, look, CompleteResponse(200, msgspec.json.encode(lease("other"))))
    holders.sends(process, look)  # it reads the lease again, as a manager does that waits for it
    holders.answered(process, sent_lease("me", "4"), CompleteResponse(200, msgspec.json.encode(lease("me"))))
    holders.answered(process, look, CompleteResponse(200, msgspec.json.encode(lease(shown))))
    holders.sends(process, look)

    assert len(problems) == found


@pytest.mark.parametrize(("kept", "found"), [([], 1), (["example.com/kept"], 0)])
def test_a_read_of_an_object_that_an_own_write_has_ended_is_found(kept: list[str], found: int) -> None:
    async def look(sim: simtest.Simulation) -> None:
        manager, replica = sim.managers["manager-0"], sim.rules.replicas["manager-0"]
        await sim.client().create(ConfigMap.from_dict({"metadata": dict(KEY._asdict())}))
        await anyio.sleep(1.0)
        stored = (await manager.client.get(ConfigMap, KEY)).to_dict()
        stored["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": kept}
        answer = CompleteResponse(200, msgspec.json.encode(stored))
        patch = rest.Request("PATCH", f"/api/v1/namespaces/{KEY.namespace}/configmaps/{KEY.name}")
        sim.rules.answered(replica.process, patch, answer)
        await manager.client.get(ConfigMap, KEY)

    failure = failure_of(look, watch_config_maps)
    assert ("whose deletion our own write completed" in str(failure)) is bool(found)


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ValueError("unforeseen"), r"manager-\d ended: .*unforeseen"),
        (
            ExceptionGroup("two", [rest.TransportError("away"), ValueError("b")]),
            r"manager-\d ended: ManagerError",
        ),
        (rest.TransportError("away"), None),
    ],
    ids=["another error", "one of two", "an unreachable server"],
)
def test_a_manager_that_ends_with_an_unforeseen_error_is_found(error: Exception, found: str | None) -> None:
    def scenario(sim: simtest.Simulation) -> None:
        class Failing:
            async def start(self) -> None:
                await anyio.sleep(10)
                raise error

        async def setup(mgr: ctrl.Manager) -> None:
            mgr.add(Failing())

        sim.manager(setup, replicas=1)

    failure = simtest.run(scenario, 1, minutes=1).failure
    if found is None:
        assert failure is None
    else:
        with pytest.raises(AssertionError, match=found):
            raise failure or ValueError("nothing was found")


@pytest.mark.parametrize(("reached", "passed"), [("4", False), ("5", True), ("10", True)])
async def test_an_own_write_that_the_watch_has_passed_is_found(reached: str, passed: bool) -> None:
    assert cacherules.is_ghost(await engine_at(reached), KEY) is passed


async def test_a_filled_cache_must_answer_while_its_kind_is_denied_but_not_while_it_is_missing() -> None:
    made = await engine_at("4")
    made.informers[""].failed(ForbiddenError("no", code=403))
    assert cacherules.is_readable(made)
    made.informers[""].failed(NotFoundError("no", code=404))
    assert not cacherules.is_readable(made)


@pytest.mark.parametrize(
    ("refusals", "streams", "broken"),
    [(1, True, True), (1, False, False), (0, True, False), (5, True, False)],
    ids=["lists at once", "resumes", "was not refused", "lists after many refusals"],
)
def test_a_watch_that_lists_again_after_a_short_refusal_is_found(
    refusals: int, streams: bool, broken: bool
) -> None:
    found: list[str] = []
    resumes, process = Resumes(found.append, lambda: 0.0), Process("manager-0")
    watch = (("watch", "true"), ("resourceVersion", "5"))
    sent = rest.Request("GET", "/api/v1/pods", query=watch)
    for _ in range(refusals):
        resumes.sends(process, sent)
        resumes.answered(process, sent, CompleteResponse(403, b"{}"))
    again = (("watch", "true"), ("sendInitialEvents", "true")) if streams else watch
    resumes.sends(process, rest.Request("GET", "/api/v1/pods", query=again))
    assert bool(found) is broken


async def test_a_change_that_waits_for_the_answer_to_a_write_is_held_back() -> None:
    made = await engine_at("4")
    last = made.store.get(KEY, anyio.current_time())
    made.processor.begin_write(KEY)
    assert not [*cacherules.held_back(made)]
    made.processor.deleted(KEY, last, unknown=False)
    assert [key for key, _ in cacherules.held_back(made)] == [KEY]
    made.processor.end_write(KEY)
    assert not [*cacherules.held_back(made)]


def test_a_missing_kind_is_served_to_users_but_not_to_managers() -> None:
    async def look(sim: simtest.Simulation) -> None:
        sim.server.missing.add("configmaps")
        await sim.client().list(ConfigMap)
        with pytest.raises(NotFoundError):
            await sim.client("manager").list(ConfigMap)
        sim.server.missing.clear()
        await sim.client("manager").list(ConfigMap)

    assert failure_of(look, minutes=0.1) is None


def sent_lease(holder: str, version: str) -> rest.Request:
    body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}}
    return rest.Request("PUT", LEASES + "/leader", body=msgspec.json.encode(body))


@pytest.mark.parametrize(("holder", "left", "found"), [("other", 9.0, 1), ("other", -1.0, 0), ("me", 9.0, 0)])
def test_the_lease_of_another_may_be_given_up_only_when_it_has_lapsed(
    holder: str, left: float, found: int
) -> None:
    problems: list[str] = []
    stored = lease(holder)
    stored["metadata"]["resourceVersion"] = "5"
    holders = Holders(lambda: [stored], lambda _: left, problems.append, Clock())
    process = Process("manager-0")
    holders.follow(process, "me")

    holders.arrives(process, sent_lease("", "4"))  # the server refuses this version
    holders.arrives(process, sent_lease("", "5"))

    assert len(problems) == found


@pytest.mark.parametrize(("answer", "found"), [(200, 1), (503, 0)])
def test_a_manager_that_is_stopped_must_give_up_its_lease_if_the_server_answers(
    answer: int, found: int
) -> None:
    problems: list[str] = []
    holders = Holders(lambda: [lease("me")], lambda _: 9.0, problems.append, Clock())
    process = Process("manager-0")
    holders.follow(process, "me")
    request = rest.Request("GET", LEASES + "/leader")

    holders.stop(process)
    holders.sends(process, request)
    holders.answered(process, request, CompleteResponse(answer, b"{}"))
    holders.ended(process)

    assert len(problems) == found


@pytest.mark.parametrize(("seconds", "found"), [(1.0, 0), (70.0, 1)])
def test_a_manager_that_is_stopped_may_keep_its_lease_while_a_write_may_be_under_way(
    seconds: float, found: int
) -> None:
    problems: list[str] = []
    clock = Clock()
    holders = Holders(lambda: [lease("me")], lambda _: 9.0, problems.append, clock)
    process = Process("manager-0")
    holders.follow(process, "me")

    holders.sends(process, rest.Request("PATCH", "/api/v1/namespaces/default/configmaps/a"))
    clock.now += seconds
    holders.stop(process)
    holders.ended(process)

    assert len(problems) == found


@pytest.mark.parametrize(
    ("status", "stored", "found"), [(201, True, 0), (201, False, 1), (403, False, 0), (None, False, 1)]
)
def test_an_event_that_was_sent_is_stored_or_refused(status: int | None, stored: bool, found: int) -> None:
    problems: list[str] = []
    events, process = Events(problems.append), Process("manager-0")
    sent = Reported.from_dict({"metadata": {"namespace": "default", "name": "e"}, "message": "m", "count": 2})

    def send() -> None:
        request = rest.Request("POST", "/api/v1/namespaces/default/events")
        events.sends(process, request)
        if stored:
            table = table_of(Reported)
            events.see(Event(1, "ADDED", table, NamespacedName("default", "e"), sent.to_dict(), None))
        if status is not None:
            events.answered(process, request, CompleteResponse(status, b"{}"))

    observers: list[Any] = []
    manager: Any = SimpleNamespace(on_event=observers.append)
    events.follow(process, manager)
    send()
    observers[0](sent)

    assert len(problems) == found


async def test_delays_of_watches_that_overlap_do_not_outlast_each_other() -> None:
    watches = BreakableWatches(Server(FakeClient().storage).history, random.Random(0))
    watch: Any = None
    with watches.delays.during(lambda _: 1.0):
        longer = watches.delays.during(lambda _: 3.0)
        longer.__enter__()
        assert watches.delays.longest(watch) == 3.0
    assert watches.delays.longest(watch) == 3.0
    longer.__exit__(None, None, None)
    assert watches.delays.longest(watch) == 0.0


def test_a_repetition_of_an_event_raises_its_count() -> None:
    problems: list[str] = []
    events, table = Events(problems.append), table_of(Reported)
    states = [{"count": count, "lastTimestamp": at} for count, at in ((1, "1"), (2, "2"), (2, "2"), (2, "3"))]
    for before, now in zip([None, *states], states, strict=False):
        events.see(Event(1, "MODIFIED", table, NamespacedName("default", "e"), now, before))
    assert problems == ["a repeated event is not counted: e: 2"]


class Failing:
    """Fails, and then succeeds."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        self.left -= 1
        if self.left >= 0:
            raise OSError("away")
        return ctrl.Result()


def failure_with(
    reconciler: Failing, then: Callable[[], object] = lambda: None, **options: Any
) -> BaseException | None:
    """Return the failure of a simulation with one object, or None; ``then`` is called 5 s after its creation."""

    async def look(sim: simtest.Simulation) -> None:
        await sim.client().create(ConfigMap.from_dict({"metadata": dict(KEY._asdict())}))
        await anyio.sleep(5.0)
        then()

    async def setup(mgr: ctrl.Manager) -> None:
        builder = ctrl.new_controller_managed_by(mgr).for_(ConfigMap)
        builder.with_options(controller.Options(**options)).complete(reconciler)

    return failure_of(look, setup)


@pytest.mark.parametrize(("spoil", "found"), [(0, None), (1, "a metric has 4 errors, not 3: configmap")])
def test_metrics_count_reconciles(spoil: int, found: str | None) -> None:
    failure = failure_with(Failing(3), lambda: metrics.RECONCILE_ERRORS.labels("configmap").inc(spoil))
    assert (None if failure is None else str(failure)) == found


@pytest.mark.parametrize(("seconds", "found"), [(0.1, False), (30.0, True)])
def test_the_first_retry_after_a_success_must_come_soon(seconds: float, found: bool) -> None:
    class Succeeding(Failing):
        async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
            self.left += 1
            if self.left == 2:
                raise OSError("away")
            return ctrl.Result(requeue_after=timedelta(seconds=1) if self.left == 1 else None)

    limiter: Any = workqueue.ItemExponentialFailureRateLimiter(base=seconds, maximum=100.0)
    failure = failure_with(Succeeding(0), rate_limiter=limiter)
    assert ("the first retry after a success comes late" in str(failure)) is found


@pytest.mark.parametrize("kept", [[], ["example.com/kept"]])
def test_a_namespace_ends_when_nothing_is_left_in_it(kept: list[str]) -> None:
    ends: list[bool] = []

    async def look(sim: simtest.Simulation) -> None:
        client = sim.client()
        marked = {"name": "n", "finalizers": ["kubernetes"]}
        namespace = await client.create(Namespace.from_dict({"metadata": marked}))
        inside = {"name": "a", "namespace": "n", "finalizers": kept}
        await client.create(ConfigMap.from_dict({"metadata": inside}))
        await client.delete(namespace)
        await anyio.sleep(1)
        sim.server.collect_garbage()
        ends.append("n" not in [each.name for each in await client.list(Namespace)])

    assert failure_of(look) is None
    assert ends == [not kept]


def test_a_rule_that_cannot_be_checked_ends_the_life(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_server: object, _informer: object) -> list[str]:
        raise TypeError("a bug of the rule")

    monkeypatch.setattr(cacherules, "missed", broken)
    assert str(failure_of(setup=watch_config_maps)) == "a bug of the rule"


def test_a_read_that_is_older_than_the_last_event_is_found() -> None:
    async def look(sim: simtest.Simulation) -> None:
        manager, replica = sim.managers["manager-0"], sim.rules.replicas["manager-0"]
        made = await sim.client().create(ConfigMap.from_dict({"metadata": dict(KEY._asdict())}))
        changed = made.deep_copy()
        changed.data = {"a": "1"}
        await sim.client().update(changed)
        await anyio.sleep(1.0)

        async def read(_kind: type[ConfigMap], _key: NamespacedName) -> ConfigMap:
            return made

        assert (await manager.client.get(ConfigMap, KEY)).data == {"a": "1"}
        replica.read.clear()
        await sim.rules._read(replica, read, ConfigMap, KEY)

    failure = failure_of(look, watch_config_maps)
    assert "a read is older than the last event: ConfigMap a" in str(failure)


def state(version: int, uid: str = "u") -> Any:
    metadata = {"namespace": "default", "name": "a", "uid": uid, "resourceVersion": str(version)}
    return LazyObject.of(ConfigMap.from_dict({"metadata": metadata}))


async def teller(cached: cache.Cache) -> tuple[Told, Any, list[str]]:
    """Return a handler that checks what it is told, its informer, and the list of what is wrong."""
    informer, problems = (await cached.get_informer(ConfigMap)).shared, list[str]()
    return Told(informer, problems.append), informer, problems


@pytest.mark.parametrize(
    ("tell", "found"),
    [
        ("add 1, change 1 2, delete 2, add 3", None),
        ("add 1, add 2", "of a creation twice"),
        ("change 1 2", "of a change that does not begin with the last state"),
        ("add 1, change 2 3", "of a change that does not begin with the last state"),
        ("add 1, replace 1 2", "that an object became another one"),
        ("delete 1", "of the deletion of an object that does not exist for them"),
        ("add 1, delete-other 2", "of the deletion of an object that does not exist for them"),
    ],
)
async def test_handlers_must_be_told_of_each_state_in_order(tell: str, found: str | None) -> None:
    told, _, problems = await teller(cache.Cache(FakeTransport(lambda _: FakeResponse(404))))
    for step in tell.split(", "):
        what, *versions = step.split()
        first, last = int(versions[0]), int(versions[-1])
        match what:
            case "add":
                told._add(state(first), False)
            case "change":
                told._update(state(first), state(last))
            case "replace":
                told._update(state(first), state(last, "other"))
            case "delete":
                told._delete(state(first), False)
            case "delete-other":
                told._delete(state(first, "other"), False)
    assert problems == ([] if found is None else [f"handlers are told {found}: ConfigMap a"])


async def test_a_state_that_handlers_are_not_told_of_is_found(world: Any, settle: Any) -> None:
    obj = ConfigMap.from_dict({"metadata": dict(KEY._asdict())})
    async with world.cache() as cached:
        told, informer, problems = await teller(cached)
        world.put(obj)
        await cached.wait_for_sync()
        assert not [*told.untold()]
        informer.processor._registrations.clear()
        world.put(obj)
        await settle()
        ((key, seen),) = told.untold()
        assert (key, seen) == (KEY, (f"uid-{KEY}", informer.store.observed(KEY).resource_version))
        world.remove(obj)
        await settle()
        assert [*told.untold()] == [(KEY, None)]
    assert not problems


@pytest.mark.parametrize(
    ("forget", "found"),
    [("a timer", "a request waits beyond its time"), ("a wake-up", "a request is ready, and a worker waits")],
)
def test_a_request_that_a_queue_forgets_is_found(forget: str, found: str) -> None:
    async def look(sim: simtest.Simulation) -> None:
        await anyio.sleep(5.0)
        (made,) = sim.rules.replicas["manager-0"].controllers
        queue = made.queue
        if forget == "a timer":
            queue.add(ctrl.Request(*KEY), after=3.0)
            assert queue._timer is not None
            queue._timer.cancel()
        else:
            getters, queue._getters = queue._getters, deque()
            queue.add(ctrl.Request(*KEY))
            queue._getters = getters
        await anyio.sleep(30.0)

    async def setup(mgr: ctrl.Manager) -> None:
        ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(Failing(0))

    assert found in str(failure_of(look, setup))


async def test_an_event_that_waits_for_its_handler_is_found() -> None:
    kind = source.Kind[ConfigMap](
        cache.Cache(FakeTransport(lambda _: FakeResponse(404))), ConfigMap, handler.EnqueueRequestForObject()
    )
    sources = [source.Deferred(kind, anyio.lowlevel.checkpoint)]
    made = controller.Controller("c", Failing(0))
    assert not [*queuerules.undelivered(made, sources)]
    kind._dispatcher._calls.append(lambda: None)
    assert [*queuerules.undelivered(made, sources)] == [
        f"a handler does not get its events: c {kind}, when needed"
    ]
