# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs on a real cluster: its scheduler binds their pods together or not at all.

``CLUSTER_KUBERNETES`` and ``CLUSTER_JOBSET`` choose the releases.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Event, Node, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery import GVK, unstructured
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.nodes import NodeShape, node
from trainerctl.localcluster.options import Options

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.why import diagnose
from pkg.why.reading import take
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import JOBSET, KUBERNETES, gang_kind, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

GANG = gang_kind()
NODES, GPUS = 4, 8
JOB_OF_POD = "jobset.sigs.k8s.io/jobset-name"
Start = Callable[..., Any]
RunCluster = Callable[[Options], AbstractContextManager[Cluster]]


@pytest.fixture(scope="module")
def cluster(run_cluster: RunCluster) -> Iterator[Cluster]:
    """Yield a cluster whose scheduler schedules Kubernetes' own gangs."""
    shape = NodeShape(gpus=GPUS)
    options = Options(
        nodes=NODES, shape=shape, timeout=600, kubernetes=KUBERNETES, jobset=JOBSET, workloads=True
    )
    with run_cluster(options) as running:
        yield running


def job(name: str, *, gpus: int, run_for: str, **more: Any) -> dict[str, Any]:
    """Return a replicated job whose pods need ``gpus`` each."""
    amounts = {"nvidia.com/gpu": gpus}
    containers = [{"name": "node", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}]
    metadata = {"annotations": {"sim.local/run-for": run_for}}
    pod = {"metadata": metadata, "spec": {"containers": containers}}
    return {"name": name, "template": {"metadata": {}, "spec": {"template": pod}}, **more}


