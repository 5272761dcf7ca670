# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet for servers in memory: its webhooks, and its controller, which creates, suspends and resumes Jobs.

Unit tests call parts of it at the moment that a test is about; simulations run all of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.client import MERGE, Client, raw_patch
from controller_runtime.machinery import errors
from controller_runtime.machinery.meta import format_time
from controller_runtime.simtest import Review, Simulation

from pkg.apis.jobset.v1alpha2 import RESTARTS_KEY, JobSet
from testkit.sim.objects import (
    controlled_by,
    is_deleted,
    is_suspended,
    is_true,
    owned_by_name,
    refusals_expected,
)

Document = dict[str, Any]
IMMUTABLE = (
    'admission webhook "vjobset.kb.io" denied the request: '
    "spec.replicatedJobs: Invalid value: []: field is immutable"
)
"""The refusal of JobSet's validating webhook."""
_USER = "jobset-controller"
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates")
"""The fields of a pod's spec that may change while a JobSet is suspended."""
_MUTABLE = ("suspend", "coordinator", "ttlSecondsAfterFinished")
_COUNTED = ("active", "ready", "succeeded", "failed", "suspended")
_NOW = "2026-01-01T00:00:00Z"


async def review_job_set(review: Review, *, webhook: bool = True) -> None:
    """Act as JobSet's CRD and its webhooks: set defaults, keep immutable fields.

    Without ``webhook``, only the defaults of the CRD are set.
    """
    if review.subresource or review.new is None:
        return
    spec = review.new.setdefault("spec", {})
    set_defaults(spec, webhook=webhook)
    if webhook and review.old is not None and not _is_allowed(review.old["spec"], spec):
        raise errors.ForbiddenError(IMMUTABLE, code=403, reason="Forbidden")


def set_defaults(spec: Document, *, webhook: bool = True) -> None:
    """Set the defaults of JobSet's CRD in a spec and, with ``webhook``, those of its mutating webhook."""
    if webhook:
        spec.setdefault("network", {}).setdefault("enableDNSHostnames", True)
        spec["network"].setdefault("publishNotReadyAddresses", True)
        spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
        spec.setdefault("successPolicy", {"operator": "All"})
    for job, template in zip(spec.get("replicatedJobs") or (), _pod_templates(spec), strict=True):
        job.setdefault("groupName", "default")
        job.setdefault("replicas", 1)
        if webhook:
            job["template"]["spec"].setdefault("completionMode", "Indexed")
            template["spec"].setdefault("restartPolicy", "OnFailure")


def _is_allowed(old: Document, new: Document) -> bool:
    """Return True if a change of a spec is permitted. Scheduling may change if the JobSet is or becomes suspended."""
    may_move = bool(old.get("suspend") or new.get("suspend"))
    return (may_move or _scheduling(new) == _scheduling(old)) and _fixed(new) == _fixed(old)


def _pod_templates(spec: Document) -> list[Document]:
    """Return the pod template of each replicated job. What is missing in a malformed one is added, and empty."""
    found: list[Document] = []
    for job in spec.get("replicatedJobs") or ():
        found.append(job.setdefault("template", {}).setdefault("spec", {}).setdefault("template", {}))
        found[-1].setdefault("spec", {})
    return found


def _fixed(spec: Document) -> Document:
    copy: Document = msgspec.json.decode(msgspec.json.encode(spec))
    for field in _MUTABLE:
        copy.pop(field, None)
    for template in _pod_templates(copy):
        template.pop("metadata", None)
        for field in _SCHEDULING:
            template["spec"].pop(field, None)
    return copy


