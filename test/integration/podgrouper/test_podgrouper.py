# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper on a real API server under its shipped rights: the requests that it sends, and those it does not."""

from collections import Counter
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import Environment, eventually
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import GVK, Object, Unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request

from pkg.apis.kai.v2alpha2 import PodGroup
from testkit.builders import crd_without_schema
from testkit.clusters import job_set_at

pytestmark = pytest.mark.integration

ANNOTATION = "pod-group-name"
TRAIN_JOB = GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob")
JOB_SET = GVK("jobset.x-k8s.io", "v1alpha2", "JobSet")
JOB = GVK("batch", "v1", "Job")
RAY = GVK("ray.io", "v1", "RayCluster")
POD = {"containers": [{"name": "main", "image": "busybox"}]}
OURS = {**POD, "schedulerName": "kai-scheduler"}
RUN_ONCE = {"spec": {**POD, "restartPolicy": "Never"}}
NODE = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}


def counted(sent: list[Request]) -> Counter[tuple[str, str]]:
    """Return counts of the requests in namespaces by method and resource, without watches."""
    found: Counter[tuple[str, str]] = Counter()
    for request in sent:
        parts = request.path.split("/")
        if "namespaces" in parts[:-2] and dict(request.query).get("watch") is None:
            found[request.method, parts[parts.index("namespaces") + 2]] += 1
    return found


async def set_status(client: LiveClient, pod: Object, status: bytes) -> None:
    await client.status.patch(pod, raw_patch(MERGE, b'{"status":%s}' % status))


async def test_each_owner_is_asked_for_once_and_nothing_again_after_churn_or_a_restart(world: Any) -> None:
    job = {"name": "node", "template": {"spec": {"parallelism": 10, "template": RUN_ONCE}}}
    owner = None
    for kind, name, spec in (
        (TRAIN_JOB, "llm", {"runtimeRef": {"name": "torch-distributed"}}),
        (JOB_SET, "llm", {"suspend": True, "replicatedJobs": [job]}),
        (JOB, "llm-node-0", {"suspend": True, "template": RUN_ONCE}),
    ):
        owner = await world.make(kind, name, owner, spec)

    async with world.run() as (_, sent):
        pods = [await world.make(Pod.gvk, f"llm-{number}", owner, OURS, **NODE) for number in range(10)]
        assert len(set(await world.grouped(10))) == 1
        # The metadata of the first owner of each kind before its watch runs; the JobSet's spec.
        counts = counted(sent)
        assert counts.pop(("GET", "jobs")) == 1
        assert counts.pop(("GET", "jobsets")) <= 2
        assert counts.pop(("GET", "trainjobs")) == 1
        assert counts == {("PATCH", "pods"): 10, ("POST", "podgroups"): 1}

        sent.clear()
        for pod in pods:
            await set_status(world.client, pod, b'{"message":"churn"}')
        late = await world.make(Pod.gvk, "late", owner, OURS, **NODE)
        await world.grouped(11)
        assert counted(sent) == {("PATCH", "pods"): 1}

    async with world.run() as (_, sent):
        await world.client.delete(late, grace_period_seconds=0)
        await world.make(Pod.gvk, "later", owner, OURS, **NODE)
        await world.grouped(11)
        counts = counted(sent)
        assert sum(counts.values()) - counts["PATCH", "pods"] <= 4


async def test_a_line_says_that_karta_objects_have_no_effect(
    world: Any, grouper_control_plane: Environment
) -> None:
    crd = crd_without_schema("run.ai", "v1alpha1", "Karta", "Cluster")
    await grouper_control_plane.install_crds(crd)
    karta = {"apiVersion": "run.ai/v1alpha1", "kind": "Karta", "metadata": {"name": "birds"}}
    await world.client.create(Unstructured.wrap(karta))

    with capture_logs() as logged:
        async with world.run():
            await anyio.sleep(0.5)

    lines = [each for each in logged if each["event"].startswith("Karta objects exist")]
    assert [each["karta"] for each in lines] == ["birds"]


async def test_what_the_role_does_not_let_it_read_is_passed_over(world: Any) -> None:
    secret = await world.make(GVK("", "v1", "Secret"), "owner", None, {})
    async with world.run():
        pod = await world.make(Pod.gvk, "p", secret, OURS)
        assert await world.grouped(1) == [f"pg-p-{pod.metadata.uid}"]


async def test_beside_trainers_controllers_it_groups_what_they_make(world: Any, torch_runtime: str) -> None:
    async with world.run("--controllers=*", enable=True, rules="v0.13") as (mgr, _):
        assert mgr.controller_names > {"pod", "trainjob_controller"}
        spec = {"runtimeRef": {"name": torch_runtime}, "trainer": {"numNodes": 4}}
        await world.make(TRAIN_JOB, "llm", None, spec, **{"kai.scheduler/queue": "q"})
        job_set = await job_set_at(world.client, (world.namespace, "llm"), timeout=30)
        await world.make(Pod.gvk, "llm-0", job_set, OURS, **NODE)
        (name,) = await world.grouped(1)
    group = await world.client.get(PodGroup, (world.namespace, name))
    assert (group.spec.min_member, group.spec.queue) == (4, "q")


async def test_an_owner_whose_crd_was_installed_again_is_read_and_watched(
    world: Any, grouper_control_plane: Environment
) -> None:
    client: LiveClient = world.client
    crd = crd_without_schema(RAY.group, RAY.version, RAY.kind)
    spec = {"workerGroupSpecs": [{"groupName": "w", "replicas": 2}]}
    more = b'{"spec":{"workerGroupSpecs":[{"groupName":"w","replicas":5}]}}'

    async def follows_its_owner(name: str) -> None:
        owner = await world.make(RAY, "rc", None, spec)
        await world.make(Pod.gvk, name, owner, OURS, **{"ray.io/group": "w"})
        group = (world.namespace, f"pg-rc-{owner.metadata.uid}")

        async def requires(pods: int) -> bool:
            try:
                return (await client.get(PodGroup, group)).spec.min_member == pods
            except NotFoundError:
                return False

        await eventually(lambda: requires(3), timeout=30, reason="the pod is grouped")
        await client.patch(owner, raw_patch(MERGE, more))
        await eventually(lambda: requires(6), timeout=10, reason="the group follows its owner")

    await grouper_control_plane.install_crds(crd)
    async with world.run():
        await follows_its_owner("first")
        stored = Unstructured.wrap(crd)
        await client.delete(stored)

        async def is_gone() -> bool:
            try:
                await client.get(type(stored), ("", stored.name))
            except NotFoundError:
                return True
            return False

        await eventually(is_gone, timeout=30, reason="the CRD is gone")
        await grouper_control_plane.install_crds(crd)
        await follows_its_owner("second")