@pytest.fixture
async def start(cluster_client: LiveClient, cluster_namespace: str) -> AsyncIterator[Start]:
    """Yield a function that starts a TrainJob of a gang; delete all TrainJobs and pods at the end."""

    async def create(
        nodes: int,
        *,
        name: str = "job",
        gpus: int = GPUS,
        run_for: str = "3s",
        jobs: list[dict[str, Any]] | None = None,
        suspend: bool = False,
    ) -> TrainJob:
        trainer = job("node", gpus=gpus, run_for=run_for)
        trainer["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        policies: dict[str, Any] = {"mlPolicy": {"numNodes": nodes}, "podGroupPolicy": {"workload": {}}}
        spec = {"replicatedJobs": jobs or [trainer]}
        await cluster_client.create(written_runtime(cluster_namespace, name, job_set=spec, **policies))
        made = written_train_job(cluster_namespace, name, name=name, suspend=suspend)
        return await cluster_client.create(made)

    yield create
    await clear(cluster_client, cluster_namespace)


async def clear(client: LiveClient, namespace: str) -> None:
    """Delete all TrainJobs and pods, and wait until they are gone."""
    await client.delete_all_of(TrainJob, namespace=namespace)
    await client.delete_all_of(Pod, namespace=namespace)

    async def gone() -> bool:
        return not await client.list(Pod, namespace=namespace)

    await eventually(gone, timeout=240, reason="the pods are gone with their TrainJob")


async def bound(client: LiveClient, namespace: str) -> dict[str, tuple[int, int]]:
    """Return the number of bound pods and of all pods by TrainJob."""
    found: dict[str, tuple[int, int]] = {}
    for pod in await client.list(Pod, namespace=namespace):
        name = (pod.labels or {}).get(JOB_OF_POD, "")
        if name:
            some, every = found.get(name, (0, 0))
            found[name] = some + bool(pod.spec.node_name), every + 1
    return found


async def waiting(client: LiveClient, train_job: TrainJob) -> list[str]:
    """Return the messages of the events that report why the gang waits."""
    events = await client.list(Event, namespace=train_job.namespace)
    return [
        each.message or ""
        for each in events
        if each.reason == "GangWaiting"
        and each.involved_object
        and each.involved_object.name == train_job.name
    ]


async def test_of_a_gang_that_does_not_fit_no_pod_is_bound_until_it_fits(
    cluster_client: LiveClient, start: Start
) -> None:
    made = await start(NODES + 1)

    async def all_exist() -> bool:
        return (await bound(cluster_client, made.namespace)).get("job") == (0, NODES + 1)

    await eventually(all_exist, timeout=120, reason="every pod of the gang exists")
    await consistently(all_exist, duration=8, reason="no pod of the gang is bound")
    if KUBERNETES != "1.35":  # in 1.35, the scheduler reports nothing in the gang
        events = await eventually(
            lambda: waiting(cluster_client, made), timeout=60, reason="the TrainJob says why the gang waits"
        )
        assert len(events) == 1
        assert "Unschedulable: " in events[0]
    extra = await cluster_client.create(node(NODES, NodeShape(gpus=GPUS)))

    async def all_bound() -> bool:
        return (await bound(cluster_client, made.namespace)).get("job") == (NODES + 1, NODES + 1)

    await eventually(all_bound, timeout=400, reason="the whole gang is bound on the new node")
    await clear(cluster_client, made.namespace)
    await cluster_client.delete(extra)

    async def removed() -> bool:
        return len(await cluster_client.list(Node)) == NODES

    await eventually(removed, timeout=60, reason="the added node is gone")


async def test_a_gang_that_is_suspended_leaves_its_nodes_and_resumes_as_a_whole_with_another_count(
    cluster_client: LiveClient, start: Start
) -> None:
    made = await start(2, run_for="1h")

    async def patch(**spec: Any) -> None:
        await cluster_client.patch(made, raw_patch(MERGE, json.dumps({"spec": spec}).encode()))

    async def are(some: int) -> None:
        async def reached() -> bool:
            every = (await bound(cluster_client, made.namespace)).get("job", (0, 0))
            return every == (some, some)

        await eventually(reached, timeout=180, reason=f"{some} of {some} pods are bound")

    await are(2)
    before = await cluster_client.get(GANG, made.key)
    await patch(suspend=True)
    await are(0)
    await patch(trainer={"numNodes": 3})
    await patch(suspend=False)
    await are(3)
    gang = await cluster_client.get(GANG, made.key)
    assert "'minCount': 3" in str(gang.to_dict()["spec"])
    # Up to 1.36 the count cannot change, so the gang is deleted and created again.
    assert (gang.metadata.uid == before.metadata.uid) is (KUBERNETES == "1.37")


async def test_a_launcher_that_waits_for_its_nodes_is_no_deadlock(
    cluster_client: LiveClient, start: Start
) -> None:
    nodes = job("node", gpus=GPUS, run_for="3s")
    nodes["template"]["spec"] |= {"parallelism": 2, "completions": 2}
    launcher = job("launcher", gpus=0, run_for="3s", dependsOn=[{"name": "node", "status": "Ready"}])
    launcher["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    made = await start(1, jobs=[nodes, launcher])
    await until(cluster_client, made, "Complete", timeout=240)


async def test_a_gang_larger_than_a_quota_or_the_cluster_binds_no_pod_and_why_names_it(
    cluster_client: LiveClient, cluster_namespace: str, start: Start
) -> None:
    metadata = {"name": "small", "namespace": cluster_namespace}
    quota = {"metadata": metadata, "spec": {"hard": {"requests.nvidia.com/gpu": f"{2 * GPUS}"}}}
    kind = unstructured(GVK("", "v1", "ResourceQuota"))
    await cluster_client.create(kind.from_dict(quota))
    for name, nodes, cause in (("refused", NODES, "quota-exceeded"), ("huge", 3 * NODES, "gang-too-large")):
        await start(nodes, name=name)

        async def named(name: str = name, cause: str = cause) -> bool:
            snapshot = await take(cluster_client, cluster_namespace, name, datetime.now(UTC))
            return [each.cause for each in diagnose(snapshot).findings][:1] == [cause]

        await eventually(named, timeout=120, interval=1, reason=f"the answer is {cause}")
        assert (await bound(cluster_client, cluster_namespace))[name][0] == 0
        await cluster_client.delete_all_of(kind, namespace=cluster_namespace)
