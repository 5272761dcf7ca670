# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSets: one group for each replicated job if the replicated jobs start one after another, else one for the set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON, Unstructured
from controller_runtime.machinery.gojson import quote
from controller_runtime.machinery.quantity import MAX_INT32

from pkg.apis.jobset.v1alpha2 import REPLICATED_JOB_NAME_KEY
from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from . import fields, schedulers
from .delegating import DelegatingGrouper
from .errors import GroupingError, failing
from .grouper import Reads

IN_ORDER: Final = "InOrder"


# +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get;list;watch
class JobSetGrouper(DelegatingGrouper):
    """Groups the pods of a JobSet.

    If the startup order is ``InOrder``, JobSet creates a replicated job only after its predecessor runs, so one group
    for all replicated jobs would wait forever. The same would happen if a replicated job depends on another one,
    because JobSet creates it later. JobSet permits such dependencies only with the startup order ``AnyOrder``.
    """

    name = "JobSet Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Describe the group of the pod's replicated job, or of the whole set.

        The group requires all pods of that job or set, except those that another scheduler binds.

        Raises:
            GroupingError: the set has no name or UID, the pod does not name its replicated job, or the spec is
            malformed.
        """
        uid = owner.metadata.uid
        if not owner.name or not uid:
            raise GroupingError(f"jobset top owner {named(owner)} missing name or UID")
        replicated_job = pod.labels.get(REPLICATED_JOB_NAME_KEY)
        if not replicated_job:
            raise GroupingError(
                f"pod {pod.namespace}/{pod.name} missing required label {quote(REPLICATED_JOB_NAME_KEY)}"
            )
        metadata.name = f"{kai.POD_GROUP_NAME_PREFIX}-{owner.name}-{uid}"
        order, jobs = startup_order(owner), [each for each in entries_of(owner) if isinstance(each, dict)]
        if order in (None, IN_ORDER) or depend_on_others(jobs):
            metadata.name += f"-{replicated_job}"
            own = next((job for job in jobs if name_of(job) == replicated_job), None)
            metadata.min_available = 1 if own is None else _pods(own, owner)
            return
        elsewhere = jobs_bound_elsewhere(pod, jobs)
        total = sum(_pods(job, owner) for job in jobs if name_of(job) and name_of(job) not in elsewhere)
        if total > MAX_INT32:
            raise GroupingError(
                f"total minAvailable too large ({total}) for JobSet {named(owner)}: exceeds int32 max value"
            )
        metadata.min_available = total or 1


def depend_on_others(replicated_jobs: Iterable[Mapping[str, JSON]]) -> bool:
    """Return True if some of the replicated jobs depend on others: JobSet creates the dependent ones later."""
    return any(job.get("dependsOn") for job in replicated_jobs)


def jobs_bound_elsewhere(pod: Pod, replicated_jobs: Iterable[dict[str, JSON]]) -> set[str]:
    """Return the names of the replicated jobs whose pods another scheduler than that of ``pod`` binds."""
    roles = {name_of(job): job for job in replicated_jobs}
    return schedulers.bound_elsewhere(pod, roles, "template", "spec", "template")


def startup_order(job_set: Unstructured) -> str | None:
    """Return the startup order; None if it is not set."""
    with _reading("spec.startupPolicy.startupPolicyOrder", named(job_set)):
        return fields.nested_string(job_set, "spec", "startupPolicy", "startupPolicyOrder")


def entries_of(job_set: Unstructured) -> list[JSON]:
    """Return ``spec.replicatedJobs``."""
    with _reading("spec.replicatedJobs", named(job_set)):
        return fields.nested_list(job_set, "spec", "replicatedJobs") or []


def name_of(replicated_job: Mapping[str, JSON]) -> str:
    """Return the name of a replicated job, or an empty string if the name is missing or malformed."""
    name = replicated_job.get("name")
    return name if isinstance(name, str) else ""


def _pods(replicated_job: dict[str, JSON], job_set: Unstructured) -> int:
    """Return the number of pods that exist at once: replicas times the smaller of parallelism and completions."""
    where = f"{named(job_set)} replicatedJob {name_of(replicated_job)}"
    numbers = []
    for path in (("replicas",), ("template", "spec", "parallelism"), ("template", "spec", "completions")):
        with _reading(".".join(path), where):
            numbers.append(fields.nested_int64(replicated_job, *path))
    replicas, parallelism, completions = numbers
    pods = (1 if replicas is None else max(0, replicas)) * pods_of_job(parallelism, completions)
    if pods > MAX_INT32:
        raise GroupingError(f"minAvailable too large ({pods}) for JobSet {where}: exceeds int32 max value")
    return pods


def pods_of_job(parallelism: int | None, completions: int | None) -> int:
    """Return how many pods of a Job the Job controller keeps at once."""
    at_once = 1 if parallelism is None else parallelism
    return max(0, at_once if completions is None else min(at_once, completions))


def _reading(path: str, where: str) -> AbstractContextManager[None]:
    return failing(f"failed to read {path} from JobSet {where}: ")


def named(job_set: Unstructured) -> str:
    """Return namespace and name, for errors."""
    return f"{job_set.namespace}/{job_set.name}"
