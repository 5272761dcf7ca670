# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The live objects of one TrainJob at one moment, and the relations between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, NamedTuple

from pkg.apis.jobset.labels import JOB_INDEX_KEY, JOB_SET_UID_KEY, REPLICATED_JOB_NAME_KEY
from pkg.why import kinds
from pkg.why.liveobject import LiveObject, ago, at, moment, number, text
from pkg.why.terminations import failures

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
PATIENCE: Final = timedelta(seconds=15)
"""A controller that works reacts to a change of an object within this time."""
_SUFFIX: Final = 5
"""The API server appends this many characters to the name of a Job's pod."""
NOT_INSTALLED: Final = "the kind is not installed"
"""The reason that ``Snapshot.unread`` contains for a kind that the cluster does not serve."""

CONTAINER_STEPS: Final = ("Pulling", "Pulled", "Created", "Started")
"""The reasons of the events that are recorded after the sandbox, network and volumes of a pod have been set up."""


class Reference(NamedTuple):
    """An object to which another one refers by name."""

    kind: str
    """Kind and group, as in ``RuntimeClass.node.k8s.io``."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.partition('.')[0]} {self.name}"


@dataclass(frozen=True)
class Snapshot:
    """A TrainJob and everything that we know about it. Deleted objects are not included."""

    train_job: LiveObject
    now: datetime
    objects: Mapping[str, Sequence[LiveObject]] = field(default_factory=dict)
    """Live objects by ``Kind.group``: the objects in the TrainJob's namespace, the nodes, and the objects of
    controllers.
    """
    unread: Mapping[str, str] = field(default_factory=dict)
    """The kinds that could not be read, and why."""
    absent: frozenset[Reference] = frozenset()
    """Objects that were looked up by name and do not exist."""
    logs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """The last lines of a container's log, by pod and container."""
    outputs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """The last lines of the log of a running container with their times, by pod and container."""
    truncated: Mapping[str, str] = field(default_factory=dict)
    """Kinds for which we have read only a part of the objects, with the reason."""
    refused: Mapping[str, str] | None = None
    """The API server's texts about the Jobs or pods that it refuses in a dry run, by name. None if it was not asked."""

    removed_pods: Sequence[LiveObject] = ()
    """Pods of the TrainJob that were removed, as they ended. Only local clusters keep them."""

    def all(self, kind: str) -> Sequence[LiveObject]:
        """Return the objects of a kind."""
        return self.objects.get(kind, ())

    def children(self, kind: str, owners: Iterable[LiveObject]) -> list[LiveObject]:
        """Return the objects of a kind that one of ``owners`` owns."""
        uids = {each.uid for each in owners} - {""}
        return [each for each in self.all(kind) if uids.intersection(each.owner_uids)]

    @cached_property
    def job_set(self) -> LiveObject | None:
        """The JobSet that the TrainJob owns."""
        return next(iter(self.children(kinds.JOB_SET, [self.train_job])), None)

    @cached_property
    def jobs(self) -> list[LiveObject]:
        """The Jobs of the JobSet. Jobs that are just being deleted are left out: JobSet may be creating them again."""
        return [each for each in self.all_jobs if each.deleted is None or self.is_overdue(each)]

    @cached_property
    def all_jobs(self) -> list[LiveObject]:
        """All Jobs of the JobSet. Jobs that were just deleted are included."""
        return self.children(kinds.JOB, [self.job_set]) if self.job_set is not None else []

    @property
    def owners(self) -> list[LiveObject]:
        """The TrainJob, its JobSet and its Jobs."""
        return [self.train_job, *([self.job_set] if self.job_set is not None else []), *self.all_jobs]

    @cached_property
    def all_pods(self) -> list[LiveObject]:
        """The pods of all Jobs. Pods that have been replaced by later pods are included.

        If Jobs cannot be read, these are the pods with the label of the JobSet.
        """
        if kinds.JOB not in self.unread or self.job_set is None:
            return self.children(kinds.POD, self.all_jobs)
        uid = self.job_set.uid
        return [pod for pod in self.all(kinds.POD) if uid and pod.label(JOB_SET_UID_KEY) == uid]

    @cached_property
    def pods(self) -> list[LiveObject]:
        """The newest pod of each completion index of a Job, and all pods without an index."""
        newest: dict[tuple[str, str], LiveObject] = {}
        gone = {each.uid for each in self.all_jobs} - {each.uid for each in self.jobs}
        for pod in sorted(
            (each for each in self.all_pods if not gone.intersection(each.owner_uids)),
            key=lambda each: (each.text("metadata", "creationTimestamp"), each.name),
        ):
            job = next(iter(pod.owner_uids), "")
            newest[job, pod.annotation(COMPLETION_INDEX) or pod.name] = pod
        return list(newest.values())

    @cached_property
    def removed(self) -> list[LiveObject]:
        """The newest removed pod of each completion index of a Job. Pods of earlier runs of the JobSet are left out."""
        existing = {pod.uid for pod in self.all_pods}
        began = {step_of(job): job.created for job in self.jobs}
        newest: dict[tuple[str, str, str], LiveObject] = {}
        for pod in sorted(self.removed_pods, key=lambda each: each.text("metadata", "creationTimestamp")):
            since = began.get(step_of(pod)) or self.train_job.created
            if pod.uid not in existing and not (pod.created and since and pod.created < since):
                index = pod.annotation(COMPLETION_INDEX) or pod.name
                newest[step_of(pod), pod.label(JOB_INDEX_KEY), index] = pod
        return list(newest.values())

    @cached_property
    def failed_ranks(self) -> dict[str, set[int]]:
        """The ranks of each step of which a container failed. Ranks that were only stopped afterwards are left out."""
        found: dict[str, set[int]] = {}
        for pod in (*self.pods, *self.removed):
            if any(True for _ in failures(pod)):
                found.setdefault(step_of(pod), set()).add(rank_of(pod))
        return found

    def is_overdue(self, obj: LiveObject) -> bool:
        """Return True if an object is being deleted and should be gone by now.

        A JobSet and its Jobs exist until the grace periods of their pods have ended.
        """
        graces = () if obj.kind == "Pod" else self._grace_ends
        return obj.deleted is not None and self.now - max([obj.deleted, *graces]) >= PATIENCE

    @cached_property
    def _grace_ends(self) -> list[datetime]:
        """The time at which the grace period of the last pod ends. The list is empty if no pod is being deleted."""
        return sorted(filter(None, (pod.deleted for pod in self.all_pods)))[-1:]

    @cached_property
    def running(self) -> list[LiveObject]:
        """The running pods. A pod whose containers all wait to start does not count, although its phase is Running."""
        return [pod for pod in self.pods if runs(pod)]

    @cached_property
    def expected(self) -> int:
        """The number of pods that the unfinished Jobs should have."""
        return sum(_parallelism(job) for job in self.jobs if not finished(job))

    @property
    def manager_must_act(self) -> bool:
        """True if the manager still has to create the JobSet or to copy ``spec.suspend`` to the JobSet."""
        if kinds.JOB_SET in self.unread:
            return not self.train_job.maps("status", "jobsStatus")  # the manager copies this from the JobSet
        if self.job_set is None:
            return True
        return (self.job_set.at("spec", "suspend") is True) != (self.train_job.at("spec", "suspend") is True)

    def is_hidden(self, kind: str) -> bool:
        """Return True if a kind could not be read although the cluster serves it."""
        return self.unread.get(kind, NOT_INSTALLED) != NOT_INSTALLED

    def missing_pods(self, job: LiveObject) -> int:
        """Return the number of pods that a Job still has to create."""
        if finished(job) or job.at("spec", "suspend") is True:
            return 0
        have = sum(pod.owned_by(job.uid) for pod in self.pods)
        return max(0, _parallelism(job) - number(job.data, "status", "succeeded") - have)

    def spec_is_settled(self, obj: LiveObject) -> bool:
        """Return True if controllers have had enough time to react to the last change of an object's spec."""
        writes = [
            moment(each, "time")
            for each in obj.maps("metadata", "managedFields")
            if at(each, "fieldsV1", "f:spec") is not None
        ]
        last = max(filter(None, [obj.created, *writes]), default=None)
        return last is not None and self.now - last > PATIENCE

    def events(self, obj: LiveObject, *reasons: str) -> list[LiveObject]:
        """Return the events of an object, newest first. Events of an earlier object with the same name are left out."""
        found = self._events.get(obj.uid, ())
        return [each for each in found if not reasons or each.text("reason") in reasons]

    @cached_property
    def _events(self) -> Mapping[str, Sequence[LiveObject]]:
        """All events by the uid of their objects, newest first."""
        found: dict[str, list[LiveObject]] = {}
        for each in sorted(
            self.all(kinds.EVENT), key=lambda each: event_time(each) or self.now, reverse=True
        ):
            found.setdefault(each.text("involvedObject", "uid"), []).append(each)
        return found

    def events_of_removed(self) -> list[LiveObject]:
        """Return the events of removed JobSets, Jobs and pods. Their names show that they belonged to the TrainJob."""
        job = self.train_job
        steps = self.job_set.maps("spec", "replicatedJobs") if self.job_set is not None else []
        prefixes = tuple(
            f"{job.name}-{text(each, 'name')}-" for each in steps or job.maps("status", "jobsStatus")
        )
        existing = {each.uid for each in (*self.owners, *self.all_pods)}
        found: list[LiveObject] = []
        for event in self.all(kinds.EVENT):
            about, seen = event.at("involvedObject"), event_time(event)
            if (
                seen is None
                or (job.created is not None and seen < job.created)
                or text(about, "uid") in existing
            ):
                continue
            kind, name = text(about, "kind"), text(about, "name")
            if (kind, name) == ("JobSet", job.name) or any(
                name.startswith(prefix) and _is_child(kind, name.removeprefix(prefix)) for prefix in prefixes
            ):
                found.append(event)
        return found

    def unresolved(
        self, obj: LiveObject, failures: Sequence[str], successes: Sequence[str]
    ) -> list[LiveObject]:
        """Return the events of failures after the last success, newest first."""
        overcome = max(filter(None, map(event_time, self.events(obj, *successes))), default=None)
        found = self.events(obj, *failures)
        return [each for each in found if overcome is None or (event_time(each) or self.now) >= overcome]

    def quote(self, event: LiveObject) -> str:
        """Return an event as a line of evidence."""
        count = event.number("series", "count") or event.number("count")
        times = f", {count} times" if count > 1 else ""
        subject = f"{event.text('involvedObject', 'kind')} {event.text('involvedObject', 'name')}"
        age = ago(event_time(event), self.now)
        return (
            f"event {event.text('reason')} of {subject} ({age} ago{times}): {event.text('message').strip()}"
        )


