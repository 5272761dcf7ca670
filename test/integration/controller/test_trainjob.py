# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime import metrics
from controller_runtime.apis.core.v1 import Event
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import LiveClient
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from testkit.builders import make_ended_status, written_train_job

pytestmark = pytest.mark.integration

FINALIZER = "trainer.kubeflow.org/resource-in-use"
RunManager = Callable[..., Any]


async def finish(client: LiveClient, key: tuple[str, str], condition: str) -> None:
    """Write the status that the JobSet controller writes at the end."""
    job_set = await client.get(JobSet, key)
    jobs = {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    job_set.status = make_ended_status(condition, replicatedJobsStatus=[jobs])
    await client.status.update(job_set)


def conditions(job: TrainJob) -> dict[str, str]:
    return {each.type: each.status for each in job.status.conditions or ()}


async def test_a_train_job_becomes_a_job_set_and_takes_its_verdict(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")
    async with run_manager():
        job = await live_client.create(
            written_train_job(namespace, torch_runtime, kind=None, trainer={"numNodes": 3})
        )
        job_set = await eventually(lambda: live_client.get(JobSet, key), reason="the JobSet is made")
        (owner,) = job_set.metadata.owner_references or [OwnerReference()]
        assert (owner.kind, owner.uid, owner.controller) == ("TrainJob", job.metadata.uid, True)
        writers = {(each.manager, each.operation) for each in job_set.metadata.managed_fields or ()}
        assert writers == {("trainer", "Apply")}
        node = job_set.to_dict()["spec"]["replicatedJobs"][0]["template"]["spec"]
        assert (node["parallelism"], node["completions"]) == (3, 3)
        assert conditions(await live_client.get(TrainJob, key)) == {}

        async def guarded() -> bool:
            runtime = await live_client.get(ClusterTrainingRuntime, ("", torch_runtime))
            return runtime.metadata.finalizers == [FINALIZER]

        await eventually(guarded, reason="the runtime in use is guarded")
        await finish(live_client, key, "Completed")

        async def complete() -> bool:
            found = await live_client.get(TrainJob, key)
            return conditions(found) == {"Complete": "True"} and bool(found.status.jobs_status)

        await eventually(complete, reason="the TrainJob is Complete")
        # Delete the JobSet, as its TTL would.
        await live_client.delete(await live_client.get(JobSet, key))

        async def stays_gone() -> bool:
            with pytest.raises(NotFoundError):
                await live_client.get(JobSet, key)
            return True

        await consistently(stays_gone, reason="a finished job's JobSet is not rebuilt")


async def test_a_missing_runtime_is_told_as_an_event_and_found_when_it_comes(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    key = (namespace, "job")
    job = written_train_job(namespace, "later", kind=None)
    job.spec.runtime_ref.kind = "TrainingRuntime"
    async with run_manager():
        await live_client.create(job)

        async def reported() -> Event | None:
            events = await live_client.list(Event, namespace=namespace)
            return next((each for each in events if each.reason == "TrainJobResourcesCreationFailed"), None)

        event = await eventually(reported, reason="the failure is reported")
        assert event.type == "Warning"
        assert (event.message or "").startswith(
            "TrainJob resources reconciliation failed: TrainingRuntime specified in TrainJob is not found: "
        )
        assert event.source is not None
        assert event.source.component == "trainer-trainjob-controller"
        assert event.first_timestamp
        # After eleven failures, the next retry is more than ten seconds away.
        request = {"controller": "trainjob_controller"}
        failed = "controller_runtime_reconcile_errors_total"

        def tries() -> float:
            return metrics.REGISTRY.get_sample_value(failed, request) or 0.0

        before = tries()
        await eventually(lambda: tries() - before >= 11, timeout=60, reason="the back-off has grown")
        template = {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "spec": {
                                "template": {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}
                            }
                        },
                    }
                ]
            }
        }
        await live_client.create(
            TrainingRuntime.from_dict(
                {"metadata": {"name": "later", "namespace": namespace}, "spec": {"template": template}}
            )
        )
        await eventually(
            lambda: live_client.get(JobSet, key), timeout=9, reason="the runtime wakes its TrainJob"
        )


@pytest.mark.parametrize("kind", [ClusterTrainingRuntime, TrainingRuntime])
async def test_a_runtime_in_use_outlives_its_deletion_until_the_last_job_goes(
    run_manager: RunManager,
    live_client: LiveClient,
    namespace: str,
    torch_runtime: str,
    kind: type[ClusterTrainingRuntime] | type[TrainingRuntime],
) -> None:
    key = ("", torch_runtime)
    if kind is TrainingRuntime:
        key = (namespace, torch_runtime)
        shared = await live_client.get(ClusterTrainingRuntime, ("", torch_runtime))
        metadata = {"name": torch_runtime, "namespace": namespace}
        await live_client.create(
            TrainingRuntime.from_dict({"metadata": metadata, "spec": shared.spec.to_dict()})
        )
    async with run_manager("--controllers=trainingruntime,clustertrainingruntime"):
        jobs = []
        for name in ("one", "two"):
            job = written_train_job(namespace, torch_runtime, kind=None, name=name)
            job.spec.runtime_ref.kind = kind.gvk.kind
            jobs.append(await live_client.create(job))

        async def guarded() -> bool:
            return (await live_client.get(kind, key)).metadata.finalizers == [FINALIZER]

        await eventually(guarded, reason="the runtime is guarded")
        await live_client.delete(await live_client.get(kind, key))
        await consistently(guarded, duration=0.5, reason="the deleted runtime stays")
        await live_client.delete(jobs[0])
        await consistently(guarded, duration=0.5, reason="it stays for the other job")
        await live_client.delete(jobs[1])

        async def gone() -> bool:
            try:
                await live_client.get(kind, key)
            except NotFoundError:
                return True
            return False

        await eventually(gone, reason="the runtime goes with its last job")


async def test_a_status_goes_when_the_job_set_it_came_from_is_built_anew(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")

    async def counts() -> list[Any]:
        return (await live_client.get(TrainJob, key)).status.jobs_status or []

    async with run_manager():
        await live_client.create(written_train_job(namespace, torch_runtime, kind=None))
        job_set = await eventually(lambda: live_client.get(JobSet, key), reason="the JobSet is made")
        job_set.status = job_set.status.from_dict(
            {
                "replicatedJobsStatus": [
                    {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
                ]
            }
        )
        await live_client.status.update(job_set)
        await eventually(counts, reason="the TrainJob counts its jobs")
        await live_client.delete(job_set)

        async def gone() -> bool:
            return "status" not in (await live_client.get(TrainJob, key)).to_dict()

        await eventually(gone, reason="the counts are removed with the JobSet")
