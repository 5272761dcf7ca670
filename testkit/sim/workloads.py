# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads for the pod grouper: single pods, Jobs, JobSets with and without a TrainJob, and RayClusters."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import GVK, Object, unstructured
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import kai
from testkit.sim.objects import PROPAGATIONS, by_name, controlled_by, is_deleted, owned, refusals_expected
from testkit.sim.steps import Act, perform, settled

Document = dict[str, Any]
RayCluster = unstructured(GVK("ray.io", "v1", "RayCluster"))
Notebook = unstructured(GVK("kubeflow.org", "v1beta1", "Notebook"))


def _crd(kind: GVK) -> Document:
    names = {"plural": f"{kind.kind.lower()}s", "kind": kind.kind}
    versions = [{"name": kind.version, "subresources": {"status": {}}}]
    return {"spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": versions}}


RAY_CRD = _crd(RayCluster.gvk)
NOTEBOOK_CRD = _crd(Notebook.gvk)
_STEPS = 8
"""The number of calm steps in a whole life."""
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
NODE_GROUP = "ray.io/group"
_POD_SPEC: Document = {"schedulerName": kai.SCHEDULER_NAME, "containers": [{"name": "c", "image": "i"}]}
_JOB_SPEC: Document = {"template": {"spec": _POD_SPEC}}


OWNERS: tuple[type[Object], ...] = (Job, JobSet, TrainJob, RayCluster)
"""Kinds of workloads with pods."""


