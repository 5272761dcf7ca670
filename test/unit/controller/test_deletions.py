# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.machinery.time import parse_time
from controller_runtime.client import FakeClient
from controller_runtime.reconcile import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from pkg.controller.deletions import LONG

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


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_job_set_that_finalizers_keep_for_long_is_reported_once(
    make_runtime: Callable[..., Any], recorder: Any, new_train_job: MakeJob, suspend: bool
) -> None:
    client = FakeClient(new_train_job(suspend=suspend))
    now = parse_time(BEGAN)
    runtime = make_runtime(client=client)
    reconciler = TrainJobReconciler(client, recorder, {SUPPORTED: runtime}, now=lambda: now)
    await reconciler.reconcile(KEY)
    job_set = await client.get(JobSet, KEY)
    job_set.metadata.finalizers = ["example.com/hold"]
    await client.update(job_set)
    await client.delete(job_set, propagation="Background")
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
