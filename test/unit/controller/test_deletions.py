# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.meta import format_time, parse_time
from controller_runtime.reconcile import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from pkg.controller.reports import LONG
from testkit.trainjobs import MPI, START, train_job, world

BEGAN = "2025-01-01T00:00:00Z"
KEY = Request("ns", "job")
SUPPORTED = "ClusterTrainingRuntime.trainer.kubeflow.org"
MakeJob = Callable[..., TrainJob]


def warnings(recorder: Any) -> list[str]:
    return [
        message
        for kind, reason, message in recorder.events
        if reason == "WaitingForDeletion" and kind == "Warning"
    ]


async def delete_held(client: FakeClient) -> None:
    """Delete the JobSet, which a finalizer keeps."""
    job_set = await client.get(JobSet, KEY)
    job_set.metadata.finalizers = ["example.com/hold"]
    await client.update(job_set)
    await client.delete(job_set, propagation="Background")


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_job_set_that_finalizers_keep_for_long_is_reported_once(
    make_runtime: Callable[..., Any], recorder: Any, new_train_job: MakeJob, suspend: bool
) -> None:
    client = FakeClient(new_train_job(suspend=suspend))
    now = parse_time(BEGAN)
    runtime = make_runtime(client=client)
    reconciler = TrainJobReconciler(client, recorder, {SUPPORTED: runtime}, now=lambda: now)
    await reconciler.reconcile(KEY)
    await delete_held(client)
    began = parse_time((await client.get(JobSet, KEY)).metadata.deletion_timestamp or "")

    for after in (LONG / 2, LONG, LONG * 2):
        now = began + after
        assert (await reconciler.reconcile(KEY)).requeue_after == timedelta(seconds=10)

    assert warnings(recorder) == [
        "Waiting for the deletion of JobSet ns/job; its finalizers: example.com/hold"
    ]


async def test_a_sibling_that_finalizers_keep_from_a_job_set_that_is_to_start_is_reported(
    make_runtime: Callable[..., Any], recorder: Any, new_train_job: MakeJob
) -> None:
    client = FakeClient(new_train_job(suspend=True))
    now = parse_time(BEGAN)
    runtime = make_runtime(client=client)
    job_set_alone = runtime.new_objects

    async def with_sibling(train_job: TrainJob) -> list[Object]:
        (job_set,) = await job_set_alone(train_job)
        owners = job_set.to_dict()["metadata"]["ownerReferences"]
        metadata = {"namespace": "ns", "name": "job-hosts", "ownerReferences": owners}
        return [job_set, ConfigMap.from_dict({"metadata": metadata, "data": {"a": "b"}})]

    runtime.new_objects = with_sibling
    sibling = ConfigMap.from_dict({"metadata": {"namespace": "ns", "name": "job-hosts"}})
    reconciler = TrainJobReconciler(client, recorder, {SUPPORTED: runtime}, now=lambda: now)
    await reconciler.reconcile(KEY)
    held = await client.get(ConfigMap, sibling.key)
    held.metadata.finalizers = ["example.com/hold"]
    await client.update(held)
    await client.delete(held)
    began = parse_time((await client.get(ConfigMap, sibling.key)).metadata.deletion_timestamp or "")
    job = await client.get(TrainJob, KEY)
    job.spec.suspend = False
    await client.update(job)

    now = began + LONG
    await reconciler.reconcile(KEY)

    assert warnings(recorder) == [
        "Waiting for the deletion of ConfigMap ns/job-hosts; its finalizers: example.com/hold"
    ]
    assert (await client.get(JobSet, KEY)).spec.suspend


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("suspend", [False, True])
async def test_a_job_set_of_an_earlier_train_job_that_stays_for_long_is_reported_once(
    make_runtime: Callable[..., Any], recorder: Any, new_train_job: MakeJob, suspend: bool, deleted: bool
) -> None:
    client = FakeClient(new_train_job(suspend=suspend))
    now = parse_time(BEGAN)
    runtime = make_runtime(client=client)
    reconciler = TrainJobReconciler(client, recorder, {SUPPORTED: runtime}, now=lambda: now)
    await reconciler.reconcile(KEY)
    await client.delete(await client.get(TrainJob, KEY))
    if deleted:
        await delete_held(client)
    successor = new_train_job(suspend=suspend)
    successor.metadata.uid = "uid-of-the-next"
    successor.metadata.creation_timestamp = (
        await client.get(JobSet, KEY)
    ).metadata.deletion_timestamp or BEGAN
    client.add(successor)
    began = parse_time(successor.metadata.creation_timestamp)

    for after, expected in ((LONG / 2, 0), (LONG, 1), (LONG * 2, 1)):
        now = began + after
        assert (await reconciler.reconcile(KEY)).requeue_after == timedelta(seconds=1)
        assert len(warnings(recorder)) == expected

    ending = (
        "; its finalizers: example.com/hold"
        if deleted
        else " of an earlier TrainJob of this name: the garbage collector has not deleted it"
    )
    assert warnings(recorder) == [f"Waiting for the deletion of JobSet ns/job{ending}"]


async def test_a_secret_of_an_earlier_train_job_that_stays_for_long_is_reported() -> None:
    w = await world(MPI)
    await w.reconcile()
    first = await w.server.get(TrainJob, KEY)
    await w.server.delete(await w.server.get(JobSet, KEY))
    await w.server.delete(first)
    successor = train_job()
    successor.metadata.uid, successor.metadata.creation_timestamp = "uid-next", format_time(START)
    w.server.add(successor)
    for after, expected in ((LONG / 2, 0), (LONG, 1), (LONG * 2, 1)):
        w.now = START + after
        assert await w.reconcile() == []
        assert (
            sum(
                "Waiting for the deletion of Secret ns/job-mpi-ssh-auth" in each for each in w.recorder.events
            )
            == expected
        )
