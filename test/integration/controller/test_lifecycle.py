# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Edits, other writers and deletions around a TrainJob, on a real API server without JobSet's controller."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from controller_runtime import metrics
from controller_runtime.apis.core.v1 import ConfigMap, Event, Namespace
from controller_runtime.client import JSON, MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery.errors import InvalidError
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import applier as writes
from pkg.controller.applier import PendingError
from testkit.builders import written_runtime, written_train_job

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]
TOUCHES_PER_SECOND = 20
CHANGES = 30


async def built(client: LiveClient, job: TrainJob) -> tuple[TrainJob, JobSet]:
    """Create a TrainJob, and return it with its JobSet."""
    made = await client.create(job)
    return made, await eventually(lambda: client.get(JobSet, made.key), reason="the JobSet is made")


async def edit(client: LiveClient, job: TrainJob, **spec: Any) -> None:
    await client.patch(job, raw_patch(MERGE, json.dumps({"spec": spec}).encode()))


def image(job_set: JobSet) -> str | None:
    (job,) = job_set.spec.replicated_jobs or []
    (container,) = job.template.spec.template.spec.containers or []
    return container.image


def jobs_status(ready: int) -> dict[str, Any]:
    counts = {"name": "node", "ready": ready, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    return {"status": {"restarts": 0, "replicatedJobsStatus": [counts]}}


def refused() -> float:
    """Return how many requests of this process conflicted."""
    return sum(
        sample.value
        for metric in metrics.REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "rest_client_requests_total" and sample.labels.get("code") in ("409", "422")
    )


async def test_the_job_set_follows_its_train_job_only_while_it_is_suspended(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")
    async with run_manager():
        wanted = {"image": "a", "numNodes": 2}
        job, _ = await built(
            live_client, written_train_job(namespace, torch_runtime, kind=None, suspend=True, trainer=wanted)
        )
        await edit(live_client, job, trainer={"image": "b"})

        async def follows() -> bool:
            return image(await live_client.get(JobSet, key)) == "b"

        await eventually(follows, reason="a suspended JobSet follows")
        await edit(live_client, job, suspend=False)

        async def resumed() -> bool:
            return (await live_client.get(JobSet, key)).spec.suspend is False

        await eventually(resumed, reason="the JobSet runs")
        await edit(live_client, job, trainer={"image": "a"})
        await consistently(follows, reason="a running JobSet stays as it is")


async def test_another_order_of_variables_takes_effect(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]

    async def order() -> list[str]:
        (job,) = (await live_client.get(JobSet, key)).spec.replicated_jobs or []
        (container,) = job.template.spec.template.spec.containers or []
        return [each.name for each in container.env or () if each.name in ("A", "B")]

    async with run_manager():
        job, _ = await built(
            live_client,
            written_train_job(namespace, torch_runtime, kind=None, suspend=True, trainer={"env": env}),
        )
        assert await order() == ["A", "B"]
        await edit(live_client, job, trainer={"env": env[::-1]})

        async def reversed_() -> bool:
            return await order() == ["B", "A"]

        await eventually(reversed_, reason="the order follows")


async def test_a_job_set_of_another_client_gives_no_verdict_and_its_host_file_is_not_used(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    await live_client.create(written_runtime(namespace, "mpi", mlPolicy={"mpi": {}}))
    planted = [
        JobSet.from_dict({"metadata": {"name": "job", "namespace": namespace}, "spec": {"suspend": False}}),
        ConfigMap.from_dict({"metadata": {"name": "mpi-mpi-hostfile", "namespace": namespace}, "data": {}}),
    ]
    before = [await live_client.create(obj) for obj in planted]
    async with run_manager():
        await live_client.create(written_train_job(namespace, torch_runtime, kind=None, suspend=True))
        job = written_train_job(namespace, "mpi", kind=None)
        job.metadata.name = "mpi"
        job.spec.runtime_ref.kind = "TrainingRuntime"
        await live_client.create(job)

        async def reported() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            conflicts = [each for each in events if "exists and has no controller" in (each.message or "")]
            return {each.involved_object.name for each in conflicts if each.involved_object} == {
                "job",
                "mpi",
            }

        await eventually(reported, timeout=20, reason="each conflict is an event")
        after = [await live_client.get(type(obj), obj.key) for obj in before]
        assert [obj.to_dict() for obj in after] == [obj.to_dict() for obj in before]
        assert [each.name for each in await live_client.list(JobSet, namespace=namespace)] == ["job"]


async def test_another_writer_of_the_train_job_causes_no_conflict(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")
    sent: list[Request] = []
    async with run_manager(sent=sent):
        job, job_set = await built(live_client, written_train_job(namespace, torch_runtime, kind=None))

        async def touch() -> None:
            for number in range(1_000_000):
                body = b'{"metadata":{"annotations":{"touched":"%d"}}}' % number
                await live_client.patch(job, raw_patch(MERGE, body))
                await anyio.sleep(1 / TOUCHES_PER_SECOND)

        sent.clear()
        conflicts = refused()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(touch)
            for number in range(1, CHANGES + 1):
                body = json.dumps(jobs_status(number)).encode()
                await live_client.status.patch(job_set, raw_patch(MERGE, body))

                async def shown(number: int = number) -> bool:
                    counts = (await live_client.get(TrainJob, key)).status.jobs_status or ()
                    return [each.ready for each in counts] == [number]

                await eventually(shown, interval=0.01, reason="the TrainJob's status follows")
            tasks.cancel_scope.cancel()
        here = [each for each in sent if f"/{namespace}/" in each.path and each.method != "GET"]
        writes = [each for each in here if "/events" not in each.path]
    assert refused() == conflicts
    assert {each.path.rpartition("/")[2] for each in writes} == {"status"}
    assert len(writes) <= CHANGES * 1.1


async def test_a_condition_of_another_writer_outlives_ours(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")
    async with run_manager():
        job, _ = await built(live_client, written_train_job(namespace, torch_runtime, kind=None))
        when = "2025-01-01T00:00:00Z"
        theirs = {
            "type": "Theirs",
            "status": "True",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": when,
        }
        body = json.dumps({"status": {"conditions": [theirs]}}).encode()
        await live_client.status.patch(job, raw_patch(MERGE, body))
        await edit(live_client, job, suspend=True)

        async def both() -> bool:
            found = await live_client.get(TrainJob, key)
            return {each.type for each in found.status.conditions or ()} == {"Theirs", "Suspended"}

        await eventually(both, reason="both conditions are there")


async def test_a_namespace_that_is_terminating_is_asked_once(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    sent: list[Request] = []
    async with run_manager(sent=sent):
        job, job_set = await built(live_client, written_train_job(namespace, torch_runtime, kind=None))
        await live_client.delete(await live_client.get(Namespace, ("", namespace)))
        sent.clear()
        await live_client.delete(job_set)

        def asked() -> list[str]:
            here = [each for each in sent if f"/{namespace}/" in each.path and each.method != "GET"]
            return [each.path for each in here if not each.path.endswith("/status")]

        await eventually(lambda: bool(asked()), reason="the JobSet is requested again")
        for number in range(10):
            body = b'{"metadata":{"annotations":{"touched":"%d"}}}' % number
            await live_client.patch(job, raw_patch(MERGE, body))
            await anyio.sleep(0.1)
        assert [path.rpartition("/")[2] for path in asked()] == ["job"]


async def test_a_patch_whose_tests_fail_waits_and_an_invalid_one_is_an_error(
    live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    """If a test fails, the server only reports that the request is invalid."""
    stored = await live_client.create(written_train_job(namespace, torch_runtime, kind=None, suspend=True))
    seen = stored.deep_copy()
    seen.metadata.annotations = {"a": "1"}
    with pytest.raises(InvalidError) as stale:
        await live_client.patch(stored, writes.remove_annotation(seen, "a"))
    with pytest.raises(PendingError, match="meanwhile"):
        writes.raise_if_stale(stale.value, "it changed meanwhile")
    body = json.dumps([{"op": "replace", "path": "/spec/runtimeRef/name", "value": "other"}]).encode()
    with pytest.raises(InvalidError, match="field is immutable") as invalid:
        await live_client.patch(stored, raw_patch(JSON, body))
    writes.raise_if_stale(invalid.value, "it changed meanwhile")
