# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""If an object beside the JobSet is deleted after an edit of the running TrainJob, it is reported and not recreated.

A new one would be built from the edited TrainJob, and would not fit the JobSet.
"""

from __future__ import annotations

from typing import Any

from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Client, interceptor
from controller_runtime.machinery import Object, metadata_only

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from testkit.trainjobs import GANG, KEY, MPI, ReconcilerWorld, built_world, running_world

MESSAGE = (
    "PodGroup ns/job is missing. The TrainJob or its runtime has changed since JobSet ns/job started, "
    "so a new one would not fit it: suspend the TrainJob and resume it"
)


async def running() -> ReconcilerWorld:
    """Return a world whose TrainJob was edited while its JobSet runs."""
    w = await built_world(GANG)
    await w.edit_nodes(4)
    await w.reconcile()
    return w


def events(w: ReconcilerWorld) -> list[str]:
    return [each for each in w.recorder.events if "ChildNotRecreated" in each]


async def test_it_is_reported_once_and_comes_back_when_the_train_job_is_resumed() -> None:
    w = await running()
    assert events(w) == []
    await w.server.delete(await w.server.get(PodGroup, KEY))
    for _ in range(3):
        assert await w.reconcile() == []
    assert events(w) == [f"Warning ChildNotRecreated: {MESSAGE}"]
    await w.suspend(True)
    await w.reconcile()
    await w.server.observe(suspended=1)
    await w.reconcile()
    await w.rebuilt()
    await w.suspend(False)
    await w.reconcile()
    assert (await w.server.get(PodGroup, KEY)).spec.min_member == 4


async def test_it_is_reported_again_when_another_one_was_deleted() -> None:
    w = await running()
    first = await w.server.get(PodGroup, KEY)
    await w.server.delete(first)
    await w.reconcile()
    first.metadata.resource_version = first.metadata.uid = None
    await w.server.create(first)
    await w.reconcile()
    await w.server.delete(await w.server.get(PodGroup, KEY))
    await w.reconcile()
    assert len(events(w)) == 2


async def test_an_ended_job_set_needs_none() -> None:
    w = await running()
    await w.server.delete(await w.server.get(PodGroup, KEY))
    await w.finish("Completed")
    await w.restart()
    assert await w.reconcile() == []
    assert events(w) == []


async def test_a_job_set_that_is_deleted_while_its_siblings_are_compared_causes_no_warning() -> None:
    w = await built_world(GANG)
    await w.server.delete(await w.server.get(PodGroup, KEY))

    async def get(inner: Client, kind: Any, key: Any) -> Any:
        if kind is PodGroup and await inner.list(JobSet):
            await inner.delete(await inner.get(JobSet, KEY))
        return await inner.get(kind, key)

    await w.restart(interceptor.Funcs(get=get))
    assert await w.reconcile() == ["delete JobSet"]
    assert w.result.requeue_after
    assert w.recorder.events == []


async def test_missing_config_maps_and_secrets_are_looked_for_by_their_metadata() -> None:
    """Reading one with its content would make the cache keep the content of all of them."""
    w = await running_world(MPI)
    await w.edit_nodes(6)
    read: list[type[Object]] = []
    get = w.server.get

    async def seen(kind: Any, key: Any) -> Any:
        read.append(kind)
        return await get(kind, key)

    w.server.get = seen  # type: ignore[method-assign] # records the reads
    await w.reconcile()
    assert metadata_only(ConfigMap) in read
    assert not {ConfigMap, Secret} & {*read}
