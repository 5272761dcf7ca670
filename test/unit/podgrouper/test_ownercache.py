# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.lazy import LazyObject
from controller_runtime.apis.machinery.object import (
    Object,
    OwnerReference,
    Unstructured,
    metadata_only,
    unstructured,
)
from controller_runtime.client import FakeClient
from controller_runtime.rest import NoKindMatchError, TransportError

from pkg.podgrouper.budget import OverBudgetError
from pkg.podgrouper.costs import READ_TIMEOUT
from pkg.podgrouper.hub import new_plugins_hub
from pkg.podgrouper.ownercache import UNWATCHED_TTL, OwnerCache
from pkg.podgrouper.plugins import Reads

JOB = GVK("batch", "v1", "Job")
MakeObject = Callable[..., Unstructured]


class Informer:
    """A watch that tells when it is asked to."""

    def __init__(self) -> None:
        self.has_synced = True
        self.problem: str | None = None
        self.handlers: list[cache.LazyHandlerFuncs[Any]] = []

    def add_event_handler(self, handler: cache.LazyHandlerFuncs[Any]) -> None:
        self.handlers.append(handler)


class Cluster:
    """The server's objects, the objects that watches have reported, and the reads of the server."""

    def __init__(self) -> None:
        self.server, self.watched = FakeClient(), FakeClient()
        self.informers: dict[GVK, Informer] = {}
        self.now = 100.0
        self.denied = False
        self.answer_delay = 0.0
        self.meanwhile: list[Callable[[], None]] = []
        """What happens between the server's answer and its arrival, one read after another."""

    async def get_informer(self, kind: type[Any]) -> Any:
        self.kind = kind
        return self.informers.setdefault(kind.gvk, Informer())

    async def get(self, kind: type[Any], key: Any) -> Any:
        return await self.watched.get(kind, key)

    async def put(self, obj: Object, *, reported: bool = True) -> None:
        for client in (self.server, self.watched) if reported else (self.server,):
            with contextlib.suppress(NotFoundError):
                await client.delete(obj, propagation="Background")
            client.add(obj)
        if reported:
            self.report(obj)

    def delete(self, obj: Object) -> None:
        """Take the object away, and have its watch report that."""
        for client in (self.server, self.watched):
            client._table(type(obj)).rows.pop(obj.key)
        for handler in self.informers[type(obj).gvk].handlers:
            handler.on_delete(LazyObject(self.kind, obj.to_json()), False)

    def report(self, obj: Object) -> None:
        if (informer := self.informers.get(type(obj).gvk)) is not None:
            changed: LazyObject[Any] = LazyObject(self.kind, obj.to_json())
            for handler in informer.handlers:
                handler.on_update(changed, changed)

    @property
    def reads(self) -> list[str]:
        return [call.kind.kind for call in self.server.calls if not call.is_write]