class Workloads:
    """Users who create workloads, and operators that create the workloads' dependents."""

    def __init__(self, names: int = 3, pods_end: float = 0.002) -> None:
        """``pods_end`` is the probability that a running pod ends in a step of the kubelet."""
        self._names = names
        self._pods_end = pods_end
        self.calm: list[Act] = [self.replace_unseen, self.replace_unseen]
        """Sequences of actions for the calm part of a life."""

    def register(self, sim: Simulation) -> None:
        """Register users and operators with the simulation."""
        sim.actor(self.run, "operators")
        for kind in (self.pod, self.job, self.job_set, self.train_job, self.ray_cluster):
            sim.action(kind, times=3)
        sim.action(self.delete, times=6)
        sim.action(self.delete_pod, times=6)
        sim.action(self.restore_pod, times=3)
        sim.action(self.label, times=3)
        sim.action(self.scale, times=3)

    def _metadata(self, rng: random.Random, prefix: str) -> Document:
        labels = {kai.QUEUE_LABEL_KEY: rng.choice(["a", "b"])} if rng.random() < 0.5 else {}
        return {"namespace": "default", "name": f"{prefix}-{rng.randrange(self._names)}", "labels": labels}

    async def _create(self, sim: Simulation, kind: type[Object], metadata: Document, spec: Document) -> None:
        with refusals_expected():
            await sim.client().create(kind.from_dict({"metadata": metadata, "spec": spec}))

    async def pod(self, sim: Simulation, rng: random.Random) -> None:
        """Create a pod without an owner."""
        await self.create_pod(sim, self._metadata(rng, "pod"))

    async def create_pod(self, sim: Simulation, metadata: Document) -> None:
        """Create a pod without an owner."""
        await self._create(sim, Pod, metadata, _POD_SPEC)

    async def job(self, sim: Simulation, rng: random.Random) -> None:
        """Create a Job."""
        await self._create(sim, Job, self._metadata(rng, "job"), _spec_of(Job, rng))

    async def job_set(self, sim: Simulation, rng: random.Random) -> None:
        """Create a JobSet."""
        await self._create(sim, JobSet, self._metadata(rng, "set"), _spec_of(JobSet, rng))

    async def train_job(self, sim: Simulation, rng: random.Random) -> None:
        """Create a TrainJob."""
        await self._create(sim, TrainJob, self._metadata(rng, "train"), _spec_of(TrainJob, rng))

    async def ray_cluster(self, sim: Simulation, rng: random.Random) -> None:
        """Create a RayCluster."""
        await self._create(sim, RayCluster, self._metadata(rng, "ray"), _spec_of(RayCluster, rng))

    async def delete(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a workload, and sometimes create another workload of the same kind at once."""
        kinds: list[tuple[type[Object], Any]] = [
            (Pod, self.pod),
            (Job, self.job),
            (JobSet, self.job_set),
            (TrainJob, self.train_job),
            (RayCluster, self.ray_cluster),
        ]
        kind, create = rng.choice(kinds)
        tops = [each for each in sim.server.objects(kind) if not each["metadata"].get("ownerReferences")]
        if tops:
            propagation = rng.choice(PROPAGATIONS)
            with refusals_expected():
                await sim.client().delete(kind.from_dict(rng.choice(tops)), propagation=propagation)
        if rng.random() < 0.5:
            await create(sim, rng)

    async def replace(self, sim: Simulation, rng: random.Random, kind: type[Object], name: str) -> None:
        """Change the size or a label of a workload, or delete it and, in most cases, create it again.

        Nothing is done if the workload has an owner.
        """
        found = [each for each in sim.server.objects(kind) if each["metadata"]["name"] == name]
        if not found or found[0]["metadata"].get("ownerReferences") or is_deleted(found[0]):
            return
        if rng.random() < 0.5:
            await rng.choice([self.label, self.scale])(sim, rng, name)
            return
        await sim.client().delete(kind.from_dict(found[0]), propagation=rng.choice(["Background", "Orphan"]))
        sim.server.collect_garbage()
        if rng.random() < 0.2:
            return
        await self._create(sim, kind, {"namespace": "default", "name": name}, _spec_of(kind, rng))

    async def replace_unseen(self, sim: Simulation, rng: random.Random) -> None:
        """Replace a workload while its watch is delayed: the first pods of the new workload precede its watch event."""
        kinds: list[type[Object]] = [Job, JobSet, RayCluster]
        kind, watches = rng.choice(kinds), sim.server.watches
        tops = [each for each in sim.server.objects(kind) if not each["metadata"].get("ownerReferences")]
        if not tops:
            return
        found, table = rng.choice(tops), sim.server.table(kind)
        with watches.delays.during(lambda watch: 6.0 if watch.table is table else 0.0):
            with refusals_expected():
                await sim.client().delete(kind.from_dict(found), propagation="Background")
                sim.server.collect_garbage()
                metadata = {"namespace": "default", "name": found["metadata"]["name"]}
                await self._create(sim, kind, metadata, _spec_of(kind, rng))
            await anyio.sleep(5.0)

    async def act_calmly(self, sim: Simulation, problem: Callable[[], Awaitable[str | None]]) -> None:
        """Perform actions, without faults or with short ones. Soon after each action, ``problem`` must return None."""
        rng = random.Random(f"{sim.seed}/calm")
        creates = [self.pod, self.job, self.job_set, self.train_job, self.ray_cluster]
        steps = max(3, round(_STEPS * sim.actions))
        deletes = [self.delete, self.delete, self.delete, self.delete_pod]
        for act in rng.choices([*creates, *deletes, *self.calm], k=steps):
            await perform(sim, rng, act)
            await settled(sim, act, problem)

    async def delete_pod(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a pod by force; its operator creates another."""
        if pods := sim.server.objects(Pod):
            with refusals_expected():
                await sim.client().delete(Pod.from_dict(rng.choice(pods)), grace_period_seconds=0)

    async def restore_pod(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a pod without owners, and create it again from its own YAML, with the name of its dead group."""
        pods = [each for each in sim.server.objects(Pod) if not each["metadata"].get("ownerReferences")]
        if pods:
            found = rng.choice(pods)
            kept = {name: found["metadata"].get(name) or {} for name in ("labels", "annotations")}
            with refusals_expected():
                await sim.client().delete(Pod.from_dict(found), grace_period_seconds=0)
                sim.server.collect_garbage()
            await anyio.sleep(rng.choice([0.0, 1.0]))
            name = found["metadata"]["name"]
            await self.create_pod(sim, {"namespace": "default", "name": name, **kept})

    async def label(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Move a workload to another queue."""
        kinds: list[type[Object]] = [Job, JobSet, RayCluster]
        if found := _named(sim, kind := rng.choice(kinds), name):
            body = b'{"metadata":{"labels":{"kai.scheduler/queue":"%s"}}}' % rng.choice([b"a", b"b", b"c"])
            with refusals_expected():
                await sim.client().patch(kind.from_dict(rng.choice(found)), raw_patch(MERGE, body))

    async def scale(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Change the size of a RayCluster's worker group."""
        if found := _named(sim, RayCluster, name):
            cluster = rng.choice(found)
            groups = [{**each, "replicas": rng.randint(1, 3)} for each in cluster["spec"]["workerGroupSpecs"]]
            spec = {"workerGroupSpecs": groups}
            with refusals_expected():
                await sim.client().update(RayCluster.from_dict({**cluster, "spec": spec}))

    async def run(self, sim: Simulation) -> None:
        """Create the dependents of each workload."""
        rng = random.Random(f"{sim.seed}/operators")
        steps = [self._train_jobs, self._job_sets, self._jobs, self._ray_clusters, self._kubelet]
        while True:
            await anyio.sleep(rng.uniform(0.2, 2.0))
            sim.server.collect_garbage()
            for step in rng.sample(steps, len(steps)):
                await step(sim, rng)

    async def _below(
        self, sim: Simulation, kind: type[Object], owner: Document, of: type[Object], below: Document
    ) -> None:
        """Create a dependent unless its name is taken, which an operator knows from its cache."""
        references = controlled_by(owner, of.gvk.api_version, of.gvk.kind)
        metadata = {"namespace": "default", "ownerReferences": references, **below["metadata"]}
        if by_name(sim, kind, {"metadata": metadata}) is not None:
            return
        with refusals_expected():
            await sim.client("operator").create(kind.from_dict({**below, "metadata": metadata}))

    async def _train_jobs(self, sim: Simulation, rng: random.Random) -> None:
        for job in sim.server.objects(TrainJob):
            if not is_deleted(job) and not owned(sim, JobSet, job):
                below = {"metadata": {"name": job["metadata"]["name"]}, "spec": _job_set_spec(rng)}
                await self._below(sim, JobSet, job, TrainJob, below)

    async def _job_sets(self, sim: Simulation, _: random.Random) -> None:
        for job_set in sim.server.objects(JobSet):
            names = {each["metadata"]["name"] for each in owned(sim, Job, job_set)}
            for replicated in job_set["spec"]["replicatedJobs"] if not is_deleted(job_set) else ():
                name = f"{job_set['metadata']['name']}-{replicated['name']}-0"
                if name not in names:
                    labels = {REPLICATED_JOB: replicated["name"], JOB_INDEX: "0"}
                    spec = replicated["template"]["spec"]
                    spec = {**spec, "template": {**spec["template"], "metadata": {"labels": labels}}}
                    await self._below(sim, Job, job_set, JobSet, {"metadata": {"name": name}, "spec": spec})

    async def _jobs(self, sim: Simulation, rng: random.Random) -> None:
        for job in sim.server.objects(Job):
            if is_deleted(job):
                continue
            labels = job["spec"]["template"].get("metadata", {}).get("labels", {})
            for _ in range(len(owned(sim, Pod, job)), job["spec"].get("parallelism") or 1):
                await self._hesitate(rng)
                await self._pod(sim, rng, job, Job, labels)

    async def _ray_clusters(self, sim: Simulation, rng: random.Random) -> None:
        for cluster in sim.server.objects(RayCluster):
            if is_deleted(cluster):
                continue
            groups = {each["groupName"]: each["replicas"] for each in cluster["spec"]["workerGroupSpecs"]}
            pods = owned(sim, Pod, cluster)
            for name, count in {"headgroup": 1, **groups}.items():
                present = sum(each["metadata"]["labels"].get(NODE_GROUP) == name for each in pods)
                for _ in range(present, count):
                    await self._hesitate(rng)
                    await self._pod(sim, rng, cluster, RayCluster, {NODE_GROUP: name})

    @staticmethod
    async def _hesitate(rng: random.Random) -> None:
        """Sometimes wait: meanwhile, the owner may be deleted and created again."""
        if rng.random() < 0.1:
            await anyio.sleep(rng.uniform(0.5, 4.0))

    async def add_pod(self, sim: Simulation, rng: random.Random, owner: Document, of: type[Object]) -> None:
        """Create a pod of a workload, which may have been deleted."""
        await self._pod(sim, rng, owner, of, {NODE_GROUP: "workers-0"} if of is RayCluster else {})

    @staticmethod
    def spec_of(kind: type[Object], rng: random.Random) -> Document:
        """Return a spec of random size."""
        return _spec_of(kind, rng)

    async def _pod(
        self, sim: Simulation, rng: random.Random, owner: Document, of: type[Object], labels: Document
    ) -> None:
        metadata = {"name": f"{owner['metadata']['name']}-{rng.getrandbits(24):06x}", "labels": labels}
        await self._below(sim, Pod, owner, of, {"metadata": metadata, "spec": _POD_SPEC})

    async def _kubelet(self, sim: Simulation, rng: random.Random) -> None:
        """Start new pods, and end some running ones."""
        for pod in sim.server.objects(Pod):
            phase = pod.get("status", {}).get("phase")
            if phase is None or (phase == "Running" and rng.random() < self._pods_end):
                after = {**pod, "status": {"phase": "Running" if phase is None else "Succeeded"}}
                with refusals_expected():
                    await sim.client("kubelet").status.update(Pod.from_dict(after))


def _named(sim: Simulation, kind: type[Object], name: str) -> list[Document]:
    """Return the objects of a kind: those with this name, or all if no object has this name."""
    found = sim.server.objects(kind)
    return [each for each in found if each["metadata"]["name"] == name] or found


def _spec_of(kind: type[Object], rng: random.Random) -> Document:
    """Return a spec of random size."""
    if kind is Job:
        return {**_JOB_SPEC, "parallelism": rng.randint(1, 3)}
    if kind is Notebook:
        return {}
    if kind is TrainJob:
        return {"runtimeRef": {"name": "any"}}
    if kind is RayCluster:
        groups = [{"groupName": f"workers-{each}", "replicas": rng.randint(1, 2)} for each in range(2)]
        return {"workerGroupSpecs": groups}
    return _job_set_spec(rng)


def _job_set_spec(rng: random.Random) -> Document:
    jobs = [
        {"name": name, "replicas": 1, "template": {"spec": {**_JOB_SPEC, "parallelism": rng.randint(1, 2)}}}
        for name in ("leader", "workers")
    ]
    order = rng.choice(["AnyOrder", "InOrder"])
    return {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": order}}
