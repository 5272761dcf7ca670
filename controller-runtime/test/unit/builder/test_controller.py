# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import builder, handler, predicate, rest, source
from controller_runtime.apis.batch.v1 import CronJob, Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.controller import Controller, Options
from controller_runtime.machinery import Object, metadata_only
from controller_runtime.manager import ControllerDefaults, Manager
from controller_runtime.manager import Options as ManagerOptions
from controller_runtime.reconcile import ControllerError, Request, Result


class FakeManager:
    """Keeps controllers instead of running them."""

    def __init__(self, cache: source.Informers, **options: Any) -> None:
        self.cache = cache
        self.controller_options = ControllerDefaults(**options)
        self.controller_names: set[str] = set()
        self.added: list[Controller] = []

    def add(self, runnable: Controller, /) -> None:
        self.added.append(runnable)


class Seen:
    def __init__(self) -> None:
        self.requests: list[str] = []

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(str(request))
        return Result()


class NoInformers:
    async def get_informer(self, kind: type[Any]) -> Any:
        raise AssertionError(f"{kind} is watched before the start")


@pytest.fixture
def mgr() -> FakeManager:
    return FakeManager(NoInformers())


@asynccontextmanager
async def running(made: Controller) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.start)
        await made.ready()
        yield
        await anyio.sleep(0.01)
        made.stop()


def owned(kind: type[Object], name: str, owner: str, *, controller: bool = True) -> Object:
    ref = {"apiVersion": "batch/v1", "kind": "CronJob", "name": owner, "uid": "u", "controller": controller}
    return kind.from_dict({"metadata": {"namespace": "ns", "name": name, "ownerReferences": [ref]}})


def named(kind: type[Object], name: str, **labels: str) -> Object:
    return kind.from_dict({"metadata": {"namespace": "ns", "name": name, "labels": labels}})


async def test_one_sentence_watches_the_kind_what_it_owns_and_whatever_else(world: Any) -> None:
    async def mapped(obj: ConfigMap) -> list[Request]:
        return [Request("ns", f"for-{obj.name}")]

    seen = Seen()
    async with world.cache() as informers:
        mgr = FakeManager(informers)
        made = (
            builder.new_controller_managed_by(mgr)
            .owns(Job)
            .for_(CronJob)
            .watches(ConfigMap, handler.enqueue_requests_from_map_func(mapped))
            .build(seen)
        )
        assert mgr.added == [made]
        async with running(made):
            assert sorted(world.watched()) == ["configmaps", "cronjobs", "jobs"]
            world.put(named(CronJob, "itself"))
            world.put(owned(Job, "j1", "controlling"))
            world.put(owned(Job, "j2", "owning", controller=False))
            world.put(named(ConfigMap, "config"))
    assert sorted(seen.requests) == ["ns/controlling", "ns/for-config", "ns/itself"]


async def test_every_owner_is_woken_if_that_is_asked_for(world: Any) -> None:
    seen = Seen()
    async with world.cache() as informers:
        made = (
            builder.new_controller_managed_by(FakeManager(informers))
            .for_(CronJob)
            .owns(Job, match_every_owner=True)
            .build(seen)
        )
        async with running(made):
            world.put(owned(Job, "j2", "owning", controller=False))
    assert seen.requests == ["ns/owning"]


async def test_filters_hold_for_every_kind_and_predicates_for_one(world: Any) -> None:
    seen = Seen()
    async with world.cache() as informers:
        made = (
            builder.new_controller_managed_by(FakeManager(informers))
            .for_(Pod, predicates=[predicate.from_object(lambda obj: obj.name != "not-this-pod")])
            .watches(Job, handler.EnqueueRequestForObject())
            .with_event_filter(predicate.label_selector("on"))
            .build(seen)
        )
        async with running(made):
            for kind, name, labels in (
                (Pod, "pod", {"on": ""}),
                (Pod, "not-this-pod", {"on": ""}),
                (Pod, "pod-off", {}),
                (Job, "job", {"on": ""}),
                (Job, "job-off", {}),
            ):
                world.put(named(kind, name, **labels))
    assert sorted(seen.requests) == ["ns/job", "ns/pod"]


