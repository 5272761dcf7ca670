# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The phase of a TrainJob, from its own conditions and job counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from pkg.why.causes.statuses import of_pod
from pkg.why.liveobject import LiveObject, ago, number, text
from pkg.why.snapshot import Snapshot, finished


class Phase(StrEnum):
    """The phases, as they are printed."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    DELETING = "Deleting"
    SUSPENDED = "Suspended"
    RUNNING = "Running"
    PENDING = "Pending"

    @property
    def ended(self) -> bool:
        """True for ``Complete`` and ``Failed``."""
        return self in (Phase.COMPLETE, Phase.FAILED)


class Row(NamedTuple):
    """An object of a TrainJob's tree, and its depth."""

    depth: int
    obj: LiveObject
    status: str
    reason: str = ""


def phase(train_job: LiveObject) -> Phase:
    """Return the phase. A TrainJob counts as running if all pods of at least one Job are ready or have succeeded."""
    if train_job.deleted is not None:
        return Phase.DELETING
    for each in (Phase.COMPLETE, Phase.FAILED):
        if train_job.is_true(each):
            return each
    if train_job.at("spec", "suspend") is True:
        return Phase.SUSPENDED
    counts = train_job.maps("status", "jobsStatus")
    if any(number(each, "ready") or number(each, "succeeded") for each in counts):
        return Phase.RUNNING
    return Phase.PENDING


def tree(snapshot: Snapshot) -> Iterator[Row]:
    """Yield the TrainJob, its JobSet, its Jobs and their pods, each after its owner."""
    yield Row(0, snapshot.train_job, phase(snapshot.train_job))
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
        if (ended := status.ended) is not None and number(ended, "exitCode"):
            return f"{text(ended, 'reason')} (exit code {number(ended, 'exitCode')})"
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False":
        return text(scheduled, "reason")
    return pod.text("status", "reason") or pod.text("spec", "nodeName")
