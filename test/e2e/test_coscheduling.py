# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Gangs on a real cluster: scheduler-plugins' scheduler binds the pods of our PodGroups together or not at all."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import consistently, eventually
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NODES, GPUS = 4, 8
GANG: dict[str, Any] = {"podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 20}}}
Start = Callable[..., Any]
RunCluster = Callable[[Options], AbstractContextManager[Cluster]]


@pytest.fixture(scope="module")
def cluster(run_cluster: RunCluster) -> Iterator[Cluster]:
    """Yield a cluster whose scheduler schedules gangs."""
    with run_cluster(Options(nodes=NODES, shape=NodeShape(gpus=GPUS), coscheduling=True)) as running:
        yield running


async def pods(client: LiveClient, namespace: str) -> list[dict[str, Any]]:
    return [pod.to_dict() for pod in await client.list(Pod, namespace=namespace)]


async def bound(client: LiveClient, namespace: str) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in await pods(client, namespace))


async def refused(client: LiveClient, namespace: str) -> int:
    """Return the number of pods that the scheduler has tried to place without success."""
    return sum(
        any(each["type"] == "PodScheduled" and each["status"] == "False" for each in pod_conditions)
        for pod in await pods(client, namespace)
        for pod_conditions in [pod.get("status", {}).get("conditions", [])]
    )


@pytest.fixture
async def start(cluster_client: LiveClient, cluster_namespace: str) -> AsyncIterator[Start]:
    """Yield a function that starts a TrainJob of which each pod fills a node; at the end, free the nodes."""

    async def create(nodes: int, *, gang: bool = True, run_for: str = "3s") -> TrainJob:
        whole = {"nvidia.com/gpu": GPUS}
        resources = {"requests": whole, "limits": whole}
        pod = {"containers": [{"name": "node", "image": "busybox", "resources": resources}]}
        policy = GANG if gang else {}
        spec: dict[str, Any] = {"mlPolicy": {"numNodes": nodes}, **policy}
        marks = {"annotations": {"sim.local/run-for": run_for}}
        await cluster_client.create(written_runtime(cluster_namespace, pod=pod, pod_metadata=marks, **spec))
        return await cluster_client.create(written_train_job(cluster_namespace, "runtime"))

    yield create
    await cluster_client.delete_all_of(TrainJob, namespace=cluster_namespace)

    async def gone() -> bool:
        return not await cluster_client.list(Pod, namespace=cluster_namespace)

    await eventually(gone, timeout=120, reason="the pods are gone with their TrainJob")


async def test_a_gang_that_fits_is_bound_as_a_whole_and_completes(
    cluster_client: LiveClient, start: Start, figure: Any
) -> None:
    began = anyio.current_time()
    job = await start(NODES)

    async def all_bound() -> bool:
        return await bound(cluster_client, job.namespace) == NODES

    await eventually(all_bound, timeout=60, reason="every pod of the gang is bound")
    figure(f"gang of {NODES} of {NODES} nodes: create to all bound", anyio.current_time() - began, at_most=60)
    group = await cluster_client.get(PodGroup, job.key)
    assert group.spec.min_member == NODES
    assert group.spec.min_resources == {"nvidia.com/gpu": str(NODES * GPUS)}
    assert group.spec.schedule_timeout_seconds == 20
    labels = {
        pod["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group")
        for pod in await pods(cluster_client, job.namespace)
    }
    assert labels == {"job"}
    await until(cluster_client, job, "Complete")


async def test_of_a_gang_that_does_not_fit_no_pod_is_bound(
    cluster_client: LiveClient, start: Start, figure: Any
) -> None:
    job = await start(NODES + 1)

    async def looked_at() -> bool:
        return await refused(cluster_client, job.namespace) == NODES + 1

    await eventually(looked_at, timeout=40, reason="the scheduler has looked at every pod")

    async def none_bound() -> bool:
        return await bound(cluster_client, job.namespace) == 0

    await consistently(none_bound, duration=5, reason="no pod of the gang is bound")
    figure(
        "gang of 5 on 4 nodes: bound pods", await bound(cluster_client, job.namespace), at_most=0, unit="pods"
    )
    assert await cluster_client.get(JobSet, job.key)


async def test_without_a_gang_what_fits_is_bound(cluster_client: LiveClient, start: Start) -> None:
    """Without a gang, some pods of the same job are bound: so it is the group that keeps the scheduler from that."""
    job = await start(NODES + 1, gang=False, run_for="1h")  # no pod ends and makes room for another one

    async def four_bound() -> bool:
        return await bound(cluster_client, job.namespace) == NODES

    await eventually(four_bound, timeout=60, reason="as many pods as there are nodes are bound")


async def test_a_gang_whose_jobs_wait_for_each_other_completes(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    """An initializer runs before the gang, and a launcher joins the gang when its nodes are ready."""

    def job(name: str, step: str | None, *depends_on: tuple[str, str]) -> dict[str, Any]:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
        metadata = {"labels": labels, "annotations": {"sim.local/run-for": "3s"}}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": step or "node", "image": "busybox"}]}}
        after = [{"name": each, "status": status} for each, status in depends_on]
        template = {"metadata": metadata, "spec": {"template": pod}}
        return {"name": name, "template": template, **({"dependsOn": after} if after else {})}

    jobs = [
        job("dataset-initializer", "dataset-initializer"),
        job("node", None, ("dataset-initializer", "Complete")),
        job("launcher", "trainer", ("node", "Ready")),
    ]
    jobs[2]["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "node"
    await cluster_client.create(
        written_runtime(cluster_namespace, job_set={"replicatedJobs": jobs}, mlPolicy={"numNodes": 1}, **GANG)
    )
    train_job = await cluster_client.create(written_train_job(cluster_namespace, "runtime"))
    await until(cluster_client, train_job, "Complete")
    assert (await cluster_client.get(PodGroup, train_job.key)).spec.min_member == 1


async def test_the_shipped_runtime_with_a_launcher_completes_as_a_gang(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    """The launcher of ``deepspeed-distributed`` exists only when its nodes are ready, so the gang is the nodes."""
    shipped = await cluster_client.get(ClusterTrainingRuntime, ("", "deepspeed-distributed"))
    await cluster_client.create(written_runtime(cluster_namespace, **shipped.to_dict()["spec"], **GANG))
    trainer = {"numNodes": NODES, "command": ["deepspeed", "train.py"]}
    job = await cluster_client.create(written_train_job(cluster_namespace, "runtime", trainer=trainer))
    await until(cluster_client, job, "Complete")
    assert (await cluster_client.get(PodGroup, job.key)).spec.min_member == NODES - 1
