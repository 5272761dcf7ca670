# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from controller_runtime import client, event, handler, source
from controller_runtime.apis.core.v1 import LimitRange
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, metadata_only
from controller_runtime.machinery.errors import StatusError
from controller_runtime.reconcile import Request
from controller_runtime.rest import PublishedSchema
from controller_runtime.workqueue import PriorityQueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup as CoschedulingPodGroup
from pkg.apis.trainer.v1alpha1 import (
    CoschedulingPodGroupPolicySource,
    PodGroupPolicy,
    TrainingRuntime,
    TrainingRuntimeSpec,
    TrainJob,
    VolcanoPodGroupPolicySource,
)
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoPodGroup
from pkg.runtime import core as runtimes
from pkg.runtime import framework
from pkg.runtime.framework.plugins import coscheduling, podgroup_watches, volcano
from pkg.runtime.framework.plugins.workload import served
from testkit.builders import (
    make_cluster_training_runtime,
    make_replicated_job,
    make_train_job,
    make_training_runtime,
    make_training_runtime_spec,
)


class Notes:
    """A stub of a controller builder that records its calls."""

    def __init__(self) -> None:
        self.handlers: dict[type[Object], handler.EventHandler[Any]] = {}
        self.options: dict[type[Object], dict[str, Any]] = {}
        self.sources: list[source.Source] = []

    def watches(self, kind: type[Object], handle: handler.EventHandler[Any], **options: Any) -> Notes:
        self.handlers[kind], self.options[kind] = handle, options
        return self

    def watches_raw_source(self, src: source.Source) -> Notes:
        self.sources.append(src)
        return self


MakeNotes = Callable[..., Awaitable[Notes]]


@pytest.fixture
def notes_of() -> MakeNotes:
    async def notes_of(reader: client.Client, plugin: coscheduling.CoScheduling | None = None) -> Notes:
        made = Notes()
        for add in (plugin or coscheduling.CoScheduling(reader)).reconciler_builders():
            add(cast("Any", made), reader, cast("Any", None))
        return made

    return notes_of


async def cluster(*objects: Object) -> FakeClient:
    made = FakeClient(*objects)
    await runtimes.new(made, made)
    return made


async def woken_by(notes: Notes, obj: Object, *kinds: str) -> set[str]:
    queue: PriorityQueue[Request] = PriorityQueue()
    handle = notes.handlers[type(obj)]
    events: dict[str, Any] = {
        "create": event.CreateEvent(obj),
        "update": event.UpdateEvent(obj, obj),
        "delete": event.DeleteEvent(obj),
        "generic": event.GenericEvent(obj),
    }
    for kind in kinds or ("create",):
        if (waiting := getattr(handle, kind)(events[kind], queue)) is not None:
            await waiting
    return {str((await queue.get_with_priority())[0]) for _ in range(len(queue))}


def spec_of(runtime_class: str) -> TrainingRuntimeSpec:
    return make_training_runtime_spec(
        make_replicated_job("a", runtime_class_name=runtime_class), make_replicated_job("b")
    )


def limit_range(namespace: str) -> LimitRange:
    return LimitRange(metadata=ObjectMeta(namespace=namespace, name="limits"))


def runtime_class(name: str) -> RuntimeClass:
    return RuntimeClass(metadata=ObjectMeta(name=name), handler=name)


KIND = TrainingRuntime.gvk.kind


async def test_a_runtime_class_wakes_the_suspended_jobs_of_runtimes_that_name_it(notes_of: MakeNotes) -> None:
    reader = await cluster(
        make_cluster_training_runtime("shared", spec_of("gvisor")),
        make_cluster_training_runtime("other", spec_of("kata")),
        make_training_runtime("team-a", "own", spec_of("gvisor")),
        make_train_job("team-a", "shared", runtime="shared", suspend=True),
        make_train_job("team-a", "running", runtime="shared", suspend=False),
        make_train_job("team-a", "unset", runtime="shared", suspend=None),
        make_train_job("team-a", "own", runtime="own", runtime_kind=KIND, suspend=True),
        make_train_job("team-a", "other", runtime="other", suspend=True),
        make_train_job("team-a", "cluster-wide-namesake", runtime="own", suspend=True),
    )

    woken = await woken_by(await notes_of(reader), runtime_class("gvisor"))

    assert woken == {"team-a/shared", "team-a/own"}


async def test_all_jobs_that_share_a_name_across_namespaces_are_woken(notes_of: MakeNotes) -> None:
    namespaces = ("team-a", "team-b", "team-c")
    reader = await cluster(
        make_cluster_training_runtime("shared", spec_of("gvisor")),
        *(make_training_runtime(namespace, "own", spec_of("gvisor")) for namespace in namespaces),
        *(make_train_job(namespace, "job", runtime="shared", suspend=True) for namespace in namespaces),
        *(
            make_train_job(namespace, "own", runtime="own", runtime_kind=KIND, suspend=True)
            for namespace in namespaces
        ),
    )

    woken = await woken_by(await notes_of(reader), runtime_class("gvisor"))

    assert woken == {f"{namespace}/{name}" for namespace in namespaces for name in ("job", "own")}


