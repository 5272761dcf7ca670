# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster: two managers, and models of the other controllers, nodes and pods.

The seed determines how fast the models are.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from typing import Any

import anyio
import controller_runtime as ctrl
from controller_runtime import client, controller, simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, LimitRange, Pod, PodTemplate, Secret, Service
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import MERGE, ignore_not_found, raw_patch
from controller_runtime.machinery import NamespacedName, Object, metadata_only
from controller_runtime.rest import PublishedSchema
from controller_runtime.simtest import CURRENT_PROCESS, Event, Simulation

from pkg import controller as controllers
from pkg import features, webhooks
from pkg.apis.config.v1alpha1 import V2_1, defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import POD_GROUP_LABEL, PodGroup
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.apis.volcano import v1beta1 as volcano
from pkg.runtime import core
from testkit.jobset import JobSets, review_job_set
from testkit.sim.kueue import Kueue
from testkit.sim.objects import controlled_by, is_deleted, is_suspended, is_true, owned, refusals_expected
from testkit.sim.trainers import Trainers
from testkit.sim.webhook import ManagedFields, configurations, review_secret, tune

Document = dict[str, Any]
ENDED = ("Succeeded", "Failed")
HELD = "sim.local/run-for"
"""The annotation of pods that do not end."""
_PodMetadata = metadata_only(Pod)


def phase(pod: Document) -> str:
    """Return the phase of a pod."""
    return str(pod.get("status", {}).get("phase", ""))


class Jobs:
    """The Job controller."""

    async def step(self, sim: Simulation, rng: random.Random) -> None:
        """Bring the pods and the status of every Job up to date."""
        for job in sim.server.objects(Job):
            if not (is_deleted(job) or is_true(job, "Complete") or is_true(job, "Failed")):
                with refusals_expected():
                    await self._reconcile(sim, job, rng)

    async def _reconcile(self, sim: Simulation, job: Document, rng: random.Random) -> None:
        client = sim.client("job-controller")
        pods, count = owned(sim, Pod, job), job["spec"].get("parallelism") or 1
        if is_suspended(job):
            for pod in pods:
                if not is_deleted(pod):
                    await client.delete(_PodMetadata.from_dict(pod))
        else:
            for index in range(len(pods), count):
                await client.create(Pod.from_dict(_pod(job, index, rng)))
        phases = [phase(pod) for pod in pods if not is_deleted(pod)]
        status: Document = {"active": sum(each not in ENDED for each in phases)}
        if is_suspended(job) or "conditions" in job.get("status", {}):
            suspended = {"type": "Suspended", "status": str(is_suspended(job)), "reason": "JobSuspended"}
            status["conditions"] = [suspended]
        if "Failed" in phases:
            status["conditions"] = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
        elif phases.count("Succeeded") >= count:
            status["conditions"] = [{"type": "Complete", "status": "True", "reason": "Completed"}]
        if status != job.get("status", {}):
            await client.status.update(Job.from_dict({**job, "status": status}))


def _pod(job: Document, index: int, rng: random.Random) -> Document:
    template = job["spec"]["template"]
    metadata = {
        "namespace": job["metadata"]["namespace"],
        "name": f"{job['metadata']['name']}-{index}-{rng.getrandbits(24):06x}",
        "annotations": template.get("metadata", {}).get("annotations") or {},
        "labels": {**job["metadata"].get("labels", {}), **(template.get("metadata", {}).get("labels") or {})},
        "ownerReferences": controlled_by(job, "batch/v1", "Job"),
    }
    return {"metadata": metadata, "spec": template["spec"]}


LONGEST = 60.0
"""The longest run of a pod in seconds. The wait for rest is longer, so that TrainJobs have ended after that wait."""