class Live:
    """The server's own client; it may deny every read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def get(self, kind: type[Any], key: Any) -> Any:
        found = await self._cluster.server.get(kind, key)
        if self._cluster.denied:
            raise ForbiddenError("no", code=403, reason="Forbidden")
        if self._cluster.answer_delay:
            await anyio.sleep(self._cluster.answer_delay)
        if self._cluster.meanwhile:
            self._cluster.meanwhile.pop(0)()
        return found

    async def list(self, kind: type[Any], **options: Any) -> Any:
        return await self._cluster.server.list(kind, **options)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def owners(cluster: Cluster) -> OwnerCache:
    made = OwnerCache(Live(cluster), cluster.watched, cluster, clock=lambda: cluster.now)
    made.kinds = new_plugins_hub(made, found=[])
    return made


def reference(owner: Object) -> OwnerReference:
    return OwnerReference(
        api_version=owner.gvk.api_version, kind=owner.gvk.kind, name=owner.name, uid=owner.metadata.uid or ""
    )


async def test_an_owner_is_read_once_for_any_number_of_pods(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    job = make_object("batch/v1", "Job", "j", generation=1, spec={"parallelism": 3})
    await cluster.put(job)

    for _ in range(100):
        found = await owners.metadata(reference(job), "team-a")
        instance = await owners.instance(found, Reads.SPEC)

    assert instance["spec"] == {"parallelism": 3}
    assert cluster.reads == ["Job", "Job"]  # its metadata, before there was a watch, and its spec


@pytest.mark.parametrize("reported", ["7", "6"])
async def test_an_owner_stays_known_when_the_watch_begins_with_the_version_that_was_read_or_an_older_one(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject, reported: str
) -> None:
    cluster.informers[JOB] = Informer()
    cluster.informers[JOB].has_synced = False
    job = make_object("batch/v1", "Job", "j", resourceVersion="7")
    cluster.server.add(job)
    await owners.metadata(reference(job), "team-a")

    cluster.report(make_object("batch/v1", "Job", "j", resourceVersion=reported))
    await owners.metadata(reference(job), "team-a")
    assert cluster.reads == ["Job"]

    cluster.report(make_object("batch/v1", "Job", "j", resourceVersion="10"))
    await owners.metadata(reference(job), "team-a")
    assert cluster.reads == ["Job", "Job"]


async def test_the_second_owner_of_a_kind_comes_from_the_watch(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    jobs = [make_object("batch/v1", "Job", name, generation=1) for name in ("a", "b")]
    for job in jobs:
        await cluster.put(job)

    for job in jobs:
        await owners.metadata(reference(job), "team-a")

    assert cluster.reads == ["Job"]


async def test_a_label_that_changes_is_seen_without_a_read_of_the_rest(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    job = make_object("batch/v1", "Job", "j", generation=1, spec={"parallelism": 3})
    await cluster.put(job)
    await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)

    await cluster.put(
        make_object("batch/v1", "Job", "j", generation=1, labels={"l": "1"}, spec={"parallelism": 3})
    )
    instance = await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)

    assert (instance.labels, instance["spec"]) == ({"l": "1"}, {"parallelism": 3})
    assert len(cluster.reads) == 2


@pytest.mark.parametrize(
    ("reads", "generation", "read_again"),
    [(Reads.SPEC, 1, False), (Reads.SPEC, 2, True), (Reads.OBJECT, 1, True), (Reads.METADATA, 2, False)],
)
async def test_the_rest_is_read_again_when_what_is_looked_at_may_have_changed(
    cluster: Cluster,
    owners: OwnerCache,
    make_object: MakeObject,
    reads: Reads,
    generation: int,
    read_again: bool,
) -> None:
    await cluster.put(make_object("batch/v1", "Job", "j", generation=1, resourceVersion="7"))
    job = make_object("batch/v1", "Job", "j", generation=generation, resourceVersion="8")
    await owners.instance(await owners.metadata(reference(job), "team-a"), reads)
    before = len(cluster.reads)

    await cluster.put(job)
    await owners.instance(await owners.metadata(reference(job), "team-a"), reads)

    assert (len(cluster.reads) > before) is read_again


async def test_an_owner_that_the_watch_has_not_told_of_yet_is_asked_for(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(first := make_object("batch/v1", "Job", "first"))
    await owners.metadata(reference(first), "team-a")
    await cluster.put(late := make_object("batch/v1", "Job", "late"), reported=False)

    assert (await owners.metadata(reference(late), "team-a")).name == "late"


async def test_another_object_of_the_name_is_found_before_the_watch_tells(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(old := make_object("batch/v1", "Job", "j", uid="old"))
    await owners.metadata(reference(old), "team-a")
    await cluster.put(new := make_object("batch/v1", "Job", "j", uid="new"), reported=False)

    assert (await owners.metadata(reference(new), "team-a")).metadata.uid == "new"


async def test_kinds_of_which_nothing_can_be_read_are_not_watched(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    with pytest.raises(NotFoundError):
        await owners.metadata(reference(make_object("made.up/v1", "Kind", "x")), "team-a")

    assert cluster.informers == {}


async def test_an_owner_of_a_kind_that_cannot_be_watched_is_believed_for_a_while(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    informer = cluster.informers[JOB] = Informer()
    informer.problem = "denied"

    for _ in range(10):
        await owners.metadata(reference(job), "team-a")
    assert len(cluster.reads) == 1
    cluster.now += UNWATCHED_TTL
    await owners.metadata(reference(job), "team-a")
    assert len(cluster.reads) == 2


async def test_a_refusal_is_believed_for_a_while(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    cluster.denied = True
    for _ in range(10):
        with pytest.raises(ForbiddenError):
            await owners.metadata(reference(job), "team-a")
    assert len(cluster.reads) == 1

    cluster.denied = False
    cluster.now += UNWATCHED_TTL
    assert (await owners.metadata(reference(job), "team-a")).name == "j"


async def test_a_pod_as_owner_costs_no_request(
    cluster: Cluster, owners: OwnerCache, make_pod: Callable[..., Pod]
) -> None:
    pod = make_pod("driver", labels={"l": "1"})
    await cluster.put(pod)

    found = await owners.metadata(reference(pod), "team-a")
    instance = await owners.instance(found, Reads.OBJECT)

    assert (found.labels, instance["spec"]["schedulerName"]) == ({"l": "1"}, "kai-scheduler")
    assert cluster.reads == []


async def test_groupers_get_an_owner_of_their_own_to_change(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(make_object("batch/v1", "Job", "j", labels={"l": "1"}))

    for _ in range(2):
        found = await owners.get(unstructured(JOB), ("team-a", "j"))
        assert found.labels == {"l": "1"}
        assert found.metadata.labels is not None
        found.metadata.labels["changed"] = "yes"


# Kinds without a grouper.


@pytest.mark.parametrize(("api_version", "kind"), [("v1", "Secret"), ("example.com/v1", "Widget")])
async def test_an_owner_of_a_kind_without_a_grouper_is_read_for_a_while_and_never_watched(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject, api_version: str, kind: str
) -> None:
    await cluster.put(owner := make_object(api_version, kind, "o"))

    for _ in range(10):
        await owners.metadata(reference(owner), "team-a")
    assert cluster.reads == [kind]
    cluster.now += UNWATCHED_TTL
    await owners.metadata(reference(owner), "team-a")
    assert cluster.reads == [kind, kind]
    assert cluster.informers == {}


async def test_nothing_is_made_or_read_of_a_kind_that_is_not_served(
    cluster: Cluster, make_object: MakeObject
) -> None:
    async def served(kind: GVK) -> None:
        raise NoKindMatchError(kind)

    owners = OwnerCache(Live(cluster), cluster.watched, cluster, served=served, clock=lambda: cluster.now)
    owners.kinds = new_plugins_hub(owners, found=[])
    before = metadata_only.cache_info().misses
    for number in range(20):
        owner = OwnerReference(api_version=f"made-up-{number}.com/v1", kind="Kind", name="x", uid="u")
        with pytest.raises(NoKindMatchError):
            await owners.metadata(owner, "team-a")

    assert (cluster.reads, metadata_only.cache_info().misses) == ([], before)


async def test_owners_of_a_kind_without_a_grouper_are_read_one_by_one_in_a_namespace(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    widgets = [make_object("example.com/v1", "Widget", str(number)) for number in range(10)]
    for widget in widgets:
        await cluster.put(widget)
    await cluster.put(other := make_object("example.com/v1", "Widget", "0", namespace="team-b"))
    cluster.answer_delay = 1
    put_off: list[float] = []

    async def look(widget: Unstructured) -> None:
        try:
            await owners.metadata(reference(widget), widget.namespace)
        except OverBudgetError as error:
            put_off.append(error.delay)

    async with anyio.create_task_group() as tasks:
        for widget in (*widgets, other):
            tasks.start_soon(look, widget)

    assert len(put_off) == 9
    assert put_off == sorted(set(put_off))  # each has a turn of its own
    assert cluster.reads == ["Widget", "Widget"]


# The budget.


async def test_owners_that_are_missing_use_up_the_budget_of_their_namespace_alone(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j", namespace="team-b"))
    outcomes = collections.Counter[str]()
    for number in range(1000):
        missing = make_object("batch/v1", "Job", f"missing-{number}")
        try:
            await owners.metadata(reference(missing), "team-a")
        except (NotFoundError, OverBudgetError) as error:
            outcomes[type(error).__name__] += 1

    assert outcomes["NotFoundError"] <= 101
    assert outcomes["OverBudgetError"] >= 899
    assert (await owners.metadata(reference(job), "team-b")).name == "j"


async def test_what_is_known_costs_no_budget(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    await owners.metadata(reference(job), "team-a")
    owners.costs.budget.spend("team-a", 1000)

    assert (await owners.metadata(reference(job), "team-a")).name == "j"


async def test_a_burst_of_owners_that_exist_is_read_without_a_limit(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    jobs = [make_object("batch/v1", "Job", f"j-{number}", generation=1) for number in range(500)]
    for job in jobs:
        await cluster.put(job)
        await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)

    assert len(owners.costs.budget) == 0


async def test_a_server_that_does_not_answer_holds_a_worker_for_a_bounded_time_and_is_charged_for_it(
    cluster: Cluster, make_object: MakeObject
) -> None:
    owners = OwnerCache(Live(cluster), cluster.watched, cluster)
    owners.kinds = new_plugins_hub(owners, found=[])
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    cluster.answer_delay = 3600
    began = anyio.current_time()

    with pytest.raises(TransportError, match="no answer within 5 s"):
        await owners.metadata(reference(job), "team-a")
    assert anyio.current_time() - began == pytest.approx(READ_TIMEOUT, abs=0.01)
    with pytest.raises(OverBudgetError) as caught:
        await owners.metadata(reference(job), "team-a")
    assert caught.value.delay > READ_TIMEOUT


async def test_a_wrong_uid_takes_nothing_from_memory_and_is_charged(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    await owners.metadata(reference(job), "team-a")
    wrong = make_object("batch/v1", "Job", "j", uid="made-up")
    for _ in range(1000):
        with contextlib.suppress(OverBudgetError):
            await owners.metadata(reference(wrong), "team-a")

    reads = len(cluster.reads)
    assert reads <= 103
    assert (await owners.metadata(reference(job), "team-a")).metadata.uid == job.metadata.uid
    assert len(cluster.reads) == reads


async def test_a_refusal_counts_for_all_objects_of_the_kind_in_the_namespace(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    jobs = [make_object("batch/v1", "Job", f"j-{number}") for number in range(100)]
    for job in jobs:
        await cluster.put(job)
    cluster.denied = True
    for job in jobs:
        with pytest.raises(ForbiddenError):
            await owners.metadata(reference(job), "team-a")

    assert len(cluster.reads) == 1


@pytest.mark.parametrize("kind", ["Job", "Widget"])
async def test_ten_thousand_owners_leave_a_bounded_memory(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject, kind: str
) -> None:
    api_version = "batch/v1" if kind == "Job" else "example.com/v1"
    for number in range(10_000):
        namespace = f"ns-{number % 1100}"
        owner = make_object(api_version, kind, f"o-{number}", namespace=namespace)
        with contextlib.suppress(NotFoundError, OverBudgetError):
            await owners.metadata(reference(owner), namespace)
        await anyio.lowlevel.checkpoint()

    assert len(owners._memory) == 0
    for held in (
        owners.costs._refusals,
        owners._reading,
        owners.costs._alone,
        owners.costs.budget,
        owners._watched,
    ):
        assert len(held) <= 1024
    assert owners._locks._waiting == {}


# What changes while it is read.


@pytest.mark.parametrize("version", ["6", "5"])
async def test_a_change_that_the_watch_reports_while_the_answer_travels_is_not_lost(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject, version: str
) -> None:
    await cluster.put(first := make_object("batch/v1", "Job", "first", resourceVersion="1"))
    await owners.metadata(reference(first), "team-a")
    old = make_object("batch/v1", "Job", "j", resourceVersion="5", labels={"l": "old"})
    await cluster.put(old, reported=False)
    new = make_object("batch/v1", "Job", "j", resourceVersion=version, labels={"l": "new"})

    def change() -> None:
        cluster.watched.add(new)
        cluster.report(new)

    cluster.meanwhile.append(change)
    await owners.metadata(reference(old), "team-a")

    wanted = {"6": "new", "5": "old"}[version]
    assert (await owners.metadata(reference(new), "team-a")).labels == {"l": wanted}


async def test_a_deletion_that_the_watch_reports_while_the_answer_travels_is_not_lost(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(first := make_object("batch/v1", "Job", "first", resourceVersion="1"))
    await owners.metadata(reference(first), "team-a")
    job = make_object("batch/v1", "Job", "j", resourceVersion="5")
    await cluster.put(job, reported=False)

    def delete() -> None:
        cluster.watched.add(job)
        cluster.delete(job)

    cluster.meanwhile.append(delete)
    await owners.metadata(reference(job), "team-a")

    with pytest.raises(NotFoundError):
        await owners.metadata(reference(job), "team-a")


async def test_a_change_that_the_first_list_of_the_watch_reports_is_not_lost(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    old = make_object("batch/v1", "Job", "j", resourceVersion="5", labels={"l": "old"})
    new = make_object("batch/v1", "Job", "j", resourceVersion="6", labels={"l": "new"})
    await cluster.put(old, reported=False)

    class Telling(Informer):
        def add_event_handler(self, handler: cache.LazyHandlerFuncs[Any]) -> None:
            super().add_event_handler(handler)
            cluster.watched.add(new)
            cluster.report(new)

    cluster.informers[JOB] = Telling()
    await owners.metadata(reference(old), "team-a")

    assert (await owners.metadata(reference(new), "team-a")).labels == {"l": "new"}


async def test_a_server_that_is_behind_does_not_hide_what_the_watch_has_reported(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
) -> None:
    await cluster.put(make_object("batch/v1", "Job", "first", resourceVersion="1"))
    await owners.metadata(reference(make_object("batch/v1", "Job", "first")), "team-a")
    new = make_object("batch/v1", "Job", "j", uid="u", resourceVersion="6", generation=2, labels={"l": "new"})
    await cluster.put(new)
    cluster.server._table(type(new)).rows.pop(new.key)
    cluster.server.add(
        make_object("batch/v1", "Job", "j", uid="u", resourceVersion="5", generation=1, labels={"l": "old"})
    )

    found = await owners.metadata(
        OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="someone-else"), "team-a"
    )
    instance = await owners.instance(found, Reads.SPEC)

    assert found.labels == {"l": "new"}
    assert (instance.labels, instance.metadata.generation) == ({"l": "new"}, 2)


# Pods as owners.


async def test_a_pod_that_has_ended_is_read_once_for_all_that_it_owns(
    cluster: Cluster, owners: OwnerCache, make_pod: Callable[..., Pod]
) -> None:
    driver = make_pod("driver", labels={"l": "1"})
    await cluster.put(driver, reported=False)

    for _ in range(10):
        assert (await owners.metadata(reference(driver), "team-a")).labels == {"l": "1"}
    assert cluster.reads == ["Pod"]
    assert (await owners.get(unstructured(Pod.gvk), driver.key)).name == "driver"
    assert cluster.informers == {}
