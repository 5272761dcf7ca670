# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs on the whole local cluster: JobSet's own controller and webhooks, Jobs, pods, simulated nodes."""

import time
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at, until

pytestmark = pytest.mark.e2e

OF_JOB = "jobset.sigs.k8s.io/jobset-name"


def simulated(*steps: str, **annotations: str) -> list[dict[str, Any]]:
    """Return overrides that instruct the simulated nodes about the pods of some steps, by default the trainer's."""
    marked = {f"sim.local/{key.replace('_', '-')}": value for key, value in annotations.items()}
    target = [{"name": step} for step in steps or ("node",)]
    return [{"targetJobs": target, "metadata": {"annotations": marked}}]


async def test_a_train_job_of_three_nodes_completes(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    job = await cluster_client.create(
        written_train_job(cluster_namespace, "torch-distributed", kind=None, trainer={"numNodes": 3})
    )
    done = await until(cluster_client, job, "Complete")
    (jobs,) = done.status.jobs_status or []
    assert (jobs.name, jobs.succeeded, jobs.failed) == ("node", 1, 0)
    pods = await cluster_client.list(Pod, namespace=cluster_namespace, labels={OF_JOB: "job"})
    assert len(pods) == 3
    ranks = {env["name"]: env.get("value") for env in pods[0].to_dict()["spec"]["containers"][0]["env"]}
    assert ranks["PET_NNODES"] == "3"


async def test_a_train_job_whose_pods_fail_is_failed(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    once, policy = {"restartPolicy": "Never"}, {"numNodes": 2}
    await cluster_client.create(
        written_runtime(cluster_namespace, pod=once, job={"backoffLimit": 0}, mlPolicy=policy)
    )
    overrides = simulated(exit_code="1", run_for="200ms")
    job = await cluster_client.create(
        written_train_job(cluster_namespace, "runtime", podTemplateOverrides=overrides)
    )
    job = await until(cluster_client, job, "Failed")
    job_set = await cluster_client.get(JobSet, job.key)
    await cluster_client.delete(job_set)

    async def not_rebuilt() -> bool:
        found = await cluster_client.list(JobSet, namespace=cluster_namespace)
        return all(each.metadata.uid == job_set.metadata.uid for each in found)

    await consistently(not_rebuilt, reason="a Failed job does not start again")
    await until(cluster_client, job, "Failed", timeout=1)


@pytest.mark.parametrize(
    "runtime", ["torch-distributed", "deepspeed-distributed", "torch-distributed-with-cache"]
)
async def test_a_running_job_set_keeps_its_owner_and_runs_past_its_own_webhook(
    cluster_client: LiveClient, cluster_namespace: str, figure: Any, runtime: str
) -> None:
    found = await cluster_client.get(ClusterTrainingRuntime, ("", runtime))
    steps = [each.name for each in found.spec.template.spec.replicated_jobs or ()]
    job = await cluster_client.create(
        written_train_job(
            cluster_namespace,
            runtime,
            kind=None,
            labels={"team": "ours"},
            podTemplateOverrides=simulated(*steps, run_for="1h"),
        )
    )
    job_set = await job_set_at(cluster_client, job.key)
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
    # This shows that it was suspended for a moment.
    assert (await cluster_client.get(JobSet, job.key)).labels["team"] == "ours"