class Nodes:
    """Schedulers and kubelets. A pod of a gang is bound when all members that its PodGroup requires exist."""

    def __init__(self, pods_fail: float = 0.1) -> None:
        self.lost: set[str] = set()
        self._pods_fail = pods_fail
        self._ends: dict[str, float] = {}
        """The time at which each pod ends, by uid."""
        self.changed = asyncio.Event()
        """Set by changes in the cluster."""
        self.hold_until = 0.0
        """Pods do not end before this time."""

    def next_due(self) -> float:
        """Return the time at which the next pod ends."""
        return min(self._ends.values(), default=math.inf)

    async def schedule(self, sim: Simulation, rng: random.Random) -> None:
        """Bind pods to nodes."""
        pods = [pod for pod in sim.server.objects(Pod) if not is_deleted(pod)]
        for pod in pods:
            if not pod["spec"].get("nodeName") and self._may_be_bound(sim, pod, pods):
                nodes = sorted({"node-0", "node-1", "node-2"} - self.lost)
                if nodes:
                    body = f'{{"spec":{{"nodeName":"{rng.choice(nodes)}"}}}}'.encode()
                    with refusals_expected():
                        await sim.client("scheduler").patch(
                            _PodMetadata.from_dict(pod), raw_patch(MERGE, body)
                        )

    @staticmethod
    def _may_be_bound(sim: Simulation, pod: Document, pods: list[Document]) -> bool:
        name = _gang_of(pod)
        if name is None:
            return True
        row = sim.server.table(PodGroup).rows.get(NamespacedName(pod["metadata"]["namespace"], name))
        if row is None:
            return False
        members = sum(_gang_of(each) == name for each in pods)
        return members >= int(row.document["spec"].get("minMember") or 0)

    async def run_pods(self, sim: Simulation, rng: random.Random) -> None:
        """Start and end pods."""
        pods = sim.server.objects(Pod)
        uids = {pod["metadata"]["uid"] for pod in pods}
        self._ends = {uid: due for uid, due in self._ends.items() if uid in uids}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node in self.lost or (not node and not is_deleted(pod)):
                continue
            with refusals_expected():
                await self._run_pod(sim, pod, rng)

    async def _run_pod(self, sim: Simulation, pod: Document, rng: random.Random) -> None:
        client, uid = sim.client("kubelet"), pod["metadata"]["uid"]
        if is_deleted(pod):
            self._ends.pop(uid, None)
            await client.delete(_PodMetadata.from_dict(pod), grace_period_seconds=0)
            return
        if phase(pod) in ENDED:
            self._ends.pop(uid, None)
            return
        length = (
            math.inf
            if HELD in (pod["metadata"].get("annotations") or {})
            else rng.choice([10, 30, LONGEST]) * rng.random()
        )
        due = self._ends.setdefault(uid, sim.loop.time() + length)
        wanted = "Running"
        if sim.loop.time() >= max(due, self.hold_until):
            wanted = "Failed" if rng.random() < self._pods_fail else "Succeeded"
        if phase(pod) != wanted:
            body = f'{{"status":{{"phase":"{wanted}"}}}}'.encode()
            await client.status.patch(_PodMetadata.from_dict(pod), raw_patch(MERGE, body))

    async def lose(self, sim: Simulation, rng: random.Random) -> None:
        """Lose a node for a while. In most cases its pods are deleted by force before the node returns."""
        node = f"node-{rng.randrange(3)}"
        self.lost.add(node)
        await anyio.sleep(rng.uniform(2, 60))
        if rng.random() < 0.7:
            for pod in sim.server.objects(Pod):
                if pod["spec"].get("nodeName") == node and phase(pod) not in ENDED:
                    gone = _PodMetadata.from_dict(pod)
                    with ignore_not_found(gone):
                        await sim.client("pod-gc").delete(gone, grace_period_seconds=0)
        self.lost.discard(node)
        self.changed.set()


def _gang_of(pod: Document) -> str | None:
    name: str | None = (pod["metadata"].get("labels") or {}).get(POD_GROUP_LABEL)
    return name