async def test_a_raw_source_is_not_filtered(world: Any) -> None:
    async def feed(queue: handler.Queue) -> None:
        queue.add(Request("", "raw"))

    seen = Seen()
    async with world.cache() as informers:
        made = (
            builder.new_controller_managed_by(FakeManager(informers))
            .named("raw")
            .watches_raw_source(source.Func(feed))
            .with_event_filter(predicate.from_object(lambda _: False))
            .build(seen)
        )
        async with running(made):
            pass
    assert seen.requests == ["raw"]


async def test_metadata_alone_is_watched_if_that_is_enough(world: Any) -> None:
    seen: list[type] = []

    async def mapped(obj: Object) -> list[Request]:
        seen.append(type(obj))
        return []

    async with world.cache() as informers:
        made = (
            builder.new_controller_managed_by(FakeManager(informers))
            .named("meta")
            .watches(ConfigMap, handler.enqueue_requests_from_map_func(mapped), only_metadata=True)
            .build(Seen())
        )
        async with running(made):
            world.put(named(ConfigMap, "config"))
    assert seen == [metadata_only(ConfigMap)]


async def test_a_controller_works_while_a_watch_is_not_needed_yet(world: Any) -> None:
    needed, seen = anyio.Event(), Seen()
    world.put(named(Pod, "a"))
    async with world.cache() as informers:
        made = (
            builder.new_controller_managed_by(FakeManager(informers))
            .named("late")
            .watches(Pod, handler.EnqueueRequestForObject(), when=needed.wait)
            .build(seen)
        )
        async with running(made):
            assert world.watched() == []
            needed.set()
            await anyio.sleep(0.001)
            assert seen.requests == ["ns/a"]


def test_a_controller_is_named_after_its_kind_unless_it_has_a_name(mgr: FakeManager) -> None:
    plain = builder.new_controller_managed_by(mgr).for_(CronJob).build(Seen())
    assert (plain.name, plain.settings.kind) == ("cronjob", CronJob.gvk)
    assert builder.new_controller_managed_by(mgr).for_(CronJob).named("mine").build(Seen()).name == "mine"


def test_a_name_is_given_once_unless_nobody_minds(mgr: FakeManager) -> None:
    def again(**options: Any) -> Controller:
        return builder.new_controller_managed_by(mgr).for_(Pod).with_options(Options(**options)).build(Seen())

    again()
    with pytest.raises(ControllerError, match="controller with name pod already exists"):
        again()
    again(skip_name_validation=True)
    assert len(mgr.added) == 2


Start = Callable[[builder.Builder], builder.Builder]


@pytest.mark.parametrize(
    ("sentence", "complaint"),
    [
        pytest.param(lambda b: b, r"needs for_\(\) or named\(\)", id="nothing said"),
        pytest.param(lambda b: b.named("x"), "nothing would ever wake it", id="no source"),
        pytest.param(lambda b: b.for_(Pod).for_(Job), "twice", id="two kinds"),
        pytest.param(lambda b: b.named("x").owns(Job), "owner kind is unknown", id="an owner of nothing"),
        pytest.param(
            lambda b: b.for_(Pod).with_options(Options(max_concurrent_reconciles=0)),
            "needs a worker",
            id="no worker",
        ),
    ],
)
def test_a_sentence_that_makes_no_sense_is_refused_and_takes_no_name(
    mgr: FakeManager, sentence: Start, complaint: str
) -> None:
    with pytest.raises(ControllerError, match=complaint):
        sentence(builder.new_controller_managed_by(mgr)).complete(Seen())
    assert (mgr.added, mgr.controller_names) == ([], set())


