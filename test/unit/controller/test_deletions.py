# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import Client, interceptor
from controller_runtime.machinery import Object, metadata_only
from controller_runtime.machinery.meta import format_time, parse_time

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.reports import LONG
from testkit.trainjobs import KEY, MPI, START, ReconcilerWorld, built_world, train_job


def warnings(w: ReconcilerWorld) -> list[str]:
    start = "Warning WaitingForDeletion: Waiting for the deletion of "
    return [each.removeprefix(start) for each in w.recorder.events if each.startswith(start)]


async def delete_held(w: ReconcilerWorld, child: Object) -> None:
    """Delete a child, which a finalizer keeps."""
    child.metadata.finalizers = ["example.com/hold"]
    await w.server.delete(await w.server.update(child), propagation="Background")


async def replace_train_job(w: ReconcilerWorld, *, suspend: bool = False) -> None:
    """Delete the TrainJob and create another one of the same name."""
    await w.server.delete(await w.server.get(TrainJob, KEY))
    metadata = {"uid": "uid-of-the-next", "creationTimestamp": format_time(w.now)}
    w.server.add(train_job(metadata=metadata, suspend=suspend))


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_job_set_that_finalizers_keep_for_long_is_reported_once(suspend: bool) -> None:
    w = await built_world(suspend=suspend)
    await delete_held(w, await w.server.get(JobSet, KEY))
    for after in (LONG / 2, LONG, LONG * 2):
        w.now = START + after
        await w.reconcile()
        assert w.result.requeue_after == timedelta(seconds=10)
    assert warnings(w) == ["JobSet ns/job; its finalizers: example.com/hold"]


async def test_a_sibling_that_finalizers_keep_from_a_job_set_that_is_to_start_is_reported() -> None:
    w = await built_world(MPI, suspend=True)
    sibling = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    await delete_held(w, sibling)
    deleted = (await w.server.get(ConfigMap, sibling.key)).metadata.deletion_timestamp
    await w.suspend(False)
    w.now = parse_time(deleted or "") + LONG
    await w.reconcile()
    assert warnings(w) == ["ConfigMap ns/job-mpi-hostfile; its finalizers: example.com/hold"]
    assert (await w.job_set())["spec"]["suspend"]


async def test_a_sibling_whose_deletion_ends_during_the_reconcile_causes_no_warning() -> None:
    w = await built_world(MPI, suspend=True)
    name, read = ("ns", "job-mpi-hostfile"), 0
    await delete_held(w, await w.server.get(ConfigMap, name))
    await w.suspend(False)

    async def get(inner: Client, kind: Any, key: Any) -> Any:
        nonlocal read
        read += kind is metadata_only(ConfigMap)
        if read == 2:
            held = await inner.get(ConfigMap, name)
            held.metadata.finalizers = None
            await inner.update(held)
        return await inner.get(kind, key)

    await w.restart(interceptor.Funcs(get=get))
    assert await w.reconcile() == ["update ConfigMap"]
    assert w.result.requeue_after
    assert w.recorder.events == []


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("suspend", [False, True])
async def test_a_job_set_of_an_earlier_train_job_that_stays_for_long_is_reported_once(
    suspend: bool, deleted: bool
) -> None:
    w = await built_world(suspend=suspend)
    if deleted:
        await delete_held(w, await w.server.get(JobSet, KEY))
    await replace_train_job(w, suspend=suspend)
    for after, expected in ((LONG / 2, 0), (LONG, 1), (LONG * 2, 1)):
        w.now = START + after
        await w.reconcile()
        assert w.result.requeue_after == timedelta(seconds=1)
        assert len(warnings(w)) == expected
    unowned = " of an earlier TrainJob of this name: the garbage collector has not deleted it"
    assert warnings(w) == [f"JobSet ns/job{'; its finalizers: example.com/hold' if deleted else unowned}"]


async def test_a_secret_of_an_earlier_train_job_that_stays_for_long_is_reported() -> None:
    w = await built_world(MPI)
    await w.server.delete(await w.server.get(JobSet, KEY))
    await replace_train_job(w)
    for after, expected in ((LONG / 2, 0), (LONG, 1), (LONG * 2, 1)):
        w.now = START + after
        assert await w.reconcile() == []
        assert sum("Secret ns/job-mpi-ssh-auth" in each for each in warnings(w)) == expected
