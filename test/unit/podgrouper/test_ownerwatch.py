# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime import cache
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import GVK, Unstructured
from controller_runtime.machinery.errors import NotFoundError

from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.plugins import Reads
from testkit.owner_world import Cluster, Informer, reference

JOB = GVK("batch", "v1", "Job")
MakeObject = Callable[..., Unstructured]


# Changes during a read.


async def test_a_change_that_the_watch_reports_while_the_answer_travels_is_not_lost(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
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


async def test_an_owner_that_was_read_before_its_watch_reported_it_is_forgotten_when_it_is_deleted(
    cluster: Cluster, owners: OwnerCache, make_object: MakeObject
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