@pytest.mark.parametrize(
    ("sentence", "workers"),
    [
        pytest.param(lambda b: b.for_(Job), 5, id="by kind"),
        pytest.param(lambda b: b.for_(Job).with_options(Options()), 5, id="by kind, with other options"),
        pytest.param(
            lambda b: b.for_(Job).with_options(Options(max_concurrent_reconciles=2)), 2, id="by option"
        ),
        pytest.param(lambda b: b.for_(Pod), 3, id="as all"),
        pytest.param(
            lambda b: (
                b.named("x")
                .watches(Job, handler.EnqueueRequestForObject())
                .with_options(Options(kind=Job.gvk))
            ),
            5,
            id="by kind, without for_",
        ),
    ],
)
def test_the_number_of_workers(sentence: Start, workers: int) -> None:
    mgr = FakeManager(NoInformers(), group_kind_concurrency={"Job.batch": 5}, max_concurrent_reconciles=3)
    made = sentence(builder.new_controller_managed_by(mgr)).build(Seen())
    assert made.settings.max_concurrent_reconciles == workers


def test_the_managers_word_holds_where_the_options_say_nothing() -> None:
    mgr = FakeManager(
        NoInformers(),
        recover_panic=False,
        need_leader_election=False,
        cache_sync_timeout=7.0,
        reconciliation_timeout=9.0,
    )
    begun = builder.new_controller_managed_by(mgr)
    made = begun.for_(Pod).with_log_constructor(lambda _: {"a": 1}).build(Seen()).settings
    assert (made.recover_panic, made.need_leader_election) == (False, False)
    assert (made.cache_sync_timeout, made.reconciliation_timeout) == (7.0, 9.0)
    assert made.log_constructor is not None
    begun = builder.new_controller_managed_by(mgr).named("other").for_(Pod)
    own = begun.with_options(Options(recover_panic=True, cache_sync_timeout=1)).build(Seen()).settings
    assert (own.recover_panic, own.need_leader_election, own.cache_sync_timeout) == (True, False, 1.0)


async def test_a_manager_runs_what_was_built_and_stops_it_in_order(world: Any) -> None:
    class Slow(Seen):
        async def reconcile(self, request: Request) -> Result:
            await anyio.sleep(10)
            return await super().reconcile(request)

    seen = Slow()
    options = ManagerOptions(metrics_bind_address="0")
    mgr = Manager(rest.Config(host="https://world"), options, transport=world.transport)
    builder.new_controller_managed_by(mgr).for_(Pod).owns(Job).complete(seen)
    world.refused[Job] = 403
    world.put(named(Pod, "a"))
    world.put(named(Pod, "b"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await anyio.sleep(1)
        assert mgr.elected.is_set()
        assert [gvk.kind for gvk in mgr.cache.degraded()] == ["Job"]
        mgr.stop()
    assert seen.requests == ["ns/a"]
    assert anyio.current_time() - 1000 == pytest.approx(10, abs=0.1)


def test_the_managers_defaults_are_not_the_options_of_a_controller(mgr: FakeManager) -> None:
    sentence = builder.new_controller_managed_by(mgr).for_(Pod)
    with pytest.raises(
        ControllerError, match=r"with_options\(\) takes ctrl.ControllerOptions, not ControllerD"
    ):
        sentence.with_options(ControllerDefaults()).complete(Seen())  # type: ignore[arg-type]  # the mistake
    options = ctrl.ControllerOptions(max_concurrent_reconciles=3)
    made = builder.new_controller_managed_by(mgr).for_(Pod).with_options(options).build(Seen())
    assert made.settings.max_concurrent_reconciles == 3


def test_a_kind_is_built_when_it_is_declared_not_when_its_first_object_arrives(mgr: FakeManager) -> None:
    def kind(name: str) -> type[Object]:
        return types.new_class(
            name, (Object,), {"group": "example.com", "version": "v1", "plural": f"{name}s"}
        )

    kinds = [kind(name) for name in ("A", "B", "C")]
    assert not any(each.__pydantic_complete__ for each in kinds)
    handles = handler.EnqueueRequestForObject()
    builder.new_controller_managed_by(mgr).for_(kinds[0]).owns(kinds[1]).watches(kinds[2], handles)
    assert all(each.__pydantic_complete__ for each in kinds)
