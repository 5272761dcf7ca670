# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The verdict on a TrainJob: its state, a summary in one sentence, and the sorted findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from controller_runtime.machinery import JSON

from pkg.why import activity, kinds
from pkg.why.causes import (
    admission,
    containers,
    controllers,
    deletions,
    expiry,
    images,
    nodes,
    outcome,
    queues,
    references,
    remarks,
    scheduling,
    suspension,
    templates,
    turns,
    volumes,
)
from pkg.why.finding import Finding, found, merged
from pkg.why.liveobject import ago, moment, number
from pkg.why.rules import Severity
from pkg.why.snapshot import NOT_INSTALLED, Snapshot

_LONG: Final = timedelta(minutes=10)
_CAUSES: Final[tuple[Callable[[Snapshot], Iterator[Finding]], ...]] = (
    suspension.find,
    deletions.find,
    admission.find,
    templates.find,
    references.find,
    queues.find,
    volumes.find,
    scheduling.find,
    images.find,
    containers.find,
    nodes.find,
    outcome.find,
    controllers.find,
    controllers.unready_steps,
    remarks.find,
)
"""The order determines which of several findings with the same cause comes first.

Volumes come before scheduling, because the events of a claim contain a reason that schedulers do not know.
"""
_OF_SUSPENDED: Final = (
    suspension.find,
    deletions.find,
    queues.find,
    admission.find,
    controllers.find,
    remarks.find,
)
_REFUSED: Final = (
    "object-invalid",
    "webhook-denied",
    "webhook-unreachable",
    "quota-exceeded",
    "limit-range",
    "pod-security",
    "namespace-terminating",
    "creation-failed",
)
"""The causes of refused Jobs: JobSet's controller reacts, and cannot create them."""
_EXPLAINED_BY: Final = {
    "scheduler-missing": (
        "gang-unavailable",
        "gang-unschedulable",
        "gang-waiting",
        "queue-missing",
        "device-claim-missing",
    ),
    "manager-silent": ("deletion-blocked",),
    "jobset-controller": _REFUSED,
    "creation-failed": ("object-invalid",),
    "job-too-large": ("gang-too-large",),
}
"""A finding whose cause is a key here is dropped if there is a finding with one of the listed causes.

``scheduler-missing``: some gang schedulers report only on the PodGroup, and kube-scheduler does not consider a pod
whose gang is incomplete or whose ResourceClaim does not exist. ``manager-silent``: the manager waits until an object
that has the name of a child is deleted. ``job-too-large``: a gang may start with fewer pods than the TrainJob has.
"""
_OF_KUEUE: Final = (
    "queue-missing",
    "queue-inactive",
    "admission-check",
    "workload-deactivated",
    "workload-evicted",
    "queued",
)
_OF_MANAGED: Final = ("managed-by", "suspended", "namespace-terminating", *_OF_KUEUE)
"""MultiKueue admits a TrainJob in this cluster before another cluster runs it."""