async def test_a_limit_range_wakes_the_suspended_jobs_of_its_namespace(notes_of: MakeNotes) -> None:
    reader = await cluster(
        make_train_job("team-a", "a", suspend=True),
        make_train_job("team-a", "b", suspend=True),
        make_train_job("team-a", "running", suspend=False),
        make_train_job("team-b", "a", suspend=True),
    )

    assert await woken_by(await notes_of(reader), limit_range("team-a")) == {"team-a/a", "team-a/b"}


@pytest.mark.parametrize(("kind", "wakes"), [("create", 1), ("update", 1), ("delete", 1), ("generic", 0)])
async def test_every_event_counts_but_those_of_ones_own_making(
    kind: str, wakes: int, notes_of: MakeNotes
) -> None:
    reader = await cluster(
        make_cluster_training_runtime("runtime", spec_of("gvisor")), make_train_job("a", "a", suspend=True)
    )
    notes = await notes_of(reader)

    assert len(await woken_by(notes, limit_range("a"), kind)) == wakes
    assert len(await woken_by(notes, runtime_class("gvisor"), kind)) == wakes


@pytest.mark.parametrize("failing", ["TrainingRuntime", "ClusterTrainingRuntime", "TrainJob"])
async def test_a_list_that_fails_wakes_nobody_and_ends_nothing(failing: str, notes_of: MakeNotes) -> None:
    async def fail(client: Any, kind: type[Object], **options: Any) -> Any:
        if kind.gvk.kind == failing:
            raise StatusError("boom", code=500, reason="InternalError")
        return await client.list(kind, **options)

    inner = await cluster(
        make_cluster_training_runtime("runtime", spec_of("gvisor")), make_train_job("a", "a", suspend=True)
    )
    notes = await notes_of(interceptor.wrap(inner, interceptor.Funcs(list=fail)))

    assert await woken_by(notes, runtime_class("gvisor")) == set()


async def test_a_pod_group_wakes_the_train_job_that_controls_it(notes_of: MakeNotes) -> None:
    def owner(name: str, *, controller: bool) -> OwnerReference:
        return OwnerReference(
            api_version=TrainJob.gvk.api_version, kind="TrainJob", name=name, uid="u", controller=controller
        )

    owners = [owner("a", controller=False), owner("b", controller=True)]
    group = CoschedulingPodGroup(metadata=ObjectMeta(namespace="team-a", name="x", owner_references=owners))

    assert await woken_by(await notes_of(await cluster()), group, "delete") == {"team-a/b"}


async def test_of_limit_ranges_and_runtime_classes_only_the_metadata_is_watched(notes_of: MakeNotes) -> None:
    notes = await notes_of(await cluster())

    assert notes.options[LimitRange]["only_metadata"] is True
    assert notes.options[RuntimeClass]["only_metadata"] is True
    reader = await cluster(make_train_job("team-a", "a", suspend=True))
    notes = await notes_of(reader)
    partial = metadata_only(LimitRange)(metadata=ObjectMeta(namespace="team-a", name="limits"))
    notes.handlers[type(partial)] = notes.handlers[LimitRange]
    assert await woken_by(notes, partial) == {"team-a/a"}


@pytest.mark.parametrize(
    ("plugin", "pod_group", "policy"),
    [
        pytest.param(
            coscheduling.CoScheduling,
            CoschedulingPodGroup,
            PodGroupPolicy(coscheduling=CoschedulingPodGroupPolicySource()),
            id="CoScheduling",
        ),
        pytest.param(
            volcano.Volcano,
            VolcanoPodGroup,
            PodGroupPolicy(volcano=VolcanoPodGroupPolicySource()),
            id="Volcano",
        ),
    ],
)
async def test_nothing_is_watched_before_the_first_gang_scheduled_job(
    plugin: Any, pod_group: type[Object], policy: PodGroupPolicy, notes_of: MakeNotes
) -> None:
    reader = await cluster()
    made = plugin(reader)
    notes = await notes_of(reader, made)
    assert set(notes.handlers) == {pod_group, LimitRange, RuntimeClass}
    train_job = make_train_job("team-a", "job")
    runtime = runtimes.TrainingRuntime(framework.Framework([made]), reader)

    async def needed() -> int:
        """Return the number of watched kinds whose watch may start by now."""
        over = 0
        for options in notes.options.values():
            with anyio.move_on_after(1):
                await options["when"]()
                over += 1
        return over

    await runtime.objects_from(make_training_runtime_spec(), train_job)
    assert await needed() == 0

    await runtime.objects_from(make_training_runtime_spec(pod_group_policy=policy), train_job)
    assert await needed() == 3


