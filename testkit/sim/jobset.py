# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A model of JobSet: its webhooks, and its controller, which creates, suspends and resumes Jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import errors
from controller_runtime.machinery.meta import format_time
from controller_runtime.simtest import Review, Simulation

from pkg.apis.jobset.v1alpha2 import RESTARTS_KEY, JobSet
from testkit.jobsetwebhook import SCHEDULING, is_allowed, pod_templates, set_defaults
from testkit.sim.objects import (
    controlled_by,
    is_deleted,
    is_suspended,
    is_true,
    owned_by_name,
    refusals_expected,
)

Document = dict[str, Any]
_USER = "jobset-controller"
DENIED = "DENIED"
"""The name of a variable that an admission policy denies."""
_NOW = "2026-01-01T00:00:00Z"


async def review_job_set(review: Review) -> None:
    """Act as the webhooks of a policy and of JobSet: refuse a variable, set defaults, keep immutable fields."""
    if review.subresource or review.new is None:
        return
    spec = review.new.setdefault("spec", {})
    if any(each["name"] == DENIED for each in _environment(spec)) and review.new != review.old:
        text = f'admission webhook "policy.example.com" denied the request: {DENIED} is not allowed'
        raise errors.ForbiddenError(text, code=403, reason="Forbidden")
    if review.operation == "CREATE":
        set_defaults(spec)
    elif review.old is not None and not is_allowed(review.old["spec"], spec):
        name = review.new["metadata"]["name"]
        text = f'JobSet.jobset.x-k8s.io "{name}" is invalid: spec.replicatedJobs: field is immutable'
        raise errors.InvalidError(text, code=422, reason="Invalid")


def _environment(spec: Document) -> Iterator[Document]:
    for template in pod_templates(spec):
        for container in template["spec"].get("containers") or ():
            yield from container.get("env") or ()


class JobSets:
    """JobSet's controller. It restarts a JobSet with a failed Job up to ``max_restarts`` times."""

    def __init__(self, max_restarts: int = 0) -> None:
        self._max_restarts = max_restarts

    async def step(self, sim: Simulation, rng: random.Random) -> None:
        """Bring the Jobs and the status of every JobSet up to date."""
        for job_set in sim.server.objects(JobSet):
            if not (is_deleted(job_set) or is_true(job_set, "Completed") or is_true(job_set, "Failed")):
                with refusals_expected():
                    await self._reconcile(sim, job_set, rng)

    async def _reconcile(self, sim: Simulation, job_set: Document, rng: random.Random) -> None:
        found = {each["metadata"]["name"]: each for each in owned_by_name(sim, Job, job_set)}
        statuses: dict[str, Document] = {}
        for replicated in job_set["spec"].get("replicatedJobs") or ():
            jobs = []
            for index in range(replicated.get("replicas") or 1):
                name = f"{job_set['metadata']['name']}-{replicated['name']}-{index}"
                if name in found:
                    await self._follow(sim, job_set, replicated, found[name])
                    jobs.append(found[name])
                elif _may_start(replicated, statuses):
                    await sim.client(_USER).create(Job.from_dict(_job(job_set, replicated, name)))
                    jobs.append({})
            statuses[replicated["name"]] = _status_of(replicated["name"], jobs)
        await self._write_status(sim, job_set, list(statuses.values()), list(found.values()), rng)

    @staticmethod
    async def _follow(sim: Simulation, job_set: Document, replicated: Document, job: Document) -> None:
        """Suspend or resume a Job like its JobSet. A resumed Job gets the JobSet's scheduling fields."""
        suspend = is_suspended(job_set)
        if is_suspended(job) == suspend:
            return
        spec: Document = {"suspend": suspend}
        if not suspend:
            pod = replicated["template"]["spec"]["template"]
            scheduling = {field: pod["spec"][field] for field in SCHEDULING if pod["spec"].get(field)}
            annotations = pod.get("metadata", {}).get("annotations") or {}
            spec["template"] = {"metadata": {"annotations": annotations}, "spec": scheduling}
        patch = raw_patch(MERGE, msgspec.json.encode({"spec": spec}))
        await sim.client(_USER).patch(Job.from_dict(job), patch)

    async def _write_status(
        self,
        sim: Simulation,
        job_set: Document,
        statuses: list[Document],
        jobs: list[Document],
        rng: random.Random,
    ) -> None:
        status = job_set.get("status", {})
        conditions = [each for each in status.get("conditions") or [] if each["type"] != "Suspended"]
        suspend = is_suspended(job_set)
        conditions.append(_condition("Suspended", str(suspend), "SuspendedJobs" if suspend else "ResumeJobs"))
        wanted, now = len(job_set["spec"].get("replicatedJobs") or ()), format_time(datetime.now(UTC))
        failed, restarts = any(is_true(job, "Failed") for job in jobs), status.get("restarts") or 0
        if failed and restarts < self._max_restarts:
            for job in jobs:
                await sim.client(_USER).delete(Job.from_dict(job), propagation="Background")
            failed, restarts = False, restarts + 1
            statuses = [_status_of(each["name"], []) for each in statuses]
        if failed:
            conditions.append(_condition("Failed", "True", "FailedJobs", now))
        elif len(jobs) >= wanted and all(is_true(job, "Complete") for job in jobs):
            conditions.append(_condition("Completed", "True", "AllJobsCompleted", now))
        if (
            restarts != (status.get("restarts") or 0)
            or conditions != status.get("conditions")
            or sorted(statuses, key=_name) != sorted(status.get("replicatedJobsStatus") or [], key=_name)
        ):
            rng.shuffle(statuses)  # the order of a map in Go
            status = {"conditions": conditions, "replicatedJobsStatus": statuses, "restarts": restarts}
            await sim.client(_USER).status.update(JobSet.from_dict({**job_set, "status": status}))


def _name(status: Document) -> str:
    return str(status["name"])


def _may_start(replicated: Document, statuses: dict[str, Document]) -> bool:
    """Return True if the jobs that a replicated job depends on are complete."""
    return all(statuses[each["name"]]["succeeded"] for each in replicated.get("dependsOn") or ())


def _job(job_set: Document, replicated: Document, name: str) -> Document:
    template = replicated["template"]
    spec = {**template["spec"], "suspend": is_suspended(job_set)}
    metadata = {
        "namespace": job_set["metadata"]["namespace"],
        "name": name,
        "labels": {
            "jobset.sigs.k8s.io/jobset-name": job_set["metadata"]["name"],
            RESTARTS_KEY: str(job_set.get("status", {}).get("restarts") or 0),
        },
        "ownerReferences": controlled_by(job_set, "jobset.x-k8s.io/v1alpha2", "JobSet"),
    }
    return {"metadata": metadata, "spec": spec}


def _status_of(name: str, jobs: list[Document]) -> Document:
    active = sum(bool(job.get("status", {}).get("active")) for job in jobs)
    succeeded = sum(is_true(job, "Complete") for job in jobs)
    failed = sum(is_true(job, "Failed") for job in jobs)
    suspended = sum(is_suspended(job) for job in jobs)
    counts = {"active": active, "ready": active, "succeeded": succeeded, "failed": failed}
    return {"name": name, **counts, "suspended": suspended}


def _condition(kind: str, status: str, reason: str, at: str = _NOW) -> Document:
    return {"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": at}
