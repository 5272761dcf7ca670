# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import LiveClient
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit.builders import make_ended_status, written_train_job
from testkit.clusters import job_set_at

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
        job_set = await job_set_at(live_client, key)
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