class State(StrEnum):
    """The state of a TrainJob."""

    COMPLETE = "complete"
    RUNNING = "running"
    STARTING = "starting"
    WAITING = "waiting"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a TrainJob and the reasons for it."""

    namespace: str
    name: str
    state: State
    progress: str
    """The state and the number of running pods in words that follow the TrainJob's name: ``runs: 2 of 4 pods``."""
    findings: tuple[Finding, ...]
    unread: tuple[str, ...] = ()
    """The kinds that could not be read, and why."""
    known: tuple[str, ...] = ()
    """What the containers do, if the TrainJob runs or starts."""

    @property
    def exit_code(self) -> int:
        """0 if the TrainJob runs, starts or is complete, 1 if something is wrong, 3 if it waits."""
        return {State.WRONG: 1, State.WAITING: 3}.get(self.state, 0)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        head = f"TrainJob {self.namespace}/{self.name} {self.progress}"
        if self.state in (State.WRONG, State.WAITING):
            return f"{head}: {self.findings[0].summary.rstrip('.')}."
        return f"{head}."

    def to_dict(self) -> dict[str, JSON]:
        """Return the verdict as JSON."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "state": str(self.state),
            "exitCode": self.exit_code,
            "sentence": self.sentence,
            "progress": self.progress,
            "findings": [each.to_dict() for each in self.findings],
            "unread": list(self.unread),
            "known": list(self.known),
        }


def diagnose(snapshot: Snapshot) -> Verdict:
    """Return the verdict on a TrainJob."""
    job = snapshot.train_job
    findings = tuple(merged(list(_findings(snapshot))))
    state, progress = _state(snapshot, findings)
    if state is State.STARTING and not findings and _is_still(snapshot):
        findings, state, progress = (_unexplained(snapshot),), State.WAITING, "waits"
    reasons = [*snapshot.unread.items(), *snapshot.truncated.items()]
    unread = tuple(
        f"{kind}: {reason}" for kind, reason in reasons if reason != NOT_INSTALLED and kind != turns.PENDING
    )
    known = activity.lines(snapshot) if state in (State.RUNNING, State.STARTING) else ()
    return Verdict(job.namespace, job.name, state, progress, findings, unread, tuple(known))


def _findings(snapshot: Snapshot) -> Iterator[Finding]:
    job = snapshot.train_job
    if job.deleted is not None:
        yield from deletions.of_train_job(snapshot)
        return
    if job.is_true("Complete"):
        # A TrainJob without nodes becomes Complete, although no pod has trained.
        yield from (each for each in remarks.find(snapshot) if each.cause == "number-invalid")
        yield from expiry.find(snapshot)
        return
    causes = _CAUSES
    if job.is_true("Failed"):
        causes = (containers.find, nodes.find, images.find, outcome.find, remarks.find, expiry.find)
    elif job.at("spec", "suspend") is True:
        causes = _OF_SUSPENDED
    findings = [each for cause in causes for each in cause(snapshot)]
    if _is_managed(findings):
        findings = list(_of_managed(snapshot, findings))
    causes_found = {each.cause for each in findings}
    yield from (each for each in findings if not causes_found.intersection(_EXPLAINED_BY.get(each.cause, ())))


def _is_managed(findings: Iterable[Finding]) -> bool:
    """Return True if another controller manages the TrainJob, its JobSet or a Job."""
    return any(each.cause == "managed-by" for each in findings)


def _of_managed(snapshot: Snapshot, findings: list[Finding]) -> Iterator[Finding]:
    """Yield the findings that matter although another controller manages the TrainJob.

    The other controller itself is only a note if Kueue has not admitted the TrainJob, or if Jobs are ready.
    """
    is_note = _ready_jobs(snapshot) or any(each.cause in _OF_KUEUE for each in findings)
    for each in findings:
        if each.cause == "managed-by" and is_note:
            yield dataclasses.replace(each, severity=Severity.NOTE)
        elif each.cause in _OF_MANAGED:
            yield each


def _state(snapshot: Snapshot, findings: tuple[Finding, ...]) -> tuple[State, str]:
    """Return the state and the progress in words."""
    job = snapshot.train_job
    if job.is_true("Complete"):
        return State.COMPLETE, "is complete"
    if job.is_true("Failed"):
        return State.WRONG, "has failed"
    running, wanted = len(snapshot.running), max(snapshot.expected, len(snapshot.running))
    counted = f"{running} of {wanted} pods"
    is_hidden = bool(_unread_children(snapshot)) or _is_managed(findings)
    if not running and is_hidden and (ready := _ready_jobs(snapshot)):
        running = wanted = ready
        counted = f"{ready} Job{'s' if ready > 1 else ''} ready, whose pods cannot be read"
    gravest = findings[0].severity if findings else None
    if gravest in (Severity.ERROR, Severity.WAITING):
        state = State.WRONG if gravest is Severity.ERROR else State.WAITING
        if not running:
            return state, "does not run" if state is State.WRONG else "waits"
        return state, f"runs in part ({counted})" if running < wanted else f"runs ({counted}) with a problem"
    return (State.RUNNING, f"runs: {counted}") if running else (State.STARTING, "starts")


def _is_still(snapshot: Snapshot) -> bool:
    """Return True if no object of the TrainJob was created, resumed or ended recently."""
    created = [each.created for each in (*snapshot.owners, *snapshot.pods)]
    resumed = moment(snapshot.train_job.condition("Suspended"), "lastTransitionTime")
    ended = [
        moment(job.condition(kind), "lastTransitionTime")
        for job in snapshot.all_jobs
        for kind in ("Complete", "Failed")
    ]
    last = max(filter(None, (*created, resumed, *ended)), default=None)
    return last is not None and snapshot.now - last > _LONG


def _ready_jobs(snapshot: Snapshot) -> int:
    """Return the number of ready Jobs from the status of the JobSet, or of the TrainJob if there is no JobSet."""
    owner, field = snapshot.train_job, "jobsStatus"
    if snapshot.job_set is not None:
        owner, field = snapshot.job_set, "replicatedJobsStatus"
    return sum(number(each, "ready") for each in owner.maps("status", field))


def _unread_children(snapshot: Snapshot) -> list[str]:
    """Return a line for each of the kinds JobSet, Job and pod that cannot be read. It contains the reason."""
    chain = (kinds.JOB_SET, kinds.JOB, kinds.POD)
    return [f"{kind} cannot be read: {snapshot.unread[kind]}" for kind in chain if kind in snapshot.unread]


def _unexplained(snapshot: Snapshot) -> Finding:
    job, unread = snapshot.train_job, _unread_children(snapshot)
    age, state = ago(job.created, snapshot.now), "no Job is ready" if unread else "no pod runs"
    evidence = [f"{job} is {age} old and {state}", *unread]
    evidence += [f"phase of {pod} is {pod.text('status', 'phase')}" for pod in snapshot.pods[:3]]
    for pod in snapshot.pods[:3]:
        evidence += [snapshot.quote(each) for each in snapshot.events(pod)[:1]]
    seen = activity.watched(snapshot)
    evidence += activity.facts(snapshot, seen)
    if (init := next((each for each in seen if each.is_init), None)) is not None:
        command = containers.logs_command(snapshot, init)
        return found("unexplained/init", init.pod, *evidence, status=init, command=command)
    what = "the pods cannot be read" if unread else "no cause is visible"
    return found("unexplained", job, *evidence, state=state, what=what, job=job)
