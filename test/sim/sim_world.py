# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Models of what surrounds the manager in a cluster: JobSet's controller and webhook, the Job controller, kubelets, users."""

from __future__ import annotations

import random
from typing import Any

import anyio
import msgspec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery import errors
from controller_runtime.client import MERGE, ignore_not_found, merge_from, raw_patch
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.history import Event
from controller_runtime.simtest.server import Review

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.jobsetrule import JobSetRule

Document = dict[str, Any]


def owned(sim: Simulation, kind: Any, owner: Document) -> list[Document]:
    """Return the objects of a kind whose controller is ``owner``, as they are stored."""
    uid = owner["metadata"]["uid"]
    return [
        each
        for each in sim.server.objects(kind)
        if any(
            ref.get("uid") == uid and ref.get("controller")
            for ref in each["metadata"].get("ownerReferences") or ()
        )
    ]


def is_deleted(document: Document) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))


def is_true(document: Document, condition: str) -> bool:
    conditions = document.get("status", {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def controller_of(owner: Document, api_version: str, kind: str) -> list[Document]:
    metadata = owner["metadata"]
    reference = {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]


async def refuse_changes_of_job_sets(review: Review) -> None:
    """JobSet's webhooks: defaults, and no change of what is fixed."""
    if review.subresource or review.new is None:
        return
    spec = review.new.setdefault("spec", {})
    if review.operation == "CREATE":
        spec.setdefault("network", {}).setdefault("enableDNSHostnames", True)
        spec["network"].setdefault("publishNotReadyAddresses", True)
        spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
        spec.setdefault("successPolicy", {"operator": "All"})
        for job in spec.get("replicatedJobs") or ():
            job.setdefault("groupName", "default")
            job.setdefault("replicas", 1)
            job["template"]["spec"].setdefault("completionMode", "Indexed")
            job["template"]["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
    elif review.old is not None and not JobSetRule(review.old).keeps(review.new):
        name = review.new["metadata"]["name"]
        raise errors.InvalidError(
            f'JobSet.jobset.x-k8s.io "{name}" is invalid: spec.replicatedJobs: field is immutable',
            code=422,
            reason="Invalid",
        )


class Cluster:
    """The controllers beside ours."""

    def __init__(self, pods_fail: float = 0.1) -> None:
        self._pods_fail = pods_fail
        self._run_for: dict[str, float] = {}
        """By a pod's uid, when it ends."""
        self._changed = True

    async def run(self, sim: Simulation) -> None:
        """Look at everything again and again, as slowly as the world does."""
        rng = random.Random(f"{sim.seed}/cluster")
        sim.server.history.listeners.append(self._note)
        while True:
            await anyio.sleep(rng.uniform(0.2, 1.6))
            if not (self._changed or self._is_due(sim)):
                continue
            self._changed = False
            for step in rng.sample([self._job_sets, self._jobs, self._kubelets, self._garbage], 4):
                try:
                    await step(sim, rng)
                except errors.StatusError as error:
                    self._changed = True
                    if not isinstance(
                        error, errors.ConflictError | errors.NotFoundError | errors.AlreadyExistsError
                    ):
                        raise

    def _note(self, event: Event) -> None:
        self._changed = self._changed or event.table.facts.gvk.kind not in ("Lease", "Event")

    def _is_due(self, sim: Simulation) -> bool:
        return any(due <= sim.loop.time() for due in self._run_for.values())

    async def _garbage(self, sim: Simulation, _: random.Random) -> None:
        sim.server.collect_garbage()

    async def _job_sets(self, sim: Simulation, _: random.Random) -> None:
        client = sim.client("jobset-controller")
        for job_set in sim.server.objects(JobSet):
            if is_deleted(job_set) or is_true(job_set, "Completed") or is_true(job_set, "Failed"):
                continue
            jobs = {each["metadata"]["name"]: each for each in owned(sim, Job, job_set)}
            suspend = bool(job_set["spec"].get("suspend"))
            statuses = []
            for replicated in job_set["spec"].get("replicatedJobs") or ():
                found = []
                for index in range(replicated.get("replicas") or 1):
                    name = f"{job_set['metadata']['name']}-{replicated['name']}-{index}"
                    job = jobs.get(name)
                    if job is None:
                        await client.create(
                            Job.from_dict(self._job(job_set, replicated, name, suspend=suspend))
                        )
                    elif bool(job["spec"].get("suspend")) != suspend:
                        patch = {"spec": {"suspend": suspend}}
                        await client.patch(Job.from_dict(job), raw_patch(MERGE, msgspec.json.encode(patch)))
                    found.append(job or {})
                statuses.append(self._status_of(replicated["name"], found))
            await self._write_status(sim, job_set, statuses, list(jobs.values()), suspend=suspend)

    @staticmethod
    def _job(job_set: Document, replicated: Document, name: str, *, suspend: bool) -> Document:
        spec = {**replicated["template"]["spec"], "suspend": suspend}
        metadata = {
            "namespace": job_set["metadata"]["namespace"],
            "name": name,
            "labels": {"jobset.sigs.k8s.io/jobset-name": job_set["metadata"]["name"]},
            "ownerReferences": controller_of(job_set, "jobset.x-k8s.io/v1alpha2", "JobSet"),
        }
        return {"metadata": metadata, "spec": spec}

    @staticmethod
    def _status_of(name: str, jobs: list[Document]) -> Document:
        active = sum(bool(job.get("status", {}).get("active")) for job in jobs)
        succeeded = sum(is_true(job, "Complete") for job in jobs if job)
        failed = sum(is_true(job, "Failed") for job in jobs if job)
        suspended = sum(bool(job.get("spec", {}).get("suspend")) for job in jobs)
        return {
            "name": name, "active": active, "ready": active, "succeeded": succeeded, "failed": failed, "suspended": suspended,
        }  # fmt: skip

    async def _write_status(
        self,
        sim: Simulation,
        job_set: Document,
        statuses: list[Document],
        jobs: list[Document],
        *,
        suspend: bool,
    ) -> None:
        conditions = [
            each for each in job_set.get("status", {}).get("conditions") or [] if each["type"] != "Suspended"
        ]
        now = "2026-01-01T00:00:00Z"

        def condition(kind: str, status: str, reason: str) -> None:
            conditions.append(
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": reason,
                    "lastTransitionTime": now,
                }
            )

        condition("Suspended", str(suspend), "SuspendedJobs" if suspend else "ResumeJobs")
        wanted = len(job_set["spec"].get("replicatedJobs") or ())
        if any(is_true(job, "Failed") for job in jobs):
            condition("Failed", "True", "FailedJobs")
        elif jobs and len(jobs) >= wanted and all(is_true(job, "Complete") for job in jobs):
            condition("Completed", "True", "AllJobsCompleted")
        status = {"conditions": conditions, "replicatedJobsStatus": statuses, "restarts": 0}
        if status != job_set.get("status"):
            after = JobSet.from_dict({**job_set, "status": status})
            await sim.client("jobset-controller").status.update(after)

    async def _jobs(self, sim: Simulation, rng: random.Random) -> None:
        client = sim.client("job-controller")
        for job in sim.server.objects(Job):
            if is_deleted(job) or is_true(job, "Complete") or is_true(job, "Failed"):
                continue
            pods = owned(sim, Pod, job)
            count = job["spec"].get("parallelism") or 1
            if job["spec"].get("suspend"):
                for pod in pods:
                    if not is_deleted(pod):
                        await client.delete(Pod.from_dict(pod))
            else:
                for index in range(len(pods), count):
                    await client.create(Pod.from_dict(self._pod(job, index, rng)))
            phases = [pod.get("status", {}).get("phase") for pod in pods if not is_deleted(pod)]
            status: Document = {"active": sum(phase not in ("Succeeded", "Failed") for phase in phases)}
            if "Failed" in phases:
                status["conditions"] = [
                    {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
                ]
            elif phases.count("Succeeded") >= count:
                status["conditions"] = [{"type": "Complete", "status": "True", "reason": "Completed"}]
            if status != job.get("status", {}):
                await client.status.update(Job.from_dict({**job, "status": status}))

    @staticmethod
    def _pod(job: Document, index: int, rng: random.Random) -> Document:
        template = job["spec"]["template"]
        metadata = {
            "namespace": job["metadata"]["namespace"],
            "name": f"{job['metadata']['name']}-{index}-{rng.getrandbits(24):06x}",
            "labels": template.get("metadata", {}).get("labels") or {},
            "ownerReferences": controller_of(job, "batch/v1", "Job"),
        }
        return {"metadata": metadata, "spec": template["spec"]}

    async def _kubelets(self, sim: Simulation, rng: random.Random) -> None:
        client = sim.client("kubelet")
        for pod in sim.server.objects(Pod):
            obj = Pod.from_dict(pod)
            if is_deleted(pod):
                self._run_for.pop(pod["metadata"]["uid"], None)
                with ignore_not_found():
                    await client.delete(obj, grace_period_seconds=0)
                continue
            phase = pod.get("status", {}).get("phase")
            uid = pod["metadata"]["uid"]
            if phase in ("Succeeded", "Failed"):
                self._run_for.pop(uid, None)
                continue
            due = self._run_for.setdefault(uid, sim.loop.time() + rng.uniform(1, 40))
            wanted = "Running"
            if sim.loop.time() >= due:
                wanted = "Failed" if rng.random() < self._pods_fail else "Succeeded"
            if phase != wanted:
                changed = obj.deep_copy()
                changed.status.phase = wanted
                await client.status.patch(changed, merge_from(obj))


class Users:
    """What people and queues do to TrainJobs."""

    def __init__(self, names: int = 6) -> None:
        self._names = names
        self._version = 0

    def register(self, sim: Simulation) -> None:
        """Have them work."""
        sim.action(self.create, times=10)
        sim.action(self.edit, times=8)
        sim.action(self.suspend, times=6)
        sim.action(self.resume, times=10)
        sim.action(self.delete, times=4)

    def _image(self) -> str:
        self._version += 1
        return f"image:{self._version}"

    def _name(self, rng: random.Random) -> str:
        return f"job-{rng.randrange(self._names)}"

    async def create(self, sim: Simulation, rng: random.Random) -> None:
        spec = {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "plain",
            },
            "trainer": {"image": self._image(), "numNodes": rng.choice([1, 1, 2])},
            "suspend": rng.random() < 0.4,
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
        }
        metadata = {"namespace": "default", "name": self._name(rng)}
        try:
            await sim.client().create(TrainJob.from_dict({"metadata": metadata, "spec": spec}))
        except errors.AlreadyExistsError:
            return

    async def _patch(self, sim: Simulation, rng: random.Random, spec: Document) -> None:
        job = TrainJob.from_dict({"metadata": {"namespace": "default", "name": self._name(rng)}})
        try:
            await sim.client().patch(job, raw_patch(MERGE, msgspec.json.encode({"spec": spec})))
        except (errors.NotFoundError, errors.ForbiddenError, errors.InvalidError):
            return

    async def edit(self, sim: Simulation, rng: random.Random) -> None:
        await self._patch(sim, rng, {"trainer": {"image": self._image()}})

    async def suspend(self, sim: Simulation, rng: random.Random) -> None:
        await self._patch(sim, rng, {"suspend": True})

    async def resume(self, sim: Simulation, rng: random.Random) -> None:
        await self._patch(
            sim,
            rng,
            {"suspend": False, **({"trainer": {"image": self._image()}} if rng.random() < 0.3 else {})},
        )

    async def delete(self, sim: Simulation, rng: random.Random) -> None:
        job = TrainJob.from_dict({"metadata": {"namespace": "default", "name": self._name(rng)}})
        with ignore_not_found():
            await sim.client().delete(job, propagation=rng.choice([None, "Foreground", "Background", "Orphan"]))
