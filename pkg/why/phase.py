# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The phase of a TrainJob, from its conditions and job counts and, if they are known, its JobSet and pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from controller_runtime.machinery import JSON

from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY
from pkg.constants.trainer import ANCESTOR_TRAINER, LABEL_TRAIN_JOB_ANCESTOR, LAUNCHER, NODE
from pkg.why.causes.statuses import of_pod
from pkg.why.liveobject import LiveObject, ago, at, number, text
from pkg.why.snapshot import Snapshot, finished, runs, step_of

_INITIALIZER: Final = "initializer"
"""The labels and the usual names of the steps that prepare the training end with this word."""


class Phase(StrEnum):
    """The phases, as they are printed."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    DELETING = "Deleting"
    SUSPENDED = "Suspended"
    RUNNING = "Running"
    CRASH_LOOP = "CrashLoop"
    PENDING = "Pending"

    @property
    def ended(self) -> bool:
        """True for ``Complete`` and ``Failed``."""
        return self in (Phase.COMPLETE, Phase.FAILED)

    @property
    def said(self) -> str:
        """The phase as the rest of a sentence: ``is running`` or ``has failed``."""
        return "has failed" if self is Phase.FAILED else f"is {self.lower()}"


class Row(NamedTuple):
    """An object of a TrainJob's tree, and its depth."""

    depth: int
    obj: LiveObject
    status: str
    reason: str = ""


def phase(train_job: LiveObject, job_set: LiveObject | None = None, pods: Iterable[LiveObject] = ()) -> Phase:
    """Return the phase. A TrainJob counts as running only if a pod of a step that trains runs or has succeeded.

    Without pods, the counts in the TrainJob decide: all pods of at least one Job are ready or have succeeded.
    """
    if train_job.deleted is not None:
        return Phase.DELETING
    for each in (Phase.COMPLETE, Phase.FAILED):
        if train_job.is_true(each):
            return each
    if train_job.at("spec", "suspend") is True:
        return Phase.SUSPENDED
    pods = [pod for pod in pods if pod.deleted is None]
    if any(status.waiting == "CrashLoopBackOff" for pod in pods for status in of_pod(pod)):
        return Phase.CRASH_LOOP
    steps = trainer_steps(train_job, job_set)
    for pod in pods:
        if pod.label(REPLICATED_JOB_NAME_KEY) in steps and (
            runs(pod) or pod.text("status", "phase") == "Succeeded"
        ):
            return Phase.RUNNING
    if any(
        (number(each, "ready") or number(each, "succeeded")) and text(each, "name") in steps
        for each in _counts(train_job)
    ):
        return Phase.RUNNING
    return Phase.PENDING


def state(train_job: LiveObject, job_set: LiveObject | None = None, pods: Iterable[LiveObject] = ()) -> str:
    """Return the phase in words.

    The words count the pods of unknown state, whose nodes do not report. While a TrainJob is pending, they say how far
    its initializers are.
    """
    pods = list(pods)
    now = phase(train_job, job_set, pods)
    lost = sum(pod.text("status", "phase") == "Unknown" and pod.deleted is None for pod in pods)
    if lost and not now.ended:
        return f"{now} ({lost} pod{'s' if lost > 1 else ''} lost)"
    trains, labels = trainer_steps(train_job, job_set), step_labels(job_set)
    names = ((text(each, "name"), each) for each in _counts(train_job))
    prepare = [each for name, each in names if name not in trains and _prepares(labels.get(name) or name)]
    if now is not Phase.PENDING or not prepare:
        return now
    done = sum(number(each, "succeeded") > 0 for each in prepare)
    noun = _INITIALIZER if len(prepare) == 1 else f"{_INITIALIZER}s"
    if done == len(prepare):
        return f"{now} ({noun} done)"
    if done:
        return f"{now} ({done} of {len(prepare)} {noun} done)"
    if any(number(each, "ready") for each in prepare):
        return f"{now} ({noun} {'runs' if len(prepare) == 1 else 'run'})"
    return now


def trainer_steps(train_job: LiveObject, job_set: LiveObject | None) -> frozenset[str]:
    """Return the steps that train: those with the label of the trainer in the JobSet.

    Without a JobSet or labels, these are the launcher, or all steps that are not called initializers.
    """
    return frozenset(
        _training(step_labels(job_set) or {text(each, "name"): "" for each in _counts(train_job)})
    )