class Informer:
    """An informer of a kind that is served from the start, or once ``served`` is set."""

    def __init__(self, *, served: bool) -> None:
        self.has_synced = served
        self.served = anyio.Event()

    async def wait_for_sync(self, _timeout: float | None = None, *, or_problem: bool = False) -> None:
        if not self.has_synced and not or_problem:
            await self.served.wait()
            self.has_synced = True


@pytest.mark.parametrize(
    ("served", "fails"),
    [
        pytest.param(True, False, id="there from the start"),
        pytest.param(False, False, id="comes later"),
        pytest.param(False, True, id="comes later, and no TrainJob can be listed"),
    ],
)
async def test_gang_scheduled_jobs_are_woken_when_their_pod_groups_kind_arrives(
    served: bool, fails: bool
) -> None:
    async def listed(inner: Any, kind: Any, **options: Any) -> Any:
        if fails:
            raise StatusError("no", code=500, reason="InternalError")
        return await inner.list(kind, **options)

    def policy(**of: Any) -> Any:
        spec = make_training_runtime_spec(make_replicated_job("a"))
        spec.pod_group_policy = PodGroupPolicy.from_dict(of)
        return spec

    reader = await cluster(
        make_training_runtime("team-a", "gang", spec=policy(coscheduling={})),
        make_training_runtime("team-b", "gang", spec=policy(volcano={})),
        make_cluster_training_runtime("shared", spec=policy(coscheduling={})),
        make_cluster_training_runtime("plain"),
        make_train_job("team-a", "suspended", runtime="gang", runtime_kind="TrainingRuntime", suspend=True),
        make_train_job("team-b", "of-volcano", runtime="gang", runtime_kind="TrainingRuntime"),
        make_train_job("team-b", "running", runtime="shared"),
        make_train_job("team-b", "not-in-a-gang", runtime="plain"),
    )
    informer = Informer(served=served)

    class Cache:
        async def get_informer(self, kind: type[Object]) -> Informer:
            assert kind is CoschedulingPodGroup
            return informer

    plugin = coscheduling.CoScheduling(reader)
    notes = Notes()
    for add in plugin.reconciler_builders():
        lister = interceptor.wrap(reader, interceptor.Funcs(list=listed))
        add(cast("Any", notes), lister, cast("Any", Cache()))
    (kind_served,) = notes.sources
    queue: PriorityQueue[Request] = PriorityQueue()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kind_served.start, queue)
        await anyio.sleep(10)
        assert len(queue) == 0
        plugin._needed.set()
        await anyio.sleep(10)
        assert len(queue) == 0
        informer.served.set()

    woken = {str((await queue.get_with_priority())[0]) for _ in range(len(queue))}
    assert woken == (set() if served or fails else {"team-a/suspended", "team-b/running"})


async def test_gang_scheduled_jobs_are_woken_when_another_version_of_the_gang_api_is_served() -> None:
    spec = make_training_runtime_spec(make_replicated_job("a"))
    spec.pod_group_policy = PodGroupPolicy.from_dict({"workload": {}})
    reader = await cluster(
        make_training_runtime("team-a", "gang", spec=spec),
        make_train_job("team-a", "in-a-gang", runtime="gang", runtime_kind="TrainingRuntime"),
        make_train_job("team-a", "not-in-a-gang", runtime="plain"),
    )
    version, failures = "v1alpha1", 2

    async def unavailable_at_first(reader: Any, kind: type[Object], **options: Any) -> Any:
        nonlocal failures
        if failures and version != "v1alpha1":
            failures -= 1
            raise StatusError("the API server is unavailable", code=503, reason="ServiceUnavailable")
        return await reader.list(kind, **options)

    async def published(kind: type[Object], _known: PublishedSchema | None) -> PublishedSchema | None:
        return PublishedSchema("1", {}) if kind in (JobSet, served.KINDS[version]) else None

    notes, needed = Notes(), anyio.Event()
    failing = interceptor.wrap(reader, interceptor.Funcs(list=unavailable_at_first))
    add = podgroup_watches.served_versions(served.Served(published), needed.wait)
    add(cast("Any", notes), failing, cast("Any", SimpleNamespace(interrupted_since=lambda _kind: None)))
    (followed,) = notes.sources
    queue: PriorityQueue[Request] = PriorityQueue()
    needed.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(followed.start, queue)
        await anyio.sleep(2 * served.TTL)
        assert len(queue) == 0
        version = "v1beta1"
        await anyio.sleep(5 * served.TTL)
        tasks.cancel_scope.cancel()

    assert failures == 0
    assert [str((await queue.get_with_priority())[0]) for _ in range(len(queue))] == ["team-a/in-a-gang"]
