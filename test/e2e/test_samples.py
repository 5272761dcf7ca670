# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every sample in config/samples, as it is shipped, on the whole local cluster."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.conditions import is_true
from trainerctl.localcluster.cluster import Cluster

from pkg import shipped
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit.clusters import job_set_at

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SAMPLES = shipped.config_directory() / "samples"
CACHE_ACCOUNT = "kubeflow-trainer-cache-initializer"
# The number of pods of each job, by sample.
EXPECTED = {
    "torch-three-nodes": {"node": 3},
    "plain-suspended": {"node": 2},
    "deepspeed-three-nodes": {"launcher": 1, "node": 2},
    "mlx-two-nodes": {"launcher": 1, "node": 1},
    "jax-two-nodes": {"node": 2},
    "xgboost-two-nodes": {"node": 2},
    "torch-with-cache": {"dataset-initializer": 1, "node": 2},
    "llama-1b-full": {"dataset-initializer": 1, "model-initializer": 1, "node": 1},
    "llama-3b-qlora": {"dataset-initializer": 1, "model-initializer": 1, "node": 1},
    "qwen-lora": {"dataset-initializer": 1, "model-initializer": 1, "node": 1},
}


def as_object(manifest: dict[str, Any], namespace: str) -> Any:
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = unstructured(GVK(group, version, manifest["kind"]))
    return kind.from_dict({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})


async def succeeded_pods(client: LiveClient, namespace: str, job: str) -> Counter[str]:
    """Return the number of pods that succeeded, by replicated job."""
    pods = await client.list(Pod, namespace=namespace, labels={"jobset.sigs.k8s.io/jobset-name": job})
    return Counter(
        pod.labels["jobset.sigs.k8s.io/replicatedjob-name"]
        for pod in pods
        if pod.to_dict()["status"]["phase"] == "Succeeded"
    )


@pytest.mark.parametrize("flag", ["-f", "-k"])
async def test_all_samples_apply_together_at_the_first_try(
    local_cluster: Cluster, kubectl: Path, cluster_client: LiveClient, cluster_namespace: str, flag: str
) -> None:
    command = [str(kubectl), f"--kubeconfig={local_cluster.kubeconfig}", f"--namespace={cluster_namespace}"]
    applied = await anyio.run_process([*command, "apply", flag, str(SAMPLES)], check=False)
    assert applied.returncode == 0, applied.stderr
    assert {each.name for each in await cluster_client.list(TrainJob, namespace=cluster_namespace)} == set(
        EXPECTED
    )


@asynccontextmanager
async def unschedulable_nodes(client: LiveClient) -> AsyncIterator[None]:
    """Cordon the nodes for the time of the block."""
    nodes = await client.list(Node)

    async def cordon(value: bytes) -> None:
        for node in nodes:
            await client.patch(node, raw_patch(MERGE, b'{"spec":{"unschedulable":%s}}' % value))

    await cordon(b"true")
    try:
        yield
    finally:
        await cordon(b"null")


@pytest.mark.parametrize("interrupted", [False, True], ids=["as shipped", "suspended and resumed"])
async def test_every_sample_runs_to_complete(
    cluster_client: LiveClient, cluster_namespace: str, figure: Any, interrupted: bool
) -> None:
    samples = shipped.manifests("samples")
    jobs = {each["metadata"]["name"]: each for each in samples if each["kind"] == "TrainJob"}
    listed = {each.name for each in await cluster_client.list(ClusterTrainingRuntime)}
    sampled = {each["spec"]["runtimeRef"]["name"] for each in jobs.values()}
    assert set(jobs) == set(EXPECTED)
    assert sampled == listed | {"plain"}, "a runtime has no sample, or a sample has no runtime"

    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CACHE_ACCOUNT}}

    async def create() -> None:
        # TrainJobs come last: they name a runtime, an account or a claim, which have to exist.
        for manifest in sorted([account, *samples], key=lambda each: each["kind"] == "TrainJob"):
            await cluster_client.create(as_object(manifest, cluster_namespace))

    async def complete(name: str) -> None:
        async def reached() -> bool:
            job = await cluster_client.get(TrainJob, (cluster_namespace, name))
            return is_true(job.status.conditions, "Complete")

        began = anyio.current_time()
        await eventually(reached, timeout=90, reason=f"{name} is Complete")
        how = ", suspended on its way," if interrupted else ""
        figure(f"sample {name}{how} to Complete", anyio.current_time() - began, at_most=90)

    async def suspend(name: str) -> None:
        job_set = await job_set_at(cluster_client, (cluster_namespace, name))
        job = await cluster_client.get(TrainJob, job_set.key)
        await cluster_client.patch(job, raw_patch(MERGE, b'{"spec":{"suspend":true}}'))

        async def suspended() -> bool:
            return bool((await cluster_client.get(JobSet, job_set.key)).spec.suspend)

        await eventually(suspended, timeout=60, reason=f"{name} is suspended, to JobSet too")

    async def resume(name: str) -> None:
        async def reported() -> TrainJob | None:
            job = await cluster_client.get(TrainJob, (cluster_namespace, name))
            return job if is_true(job.status.conditions, "Suspended") else None

        job = await eventually(reported, timeout=60, reason=f"{name} is suspended")
        await cluster_client.patch(job, raw_patch(MERGE, b'{"spec":{"suspend":false}}'))

    # No pod starts before every job is suspended, so none is Complete by then.
    async with unschedulable_nodes(cluster_client) if interrupted else nullcontext():
        await create()
        async with anyio.create_task_group() as tasks:
            for name in jobs if interrupted else ():
                tasks.start_soon(suspend, name)
    async with anyio.create_task_group() as tasks:
        for name in jobs if interrupted else ("plain-suspended",):
            tasks.start_soon(resume, name)
        for name in jobs:
            tasks.start_soon(complete, name)

    for name, expected in EXPECTED.items():
        job_set = await cluster_client.get(JobSet, (cluster_namespace, name))
        wanted = {each.name: each.template.spec.parallelism for each in job_set.spec.replicated_jobs or ()}
        assert wanted == expected, name
        succeeded = await succeeded_pods(cluster_client, cluster_namespace, name)
        # A job with a launcher ends with the launcher, and the pods of its nodes are removed.
        counted = {"launcher"} & expected.keys() or expected.keys()
        assert {job: succeeded[job] for job in counted} == {job: expected[job] for job in counted}, name