def training_step(snapshot: Snapshot) -> str:
    """Return the step whose log shows the training.

    With MPI, this is the launcher: the pods of the other step only run an SSH server.
    """
    labels = step_labels(snapshot.job_set)
    for job in snapshot.all_jobs:
        labels.setdefault(step_of(job), job.label(LABEL_TRAIN_JOB_ANCESTOR))
    for pod in (*snapshot.all_pods, *snapshot.removed):
        labels.setdefault(step_of(pod), "")
    steps = _training(labels)
    if LAUNCHER in labels:
        return LAUNCHER
    return NODE if NODE in steps or not steps else steps[0]


def _training(labels: Mapping[str, str]) -> list[str]:
    """Return the steps that train, from the labels of all steps."""
    if labelled := [name for name, label in labels.items() if label == ANCESTOR_TRAINER]:
        return labelled
    return (
        [LAUNCHER] if LAUNCHER in labels else [n for n, label in labels.items() if not _prepares(label or n)]
    )


def _prepares(step: str) -> bool:
    return step.endswith(_INITIALIZER)


def _counts(train_job: LiveObject) -> list[dict[str, JSON]]:
    return train_job.maps("status", "jobsStatus")


def step_labels(job_set: LiveObject | None) -> dict[str, str]:
    """Return the step of the TrainJob that each replicated job carries out, or an empty text for jobs without one."""
    jobs = job_set.maps("spec", "replicatedJobs") if job_set is not None else []
    return {
        text(each, "name"): text(each, "template", "metadata", "labels", LABEL_TRAIN_JOB_ANCESTOR)
        for each in jobs
    }


def tree(snapshot: Snapshot) -> Iterator[Row]:
    """Yield the TrainJob, its JobSet, its Jobs and their pods, each after its owner."""
    yield Row(0, snapshot.train_job, state(snapshot.train_job, snapshot.job_set, snapshot.pods))
    if snapshot.job_set is None:
        return
    yield Row(1, snapshot.job_set, _state(snapshot.job_set))
    for job in sorted(snapshot.all_jobs, key=lambda each: each.name):
        yield Row(2, job, _state(job), _pods(job))
        for pod in sorted(snapshot.all_pods, key=lambda each: each.name):
            if pod.owned_by(job.uid):
                yield Row(3, pod, "Deleting" if pod.deleted else pod.text("status", "phase"), _reason(pod))


def cells(row: Row, now: datetime) -> tuple[str, ...]:
    """Return the printed cells of a row: name, state, age and detail."""
    name = f"{'  ' * row.depth}{row.obj.kind}/{row.obj.name}"
    return name, row.status, ago(row.obj.created, now), row.reason


def _pods(job: LiveObject) -> str:
    """Return the number of ready pods of a Job in words. If the Job has ended, return the number of succeeded pods."""
    state = "succeeded" if finished(job) else "ready"
    return f"{number(job.data, 'status', state)} of {number(job.data, 'spec', 'parallelism')} pods {state}"


def _state(obj: LiveObject) -> str:
    if obj.deleted is not None:
        return "Deleting"
    if finished(obj):
        return "Failed" if obj.is_true("Failed") else "Complete"
    return "Suspended" if obj.at("spec", "suspend") is True else "Active"


def _reason(pod: LiveObject) -> str:
    for status in of_pod(pod) if pod.text("status", "phase") != "Succeeded" else ():
        if status.waiting not in ("", "PodInitializing"):
            return status.waiting
        if status.is_init and at(status.data, "state", "running") is not None and not runs(pod):
            return f"init container {status.name} runs"
        if (ended := status.ended) is not None and number(ended, "exitCode"):
            return f"{text(ended, 'reason')} (exit code {number(ended, 'exitCode')})"
    if pod.text("status", "phase") == "Unknown":
        return f"node {pod.text('spec', 'nodeName')} does not report"
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False":
        return text(scheduled, "reason")
    shown = pod.text("status", "reason") or pod.text("spec", "nodeName")
    restarts = sum(each.restarts for each in of_pod(pod) if not each.is_init)
    return f"{shown}, {restarts} restart{'s' if restarts > 1 else ''}" if restarts else shown