class Cluster:
    """The models of the controllers other than the manager's."""

    def __init__(self, pods_fail: float = 0.1, max_restarts: int = 0) -> None:
        self.nodes = Nodes(pods_fail)
        self._job_sets = JobSets(max_restarts)
        self.kueue = Kueue()
        self.trainers: Trainers | None = None
        """The trainers, if the managers have status servers."""

    async def run(self, sim: Simulation) -> None:
        """Run the controllers in random order whenever an object has changed."""
        rng = random.Random(f"{sim.seed}/cluster")
        sim.server.history.listeners.append(self._note)
        nodes = self.nodes
        steps = [self._job_sets.step, Jobs().step, nodes.schedule, nodes.run_pods, self.kueue.step, _garbage]
        while True:
            with anyio.move_on_at(nodes.next_due()):
                await nodes.changed.wait()
            await anyio.sleep(rng.uniform(0.1, 1.6))
            nodes.changed.clear()
            for step in rng.sample(steps, len(steps)):
                await step(sim, rng)
            if self.kueue.waits:
                nodes.changed.set()

    def _note(self, event: Event) -> None:
        if event.table.properties.gvk.kind not in ("Lease", "Event"):
            self.nodes.changed.set()


async def _garbage(sim: Simulation, _: random.Random) -> None:
    sim.server.collect_garbage()


def world(
    sim: Simulation,
    pods_fail: float = 0.1,
    version: str = V2_1,
    *,
    alone: bool = False,
    gates: Mapping[str, bool] | None = None,
    ttl: int | None = None,
    max_restarts: int = 0,
) -> Cluster:
    """Set up Kubernetes' controllers, Kueue and two managers.

    With ``alone``, ``manager-1`` runs the controllers without leader election, and ``manager-0`` only serves webhooks.
    ``gates`` are the settings of the managers' feature gates, and ``ttl`` is their default time to live of finished
    TrainJobs. JobSets restart up to ``max_restarts`` times.
    """
    cfg = defaulted(version)
    cfg.feature_gates, cfg.ttl_seconds_after_finished = dict(gates or {}), ttl
    sim.serve(TrainJob, TrainingRuntime, ClusterTrainingRuntime, JobSet, Job, Pod, ConfigMap, Secret, Service)
    sim.serve(PodGroup, PriorityClass, RuntimeClass, LimitRange, PodTemplate)
    sim.serve(v1alpha1.Workload, v1alpha2.PodGroup, v1beta1.PodGroup, volcano.PodGroup)
    cluster = Cluster(pods_fail, max_restarts)
    if cfg.feature_gates.get(features.TRAIN_JOB_STATUS):
        cluster.trainers = Trainers(sim)

    async def published(kind: type[Object], known: PublishedSchema | None) -> PublishedSchema | None:
        """Return a schema of each kind that is served to managers. All of them keep every field."""
        if str(sim.server.table(kind).resource.group_resource) in sim.server.missing:
            return None
        return known or PublishedSchema("1", {})

    async def setup(mgr: ctrl.Manager) -> None:
        """Set a manager up as its program does, without servers."""
        referred = (ClusterTrainingRuntime, TrainingRuntime, PriorityClass)
        reader = client.ReadThrough(mgr.client, mgr.api_reader, referred)
        runtimes = await core.new(
            reader, mgr.field_indexer, cfg=cfg, store=mgr.client, reader=mgr.api_reader, published=published
        )
        process, options = CURRENT_PROCESS.get(), controller.Options(skip_name_validation=True)
        if not alone or (process is not None and process.name == "manager-1"):
            controllers.setup_controllers(mgr, runtimes, options, cfg=cfg)
        webhooks.setup(mgr, runtimes, cfg)
        if cluster.trainers is not None:
            cluster.trainers.serve(mgr)

    sim.server.admit[JobSet.gvk] = [review_job_set]
    sim.server.admit[Secret.gvk] = [review_secret]
    sim.server.admit[PodGroup.gvk] = sim.server.admit[ConfigMap.gvk] = [tune]
    owners = ManagedFields(sim)
    sim.server.admit[TrainJob.gvk] = [owners.show]
    sim.admission(*configurations())
    sim.server.admit[TrainJob.gvk].append(owners.hide)
    sim.actor(cluster.run, "cluster")
    sim.manager(setup, options=simtest.options(leader_election=not alone))
    return cluster
