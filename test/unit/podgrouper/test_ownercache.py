# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, ClassVar

import anyio
import pytest
from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import GVK, LazyObject, unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError

from pkg.podgrouper.ownercache import READ_TTL, OwnerCache
from pkg.podgrouper.plugins import Inputs, Key, Reads
from pkg.podgrouper.regrouping import Regrouping
from testkit.grouping import DirectClient, Informer, OwnerServer, make_object, make_pod, reference

JOB = GVK("batch", "v1", "Job")


async def test_an_owner_is_read_once_for_any_number_of_pods(cluster: OwnerServer, owners: OwnerCache) -> None:
    job = make_object("batch/v1", "Job", "j", generation=1, spec={"parallelism": 3})
    await cluster.put(job)

    for _ in range(100):
        found = await owners.metadata(reference(job), "team-a")
        instance = await owners.instance(found, Reads.SPEC)

    assert instance["spec"] == {"parallelism": 3}
    assert cluster.reads == [
        "Job",
        "Job",
    ]  # once for the metadata, before the watch existed, and once for the spec


@pytest.mark.parametrize(("reported", "version"), [("6", "7"), ("7", "7"), ("10", "10")])
async def test_of_the_state_that_was_read_and_the_one_that_the_watch_begins_with_the_newer_counts(
    cluster: OwnerServer, owners: OwnerCache, reported: str, version: str
) -> None:
    informer = cluster.informers[JOB] = Informer()
    informer.has_synced = False
    job = make_object("batch/v1", "Job", "j", resourceVersion="7")
    cluster.server.add(job)
    for _ in range(2):
        assert (await owners.metadata(reference(job), "team-a")).metadata.resource_version == "7"

    cluster.watched.add(make_object("batch/v1", "Job", "j", resourceVersion=reported))
    informer.has_synced = True
    assert (await owners.metadata(reference(job), "team-a")).metadata.resource_version == version
    assert cluster.reads == ["Job"]


