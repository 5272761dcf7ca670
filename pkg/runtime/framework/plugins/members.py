# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The members of a gang, and how many of them start together.

The pods of some jobs are not members, because these jobs complete before other jobs start: jobs whose completion
another job awaits by ``dependsOn``, and for Kubernetes' own gangs every initializer. A member that starts only when
other members are ready (MPI's launcher) is scheduled after those members. It belongs to the gang but is not counted: if
the gang waited for its pods, the gang would never start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pkg.apis.jobset.v1alpha2 import JobSetSpec, ReplicatedJob
from pkg.constants import trainer as constants
from pkg.runtime.runtime import PodSet

_INITIALIZERS: Final = frozenset({constants.DATASET_INITIALIZER, constants.MODEL_INITIALIZER})
_COMPLETE: Final = "Complete"
_IN_ORDER: Final = "InOrder"


class Member(msgspec.Struct, frozen=True):
    """A job whose pods are members of the gang."""

    job: ReplicatedJob
    pod_set: PodSet
    starts_later: bool
    """True if the job starts only after earlier members have started."""

    @property
    def pods(self) -> int:
        """The number of the job's pods. The trainer's job always has one replica."""
        if self.pod_set.ancestor == constants.ANCESTOR_TRAINER:
            return self.pod_set.count
        return self.pod_set.count * (1 if self.job.replicas is None else self.job.replicas)


def awaited(jobs: Iterable[ReplicatedJob]) -> set[str]:
    """Return the names of the jobs that complete before another job starts."""
    return {each.name for job in jobs for each in job.depends_on or () if each.status == _COMPLETE}


def members(
    spec: JobSetSpec, pod_sets: Sequence[PodSet], *, initializers_may_be: bool = False
) -> list[Member]:
    """Return the gang's jobs in the template's order.

    Initializers on whose completion no job waits are members only if ``initializers_may_be`` is set.
    """
    jobs = spec.replicated_jobs or []
    before = awaited(jobs)
    found: list[Member] = []
    for job, pod_set in zip(jobs, pod_sets, strict=True):
        if job.name in before or (pod_set.ancestor in _INITIALIZERS and not initializers_may_be):
            continue
        found.append(Member(job, pod_set, starts_later=_starts_later(spec, job, found)))
    return found


def min_count(gang: Iterable[Member]) -> int:
    """Return the number of pods that start together."""
    return sum(member.pods for member in gang if not member.starts_later)


def priority_class(gang: Iterable[Member]) -> str | None:
    """Return the PriorityClass of the last job that names a PriorityClass, or None."""
    named = [member.job.template.spec.template.spec.priority_class_name for member in gang]
    return next((name for name in reversed(named) if name), None)


def _starts_later(spec: JobSetSpec, job: ReplicatedJob, earlier: Sequence[Member]) -> bool:
    policy = spec.startup_policy
    if policy is not None and policy.startup_policy_order == _IN_ORDER:
        return bool(earlier)
    dependencies = {each.name: each.depends_on or () for each in spec.replicated_jobs or ()}
    waits_for: set[str] = set()
    pending = [each.name for each in job.depends_on or ()]
    while pending:  # a job may depend on a member through a job that is no member
        if (name := pending.pop()) not in waits_for:
            waits_for.add(name)
            pending += [each.name for each in dependencies.get(name, ())]
    return any(member.job.name in waits_for for member in earlier)