def event_time(event: LiveObject) -> datetime | None:
    """Return the time at which an event was last observed."""
    return (
        moment(event.data, "series", "lastObservedTime")
        or moment(event.data, "lastTimestamp")
        or moment(event.data, "eventTime")
        or event.created
    )


def finished(obj: LiveObject) -> bool:
    """Return True if a TrainJob, JobSet or Job is complete or has failed."""
    return any(obj.is_true(kind) for kind in ("Complete", "Completed", "Failed"))


def step_of(pod: LiveObject) -> str:
    """Return the name of a pod's replicated job, or the name of the pod if it has none."""
    return pod.label(REPLICATED_JOB_NAME_KEY) or pod.name


def rank_of(pod: LiveObject) -> int:
    """Return the completion index of a pod, or 0 if it has none."""
    index = pod.annotation(COMPLETION_INDEX)
    return int(index) if index.isascii() and index.isdigit() and len(index) < 8 else 0


def _is_child(kind: str, rest: str) -> bool:
    """Return True if the name of a Job or pod may end with ``rest`` after the name of its step."""
    *numbers, last = rest.split("-")
    if kind == "Pod":
        return len(numbers) in (1, 2) and all(map(str.isdecimal, numbers)) and len(last) == _SUFFIX
    return kind == "Job" and not numbers and last.isdecimal()


def runs(pod: LiveObject) -> bool:
    """Return True if a pod runs and is not being deleted. A pod whose containers all wait to start does not run."""
    if pod.text("status", "phase") != "Running" or pod.deleted is not None:
        return False
    waiting = [at(each, "state", "waiting") is not None for each in pod.maps("status", "containerStatuses")]
    return not waiting or not all(waiting)  # without statuses, the kubelet has reported no container yet


def _parallelism(job: LiveObject) -> int:
    parallelism, completions = job.at("spec", "parallelism"), job.at("spec", "completions")
    wanted = parallelism if isinstance(parallelism, int) else 1
    return min(wanted, completions) if isinstance(completions, int) else wanted


def condition_line(obj: LiveObject, kind: str) -> str:
    """Return a condition as a line of evidence."""
    found = obj.condition(kind)
    shown = ", ".join(each for each in (text(found, "reason"), text(found, "message")) if each)
    return f"condition {kind} of {obj} is {text(found, 'status')}: {shown}"