async def test_an_owner_is_read_once_for_pods_that_come_at_the_same_time(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    job = make_object("batch/v1", "Job", "j", generation=1, spec={"parallelism": 3})
    await cluster.put(job)
    cluster.answer_delay = 1.0

    async def read() -> None:
        found = await owners.metadata(reference(job), "team-a")
        assert (await owners.instance(found, Reads.SPEC))["spec"] == {"parallelism": 3}

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(read)

    assert cluster.reads == ["Job", "Job"]


async def test_the_second_owner_of_a_kind_comes_from_the_watch(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    jobs = [make_object("batch/v1", "Job", name, generation=1) for name in ("a", "b")]
    for job in jobs:
        await cluster.put(job)

    for job in jobs:
        await owners.metadata(reference(job), "team-a")

    assert cluster.reads == ["Job"]


@pytest.mark.parametrize(
    ("api_version", "kind"), [("batch/v1", "Job"), ("scheduling.k8s.io/v1beta1", "PodGroup")]
)
async def test_an_edit_of_an_object_that_was_read_is_reported_and_its_deletion_known(
    api_version: str, kind: str, cluster: OwnerServer
) -> None:
    class Edits(Regrouping):
        edited: ClassVar[list[Key]] = []

        def owner_changed(self, key: Key, old: Any, new: Any) -> None:
            if old.metadata.generation != new.metadata.generation:
                self.edited.append(key)

    edits = Edits()
    owners = OwnerCache(DirectClient(cluster), cluster.watched, cluster, regrouping=edits)
    obj = make_object(api_version, kind, "o", generation=1)
    key = Key(obj.gvk, "team-a", "o")
    await cluster.put(obj)
    assert owners.exists(key)

    inputs = Inputs()
    with inputs.collecting():
        await owners.get(unstructured(obj.gvk), ("team-a", "o"))
    assert inputs.read == {key}
    before, after = (
        LazyObject(cluster.kind, make_object(api_version, kind, "o", generation=number).to_json())
        for number in (1, 2)
    )
    for handler in cluster.informers[obj.gvk].handlers:
        handler.on_update(before, after)

    assert edits.edited == [key]
    assert owners.exists(key)
    cluster.informers[obj.gvk].gone.add(("team-a", "o"))
    assert not owners.exists(key)
    cluster.informers[obj.gvk].problem = "denied"  # the watch may have missed that it was created again
    assert owners.exists(key)


async def test_an_edit_between_the_read_of_an_owner_and_the_begin_of_its_watch_is_noticed(
    cluster: OwnerServer,
) -> None:
    class Edits(Regrouping):
        edited: ClassVar[list[Key]] = []

        def note_change(self, key: Key) -> None:
            self.edited.append(key)

    owners = OwnerCache(DirectClient(cluster), cluster.watched, cluster, regrouping=Edits())
    job = make_object("batch/v1", "Job", "j", resourceVersion="5")
    await cluster.put(job, reported=False)
    await owners.metadata(reference(job), "team-a")
    (watch,) = cluster.informers[job.gvk].handlers

    for name, version in (("j", "5"), ("never-read", "7")):
        added = make_object("batch/v1", "Job", name, resourceVersion=version)
        watch.on_add(LazyObject(cluster.kind, added.to_json()), True)
    assert Edits.edited == []
    edited = make_object("batch/v1", "Job", "j", resourceVersion="6")
    watch.on_add(LazyObject(cluster.kind, edited.to_json()), True)
    assert Edits.edited == [Key(job.gvk, "team-a", "j")]


async def test_a_label_that_changes_is_seen_without_a_read_of_the_rest(
    cluster: OwnerServer, owners: OwnerCache
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
    cluster: OwnerServer, owners: OwnerCache, reads: Reads, generation: int, read_again: bool
) -> None:
    await cluster.put(make_object("batch/v1", "Job", "j", generation=1, resourceVersion="7"))
    job = make_object("batch/v1", "Job", "j", generation=generation, resourceVersion="8")
    await owners.instance(await owners.metadata(reference(job), "team-a"), reads)
    before = len(cluster.reads)

    await cluster.put(job)
    await owners.instance(await owners.metadata(reference(job), "team-a"), reads)

    assert (len(cluster.reads) > before) is read_again


async def test_an_owner_that_the_watch_has_not_told_of_yet_is_asked_for(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(first := make_object("batch/v1", "Job", "first"))
    await owners.metadata(reference(first), "team-a")
    await cluster.put(late := make_object("batch/v1", "Job", "late"), reported=False)

    assert (await owners.metadata(reference(late), "team-a")).name == "late"


async def test_another_object_of_the_name_is_found_before_the_watch_tells(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(old := make_object("batch/v1", "Job", "j", uid="old"))
    await owners.metadata(reference(old), "team-a")
    await cluster.put(new := make_object("batch/v1", "Job", "j", uid="new"), reported=False)

    assert (await owners.metadata(reference(new), "team-a")).metadata.uid == "new"


async def test_kinds_of_which_nothing_can_be_read_are_not_watched(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    with pytest.raises(NotFoundError):
        await owners.metadata(reference(make_object("made.up/v1", "Kind", "x")), "team-a")

    assert cluster.informers == {}


async def test_an_owner_of_a_kind_that_cannot_be_watched_is_believed_for_a_while(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    informer = cluster.informers[JOB] = Informer()
    informer.problem = "denied"

    for _ in range(10):
        await owners.metadata(reference(job), "team-a")
    assert len(cluster.reads) == 1
    cluster.now += READ_TTL
    await owners.metadata(reference(job), "team-a")
    assert len(cluster.reads) == 2


async def test_a_refusal_is_believed_for_a_while(cluster: OwnerServer, owners: OwnerCache) -> None:
    await cluster.put(job := make_object("batch/v1", "Job", "j"))
    cluster.denied = True
    for _ in range(10):
        with pytest.raises(ForbiddenError):
            await owners.metadata(reference(job), "team-a")
    assert len(cluster.reads) == 1

    cluster.denied = False
    cluster.now += READ_TTL
    assert (await owners.metadata(reference(job), "team-a")).name == "j"


async def test_a_pod_as_owner_costs_no_request(cluster: OwnerServer, owners: OwnerCache) -> None:
    pod = make_pod("driver", labels={"l": "1"})
    await cluster.put(pod)

    found = await owners.metadata(reference(pod), "team-a")
    instance = await owners.instance(found, Reads.OBJECT)

    assert (found.labels, instance["spec"]["schedulerName"]) == ({"l": "1"}, "kai-scheduler")
    assert await owners.is_current(found, "team-a")
    assert cluster.reads == []


async def test_groupers_get_an_owner_of_their_own_to_change(cluster: OwnerServer, owners: OwnerCache) -> None:
    await cluster.put(make_object("batch/v1", "Job", "j", labels={"l": "1"}))

    for _ in range(2):
        found = await owners.get(unstructured(JOB), ("team-a", "j"))
        assert found.labels == {"l": "1"}
        assert found.metadata.labels is not None
        found.metadata.labels["changed"] = "yes"


# Pods as owners.


async def test_a_pod_that_has_ended_is_read_once_for_all_that_it_owns(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    driver = make_pod("driver", labels={"l": "1"})
    await cluster.put(driver, reported=False)

    for _ in range(10):
        assert (await owners.metadata(reference(driver), "team-a")).labels == {"l": "1"}
    assert cluster.reads == ["Pod"]
    assert (await owners.get(unstructured(Pod.gvk), driver.key)).name == "driver"
    assert cluster.informers == {}


async def test_an_owner_is_current_until_its_watch_reports_another_state_or_its_deletion(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    job = make_object("batch/v1", "Job", "j", resourceVersion="7")
    await cluster.put(job)
    found = await owners.metadata(reference(job), "team-a")
    assert await owners.is_current(found, "team-a")

    await cluster.put(make_object("batch/v1", "Job", "j", resourceVersion="8"))
    assert not await owners.is_current(found, "team-a")

    found = await owners.metadata(reference(job), "team-a")
    assert await owners.is_current(found, "team-a")
    cluster.delete(job)
    assert not await owners.is_current(found, "team-a")


async def test_an_owner_whose_kind_is_not_watched_is_current_until_it_is_read_in_another_state(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    for version in ("7", "8"):
        widget = make_object("example.com/v1", "Widget", "w", resourceVersion=version)
        await cluster.put(widget)
        cluster.now += READ_TTL + 1
        found = await owners.metadata(reference(widget), "team-a")
        assert await owners.is_current(found, "team-a")
        if version == "7":
            first = found
    assert not await owners.is_current(first, "team-a")


async def test_an_owner_that_is_read_before_its_watch_has_begun_is_not_current(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    cluster.informers[JOB] = Informer()
    cluster.informers[JOB].has_synced = False
    job = make_object("batch/v1", "Job", "j")
    cluster.server.add(job)
    found = await owners.metadata(reference(job), "team-a")
    cluster.informers[
        JOB
    ].has_synced = True  # the Job was deleted before the first list, so no event reports it

    assert not await owners.is_current(found, "team-a")


async def test_an_owner_that_was_deleted_before_the_first_list_of_its_watch_is_forgotten(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    job = make_object("batch/v1", "Job", "j")
    await cluster.put(job, reported=False)
    await owners.metadata(reference(job), "team-a")

    await cluster.server.delete(job, propagation="Background")
    cluster.now += READ_TTL + 1

    with pytest.raises(NotFoundError):
        await owners.metadata(reference(job), "team-a")


# Changes during a read.


async def test_a_change_that_the_watch_reports_while_the_answer_travels_is_not_lost(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(first := make_object("batch/v1", "Job", "first", resourceVersion="1"))
    await owners.metadata(reference(first), "team-a")
    old = make_object("batch/v1", "Job", "j", resourceVersion="5", labels={"l": "old"})
    await cluster.put(old, reported=False)
    new = make_object("batch/v1", "Job", "j", resourceVersion="6", labels={"l": "new"})

    def change() -> None:
        cluster.watched.add(new)
        cluster.report(new)

    cluster.meanwhile.append(change)
    await owners.metadata(reference(old), "team-a")

    assert (await owners.metadata(reference(new), "team-a")).labels == {"l": "new"}


async def test_a_deletion_that_the_watch_reports_while_the_answer_travels_is_not_lost(
    cluster: OwnerServer, owners: OwnerCache
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


async def test_an_owner_that_was_read_before_its_watch_reported_it_is_forgotten_when_it_is_deleted(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(first := make_object("batch/v1", "Job", "first", resourceVersion="1"))
    await owners.metadata(reference(first), "team-a")
    job = make_object("batch/v1", "Job", "j", resourceVersion="5", generation=1)
    await cluster.put(job, reported=False)
    await owners.instance(await owners.metadata(reference(job), "team-a"), Reads.SPEC)

    cluster.watched.add(job)
    cluster.delete(job)

    with pytest.raises(NotFoundError):
        await owners.metadata(reference(job), "team-a")
    assert len(owners._contents) == 0


async def test_a_change_that_the_first_list_of_the_watch_reports_is_not_lost(
    cluster: OwnerServer, owners: OwnerCache
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
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    await cluster.put(make_object("batch/v1", "Job", "first", resourceVersion="1"))
    await owners.metadata(reference(make_object("batch/v1", "Job", "first")), "team-a")
    new = make_object("batch/v1", "Job", "j", uid="u", resourceVersion="6", generation=2, labels={"l": "new"})
    await cluster.put(new)
    cluster.server.table(type(new)).rows.pop(new.key)
    cluster.server.add(
        make_object("batch/v1", "Job", "j", uid="u", resourceVersion="5", generation=1, labels={"l": "old"})
    )

    found = await owners.metadata(
        OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="someone-else"), "team-a"
    )
    instance = await owners.instance(found, Reads.SPEC)

    assert found.labels == {"l": "new"}
    assert (instance.labels, instance.metadata.generation) == ({"l": "new"}, 2)
