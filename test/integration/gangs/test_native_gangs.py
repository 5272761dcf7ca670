# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs on a real API server: the requests for them, and a JobSet CRD that drops the pods' field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from controller_runtime import cache, metrics
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request
from trainerctl.localcluster.tools import DEFAULT_JOBSET

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]


async def create(client: LiveClient, namespace: str, **spec: Any) -> TrainJob:
    """Create a runtime with a gang, and a TrainJob of it."""
    await client.create(
        written_runtime(namespace, "gang", mlPolicy={"numNodes": 2}, podGroupPolicy={"workload": {}})
    )
    return await client.create(written_train_job(namespace, "gang", name="gang", **spec))


async def collect(client: LiveClient, gang: Object) -> None:
    """Remove the finalizers of a gang that is being deleted, as kube-controller-manager does if no pod uses it."""
    try:
        found = await client.get(type(gang), gang.key)
        if found.metadata.deletion_timestamp and found.metadata.finalizers:
            await client.patch(found, raw_patch(MERGE, b'{"metadata":{"finalizers":null}}'))
    except NotFoundError:
        return


async def unavailable(client: LiveClient, train_job: TrainJob) -> str | None:
    conditions = (await client.get(TrainJob, train_job.key)).status.conditions or []
    found = [each.reason for each in conditions if each.type == "GangSchedulingUnavailable"]
    return found[0] if found else None


async def test_a_job_set_crd_that_drops_the_field_is_reported_and_nothing_starts_until_it_is_replaced(
    run_manager: RunManager, live_client: LiveClient, namespace: str, release: Any, install_job_set: Any
) -> None:
    await install_job_set("0.10")
    async with run_manager():
        made = await create(live_client, namespace)

        async def reported() -> bool:
            return await unavailable(live_client, made) == "GangFieldDropped"

        await eventually(reported, timeout=60, reason="the condition says so")
        (field,) = release.member

        async def named() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            return any(f"drops the field {field}" in (each.message or "") for each in events)

        await eventually(named, timeout=30, reason="an event names the field")

        async def nothing() -> bool:
            for kind in (JobSet, release.kind):
                assert not await live_client.list(kind, namespace=namespace)
            return True

        await consistently(nothing, duration=3, reason="neither gang nor JobSet exists")
        await install_job_set(release.jobset)
        try:
            await job_set_at(live_client, made.key, timeout=120)
            job_set = (await live_client.get(JobSet, made.key)).to_dict()
            pod = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            assert pod | release.member == pod
            assert "'minCount': 2" in str((await live_client.get(release.kind, made.key)).to_dict())

            async def cleared() -> bool:
                return await unavailable(live_client, made) is None

            await eventually(cleared, timeout=60, reason="the condition is gone")
        finally:
            await install_job_set(DEFAULT_JOBSET)


@pytest.mark.usefixtures("with_field")
async def test_a_gang_is_created_with_two_requests_and_settles_without_any(
    run_manager: RunManager, live_client: LiveClient, namespace: str, release: Any, figure: Any
) -> None:
    sent: list[Request] = []

    def looked_at() -> float:
        labels = {"controller": "trainjob_controller", "result": "success"}
        return metrics.REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0

    async with run_manager(sent=sent, cache=cache.Options(resync_period=0.3)):
        first = await create(live_client, namespace)  # reads the schemas and starts the watches
        await job_set_at(live_client, first.key)
        await anyio.sleep(1)
        sent.clear()
        before = looked_at()
        second = await live_client.create(written_train_job(namespace, "gang", name="second"))
        await job_set_at(live_client, second.key)
        await eventually(lambda: looked_at() - before >= 10, timeout=60, reason="ten resyncs were reconciled")
    here = [each for each in sent if f"/{namespace}/" in each.path and each.method != "GET"]
    writes = [f"{each.method} {each.path.rpartition('/')[0].rpartition('/')[2]}" for each in here]
    assert sorted(writes) == sorted(["PATCH jobsets", f"PATCH {release.kind.resource.plural}"])
    figure("requests to create a TrainJob with a gang", len(writes), at_most=2, unit="requests")


@pytest.mark.usefixtures("with_field")
async def test_a_gang_that_was_deleted_is_back(
    run_manager: RunManager, live_client: LiveClient, namespace: str, release: Any
) -> None:
    async with run_manager():
        made = await create(live_client, namespace)
        gang = await eventually(
            lambda: live_client.get(release.kind, made.key), timeout=60, reason="the gang is made"
        )
        await job_set_at(live_client, made.key)
        await live_client.delete(gang)
        await collect(live_client, gang)

        async def another() -> bool:
            return bool((await live_client.get(release.kind, made.key)).metadata.uid != gang.metadata.uid)

        await eventually(another, timeout=60, reason="the gang is made again")