def _scheduling(spec: Document) -> list[list[Any]]:
    return [
        [each.get("metadata"), *(each["spec"].get(field) for field in _SCHEDULING)]
        for each in _pod_templates(spec)
    ]


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
        client = sim.client(_USER)
        found = {each["metadata"]["name"]: each for each in owned_by_name(sim, Job, job_set)}
        counts: dict[str, dict[str, int]] = {}
        for replicated in job_set["spec"].get("replicatedJobs") or ():
            jobs = []
            for index in range(replicated.get("replicas") or 1):
                name = f"{job_set['metadata']['name']}-{replicated['name']}-{index}"
                if name in found:
                    await self._follow(client, job_set, replicated, found[name])
                    jobs.append(found[name])
                elif all(counts[each["name"]]["succeeded"] for each in replicated.get("dependsOn") or ()):
                    await client.create(Job.from_dict(_job(job_set, replicated, name)))
                    jobs.append({})
            counts[replicated["name"]] = _counts(jobs)
        jobs, restarts = list(found.values()), job_set.get("status", {}).get("restarts") or 0
        ended, failed = "", any(is_true(job, "Failed") for job in jobs)
        if failed and restarts < self._max_restarts:
            for job in jobs:
                await client.delete(Job.from_dict(job), propagation="Background")
            restarts, counts = restarts + 1, dict.fromkeys(counts, _counts([]))
        elif failed:
            ended = "Failed"
        elif len(jobs) >= len(counts) and all(is_true(job, "Complete") for job in jobs):
            ended = "Completed"
        await report(client, job_set, counts, restarts=restarts, ended=ended, rng=rng)

    @staticmethod
    async def _follow(client: Client, job_set: Document, replicated: Document, job: Document) -> None:
        """Suspend or resume a Job like its JobSet. A resumed Job gets the JobSet's scheduling fields."""
        suspend = is_suspended(job_set)
        if is_suspended(job) == suspend:
            return
        spec: Document = {"suspend": suspend}
        if not suspend:
            pod = replicated["template"]["spec"]["template"]
            scheduling = {field: pod["spec"][field] for field in _SCHEDULING if pod["spec"].get(field)}
            annotations = pod.get("metadata", {}).get("annotations") or {}
            spec["template"] = {"metadata": {"annotations": annotations}, "spec": scheduling}
        await client.patch(Job.from_dict(job), raw_patch(MERGE, msgspec.json.encode({"spec": spec})))


async def report(
    client: Client,
    job_set: Document,
    counts: Mapping[str, Mapping[str, int]],
    *,
    restarts: int = 0,
    ended: str = "",
    rng: random.Random | None = None,
) -> None:
    """Write the status of a JobSet if it is not up to date: the counts of its Jobs, by the names of replicated jobs.

    ``ended`` is the condition with which the JobSet has ended. With ``rng``, the counts are in random order.
    """
    status = job_set.get("status", {})
    suspend = is_suspended(job_set)
    conditions = [each for each in status.get("conditions") or [] if each["type"] != "Suspended"]
    conditions.append(_condition("Suspended", str(suspend), "SuspendedJobs" if suspend else "ResumeJobs"))
    if ended:
        reason = "AllJobsCompleted" if ended == "Completed" else "FailedJobs"
        conditions.append(_condition(ended, "True", reason, format_time(datetime.now(UTC))))
    jobs = [{"name": name, **dict.fromkeys(_COUNTED, 0), **each} for name, each in counts.items()]
    if (
        restarts != (status.get("restarts") or 0)
        or conditions != status.get("conditions")
        or _by_name(jobs) != _by_name(status.get("replicatedJobsStatus") or [])
    ):
        if rng is not None:
            rng.shuffle(jobs)  # the order of a map in Go
        status = {"conditions": conditions, "replicatedJobsStatus": jobs, "restarts": restarts}
        await client.status.update(JobSet.from_dict({**job_set, "status": status}))


def _by_name(statuses: Iterable[Document]) -> list[Document]:
    return sorted(statuses, key=lambda status: str(status["name"]))


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


def _counts(jobs: Sequence[Document]) -> dict[str, int]:
    active = sum(bool(job.get("status", {}).get("active")) for job in jobs)
    succeeded = sum(is_true(job, "Complete") for job in jobs)
    failed = sum(is_true(job, "Failed") for job in jobs)
    suspended = sum(is_suspended(job) for job in jobs)
    return {
        "active": active,
        "ready": active,
        "succeeded": succeeded,
        "failed": failed,
        "suspended": suspended,
    }


def _condition(kind: str, status: str, reason: str, at: str = _NOW) -> Document:
    return {"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": at}
