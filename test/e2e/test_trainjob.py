# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs on the whole local cluster: JobSet's own controller and webhooks, Jobs, pods, simulated nodes."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob

pytestmark = pytest.mark.e2e

OF_JOB = "jobset.sigs.k8s.io/jobset-name"
Conditions = dict[str, tuple[str, str]]


def conditions(job: TrainJob) -> Conditions:
    return {each.type: (each.status, each.reason) for each in job.status.conditions or ()}


@pytest.fixture
def verdict(cluster_client: LiveClient, cluster_namespace: str) -> Callable[..., Any]:
    """Return a function that waits until a TrainJob has a condition, and returns the TrainJob."""

    async def wait(
        condition: str, *, status: str = "True", name: str = "job", timeout: float = 60
    ) -> TrainJob:
        async def reached() -> TrainJob | None:
            job = await cluster_client.get(TrainJob, (cluster_namespace, name))
            return job if conditions(job).get(condition, ("", ""))[0] == status else None

        return await eventually(reached, timeout=timeout, reason=f"{name} is {condition}={status}")

    return wait


def train_job(
    namespace: str, *, name: str = "job", runtime: dict[str, str] | None = None, **spec: Any
) -> TrainJob:
    ref = runtime or {"name": "torch-distributed"}
    return TrainJob.from_dict(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"runtimeRef": ref, **spec}}
    )


async def suspend(client: LiveClient, job: TrainJob, *, wanted: bool) -> None:
    """Set ``spec.suspend`` by a patch, as kubectl does, so that other writes of the manager cause no conflict."""
    await client.patch(job, raw_patch(MERGE, b'{"spec":{"suspend":%s}}' % (b"true" if wanted else b"false")))


def simulated(*steps: str, **annotations: str) -> list[dict[str, Any]]:
    """Return overrides that instruct the simulated nodes about the pods of some steps, by default the trainer's."""
    marked = {f"sim.local/{key.replace('_', '-')}": value for key, value in annotations.items()}
    target = [{"name": step} for step in steps or ("node",)]
    return [{"targetJobs": target, "metadata": {"annotations": marked}}]


async def test_a_train_job_of_three_nodes_completes(
    cluster_client: LiveClient, cluster_namespace: str, verdict: Callable[..., Any]
) -> None:
    await cluster_client.create(train_job(cluster_namespace, trainer={"numNodes": 3}))
    done = await verdict("Complete")
    (jobs,) = done.status.jobs_status
    assert (jobs.name, jobs.succeeded, jobs.failed) == ("node", 1, 0)
    pods = await cluster_client.list(Pod, namespace=cluster_namespace, labels={OF_JOB: "job"})
    assert len(pods) == 3
    ranks = {env["name"]: env.get("value") for env in pods[0].to_dict()["spec"]["containers"][0]["env"]}
    assert ranks["PET_NNODES"] == "3"


async def test_a_train_job_whose_pods_fail_is_failed(
    cluster_client: LiveClient, cluster_namespace: str, verdict: Callable[..., Any]
) -> None:
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "busybox"}]}}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": pod},
    }
    runtime = {
        "metadata": {"name": "once", "namespace": cluster_namespace},
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }
    await cluster_client.create(TrainingRuntime.from_dict(runtime))
    await cluster_client.create(
        train_job(
            cluster_namespace,
            runtime={"kind": "TrainingRuntime", "name": "once"},
            podTemplateOverrides=simulated(exit_code="1", run_for="200ms"),
        )
    )
    job = await verdict("Failed")
    job_set = await cluster_client.get(JobSet, job.key)
    await cluster_client.delete(job_set)

    async def not_rebuilt() -> bool:
        found = await cluster_client.list(JobSet, namespace=cluster_namespace)
        return all(each.metadata.uid == job_set.metadata.uid for each in found)

    await consistently(not_rebuilt, reason="a Failed job does not start again")
    assert "Failed" in conditions(await cluster_client.get(TrainJob, job.key))


@pytest.mark.parametrize(
    "runtime", ["torch-distributed", "deepspeed-distributed", "torch-distributed-with-cache"]
)
async def test_a_running_job_set_keeps_its_owner_and_runs_past_its_own_webhook(
    cluster_client: LiveClient, cluster_namespace: str, figure: Any, runtime: str
) -> None:
    found = await cluster_client.get(ClusterTrainingRuntime, ("", runtime))
    steps = [each.name for each in found.spec.template.spec.replicated_jobs or ()]
    job = await cluster_client.create(
        train_job(
            cluster_namespace,
            runtime={"name": runtime},
            labels={"team": "ours"},
            podTemplateOverrides=simulated(*steps, run_for="1h"),
        )
    )
    job_set = await eventually(
        lambda: cluster_client.get(JobSet, job.key), timeout=60, reason="the JobSet is made"
    )
    theirs = b'{"metadata":{"labels":{"team":"theirs"}}}'
    await cluster_client.patch(job_set, raw_patch(MERGE, theirs))  # another writer adds a label, which stays
    for what, patch in (
        ("owner", b'{"metadata":{"ownerReferences":null}}'),
        ("suspend", b'{"spec":{"suspend":true}}'),
    ):
        await cluster_client.patch(job_set, raw_patch(MERGE, patch))
        began = time.monotonic()

        async def mended() -> bool:
            now = await cluster_client.get(JobSet, job.key)
            owners = [owner.uid for owner in now.metadata.owner_references or ()]
            return (owners, now.spec.suspend) == ([job.metadata.uid], False)

        await eventually(mended, timeout=60, interval=0.01, reason=f"the {what} is as it was")
        figure(f"{runtime}: {what} of a running JobSet restored", time.monotonic() - began, at_most=20)
    assert (await cluster_client.get(JobSet, job.key)).labels[
        "team"
    ] == "ours"  # this shows that it was suspended for a moment
