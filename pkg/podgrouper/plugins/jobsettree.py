# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSets by the rules of v0.17: one group. Each replicated job is a subgroup, and contains a subgroup per replica.

A replicated job has a group of its own if another replicated job waits until it is complete. If both were in one group,
the scheduler of v0.17 would still choose the completed job to fulfil the group's minimum, and would never bind the pods
of the other job. It has a group of its own, too, if another scheduler binds its pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON, Unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.gojson import quote

from pkg.apis.jobset.v1alpha2 import JOB_INDEX_KEY, REPLICATED_JOB_NAME_KEY
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata, SubGroupMetadata

from . import fields, segments
from .delegating import DelegatingGrouper
from .errors import GroupingError, failing
from .gonumbers import parse_int32
from .grouper import Reads
from .jobset import (
    IN_ORDER,
    depend_on_others,
    entries_of,
    jobs_bound_elsewhere,
    name_of,
    named,
    pods_of_job,
    startup_order,
)

READY: Final = "Ready"

_Job = dict[str, JSON]


class JobSetTreeGrouper(DelegatingGrouper):
    """Groups the pods of a JobSet.

    An annotation sets how many replicated jobs the group requires; the default is all of them. If JobSet creates some
    of them only after others are ready, the default is one.

    If the JobSet already has a group without subgroups, which the rules of v0.13 create, its groups stay without
    subgroups.
    """

    name = "JobSet Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Add the tree of subgroups, and put the pod into the subgroup of its replica.

        Raises:
            GroupingError: the set has no name or UID, its spec or an annotation is malformed, it has too many replicas,
            or the labels of the pod do not name a replica.
            StatusError: looking for a group without subgroups failed.
        """
        uid = owner.metadata.uid
        if not owner.name or not uid:
            raise GroupingError(f"jobset top owner {named(owner)} missing name or UID")
        jobs: list[_Job] = []
        for index, entry in enumerate(entries_of(owner)):
            if not isinstance(entry, dict):
                raise GroupingError(f"replicatedJobs[{index}] is not an object")
            jobs.append(entry)
        if not jobs:
            raise GroupingError(f"jobset {named(owner)} has no replicatedJobs")
        metadata.name = f"{kai.POD_GROUP_NAME_PREFIX}-{owner.name}-{uid}"
        if await self._has_flat_group(metadata, jobs):
            _flatten(metadata, owner, jobs, pod)
            return
        own_job = pod.labels.get(REPLICATED_JOB_NAME_KEY)
        names = frozenset(map(name_of, jobs))
        # The replicated jobs that must complete before another one is created.
        awaited = {name for job in jobs for name, status in _dependencies(job) if status != READY}
        apart = awaited | jobs_bound_elsewhere(pod, jobs)
        dependencies = {name_of(job): [name for name, _ in _dependencies(job)] for job in jobs}
        if own_job in apart:
            metadata.name += f"-{own_job}"
            jobs = [job for job in jobs if name_of(job) == own_job]
        else:
            jobs = [job for job in jobs if name_of(job) not in apart]
        jobs = [job for job in jobs if name_of(job) == own_job or (_replicas(job) and _needed_pods(job))]
        metadata.min_sub_group = _required_jobs(owner, jobs, dependencies)
        metadata.min_available = 0
        metadata.sub_groups = _tree(owner, jobs, names)
        leaf = _leaf_name(_label(pod, REPLICATED_JOB_NAME_KEY), _label(pod, JOB_INDEX_KEY), names)
        own = next((each for each in metadata.sub_groups if each.name == leaf), None)
        if own is None:
            raise GroupingError(f"leaf subgroup {quote(leaf)} not found for pod {pod.namespace}/{pod.name}")
        own.pods_references.append(pod.name)

    async def _has_flat_group(self, metadata: Metadata, jobs: list[_Job]) -> bool:
        """Return True if the set, or one of its replicated jobs, has a group without subgroups."""
        names = dict.fromkeys(f"{metadata.name}-{name}" for job in jobs if (name := name_of(job)))
        for name in (metadata.name, *names):
            try:
                group = (await client.peek(self._client, PodGroup, (metadata.namespace, name))).object
            except NotFoundError:
                continue
            if not group.spec.sub_groups:
                return True
        return False


def _flatten(metadata: Metadata, job_set: Unstructured, jobs: list[_Job], pod: Pod) -> None:
    """Describe a group without subgroups.

    If replicated jobs start one after another, each replicated job has its own group. Otherwise there is one group for
    the whole set.
    """
    replicated_job = _label(pod, REPLICATED_JOB_NAME_KEY)
    if startup_order(job_set) == IN_ORDER or depend_on_others(jobs):
        metadata.name += f"-{replicated_job}"
    if (text := job_set.annotations.get(kai.MIN_MEMBER_KEY)) is not None:
        try:
            metadata.min_available = parse_int32(text)
        except ValueError as error:
            raise GroupingError(f"invalid {kai.MIN_MEMBER_KEY} annotation value: {error}") from error


def _dependencies(job: _Job) -> list[tuple[str, JSON]]:
    """Return the name and the awaited status of each replicated job that this one depends on."""
    entries = job.get("dependsOn")
    return [
        (name, entry.get("status"))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str)
    ]


def _required_jobs(job_set: Unstructured, jobs: list[_Job], dependencies: Mapping[str, list[str]]) -> int:
    """Return how many of ``jobs`` the group requires. ``dependencies`` are those of all replicated jobs."""
    names = set(map(name_of, jobs))
    pending, waits_for = [each for name in names for each in dependencies[name]], set[str]()
    while pending:  # a job may depend on another one through a job that has a group of its own
        if (name := pending.pop()) not in waits_for:
            waits_for.add(name)
            pending += dependencies.get(name, ())
    await_each_other = not names.isdisjoint(waits_for)
    at_once = 1 if startup_order(job_set) == IN_ORDER or await_each_other else len(jobs)
    text = job_set.annotations.get(kai.MIN_MEMBER_KEY)
    return at_once if text is None else min(_at_least_one(text, "JobSet"), at_once)


def _tree(job_set: Unstructured, jobs: list[_Job], names: frozenset[str]) -> list[SubGroupMetadata]:
    """Return the subgroups. After the subgroup of each replicated job come the subgroups of its replicas.

    ``names`` are those of all replicated jobs of the set, even those that are not in the group. The webhook of v0.17
    refuses two subgroups of the same name, and a subgroup that requires subgroups but contains none.
    """
    groups: list[SubGroupMetadata] = []
    leaves = 0
    for index, job in enumerate(jobs):
        if not (name := name_of(job)):
            raise GroupingError(f"replicatedJobs[{index}] missing name")
        replicas = _replicas(job)
        needed = _needed_pods(job)
        levels = (kai.TOPOLOGY_KEY, kai.TOPOLOGY_REQUIRED_PLACEMENT_KEY, kai.TOPOLOGY_PREFERRED_PLACEMENT_KEY)
        constraint = segments.placement(*(_template_annotation(job, key) for key in levels))
        leaves += replicas
        if leaves > segments.MAX_SUBGROUPS_V0_17:
            raise GroupingError(
                f"JobSet {named(job_set)}: replicatedJobs[{index}].replicas: {replicas} is too large: a pod group has"
                f" at most {segments.MAX_SUBGROUPS_V0_17} replicas of all replicated jobs"
            )
        groups.append(SubGroupMetadata(name=name, min_sub_group=replicas))
        groups += [
            SubGroupMetadata(
                name=_leaf_name(name, replica, names),
                parent=name,
                min_available=needed,
                topology_constraints=constraint,
            )
            for replica in range(replicas)
        ]
    return groups


def _replicas(job: _Job) -> int:
    with failing("failed to read replicatedJob.replicas: "):
        replicas = fields.nested_int32(job, "replicas")
    return 1 if replicas is None else max(0, replicas)


def _needed_pods(job: _Job) -> int:
    with failing("failed to read template.spec.parallelism: "):
        parallelism = fields.nested_int32(job, "template", "spec", "parallelism")
    with failing("failed to read template.spec.completions: "):
        completions = fields.nested_int32(job, "template", "spec", "completions")
    with failing(f"failed to read template annotation {kai.MIN_MEMBER_KEY}: "):
        text = _template_annotation(job, kai.MIN_MEMBER_KEY)
    pods = pods_of_job(parallelism, completions)
    return min(_at_least_one(text, "replicatedJob template"), pods) if text else pods


def _template_annotation(job: _Job, key: str) -> str:
    with failing(f"failed to read template annotation {key}: "):
        return fields.nested_string(job, "template", "metadata", "annotations", key) or ""


def _at_least_one(text: str, where: str) -> int:
    prefix = f"invalid {kai.MIN_MEMBER_KEY} annotation on {where}: "
    try:
        number = parse_int32(text)
    except ValueError as error:
        raise GroupingError(f"{prefix}{error}") from error
    if number < 1:
        raise GroupingError(f"{prefix}value {number} must be >= 1")
    return number


def _label(pod: Pod, key: str) -> str:
    if not (value := pod.labels.get(key)):
        raise GroupingError(f"pod {pod.namespace}/{pod.name} missing required label {quote(key)}")
    return value


def _leaf_name(replicated_job: str, replica: int | str, taken: frozenset[str]) -> str:
    """Return the name of the subgroup of a replica, which is none of the names ``taken`` by replicated jobs."""
    name = f"{replicated_job}-replica-{replica}"
    while name in taken:
        name += "-x"
    return name
