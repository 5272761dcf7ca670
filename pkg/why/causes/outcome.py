# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that failed: deadlines, retries, and the conditions of the TrainJob, its JobSet and its Jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pkg.apis.jobset.v1alpha2 import REPLICATED_JOB_NAME_KEY
from pkg.why import kinds
from pkg.why.causes.containers import KEEP
from pkg.why.finding import Finding
from pkg.why.liveobject import LiveObject, deadline, text
from pkg.why.snapshot import Snapshot, condition_line, event_time

_DISRUPTIONS: Final = {
    "Preempted": (
        "preempted",
        "the scheduler preempted the pods for others of higher priority",
        "Submit the TrainJob again, with a higher priority or when the others have ended; the runtime can set retries.",
    ),
    "TaintManagerEviction": (
        "node-lost",
        "the pods were deleted because of a taint of their nodes",
        "Submit the TrainJob again; the runtime can set retries.",
    ),
}
"""The cause, summary and advice for each reason that an event of a deleted pod may have."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on the failure of the TrainJob or its Jobs, and on Jobs that wait before they retry."""
    job = snapshot.train_job
    failed = job.condition("Failed")
    if failed.get("status") == "True" and text(failed, "reason") == "TrainingRuntimeNotSupported":
        advice = "Correct apiGroup and kind of spec.runtimeRef; the condition clears by itself."
        yield Finding(
            "runtime-unsupported",
            f"the runtime is not supported: {text(failed, 'message')}",
            (str(job),),
            (condition_line(job, "Failed"),),
            advice,
        )
        return
    job_set = [snapshot.job_set] if snapshot.job_set is not None else []
    yield from (
        found for each in snapshot.jobs if each.is_true("Failed") for found in _disrupted(snapshot, each)
    )
    for level in (snapshot.jobs, job_set, [job]):
        if ended := [each for each in level if each.is_true("Failed")]:
            yield from (_ended(snapshot, each) for each in ended)
            break
    if text(failed, "reason") == "DeadlineExceeded":
        yield _ended(snapshot, job)
    yield from (
        _retried(each)
        for each in snapshot.jobs
        if snapshot.missing_pods(each) and each.number("status", "failed")
    )


def _disrupted(snapshot: Snapshot, job: LiveObject) -> Iterator[Finding]:
    """Yield the disruptions of a failed Job, from the events of its pods. The pods themselves have been deleted."""
    if kinds.POD in snapshot.unread or snapshot.children(kinds.POD, [job]):
        return
    for event in snapshot.all(kinds.EVENT):
        reason, name = event.text("reason"), event.text("involvedObject", "name")
        seen = event_time(event)
        if event.text("involvedObject", "kind") != "Pod" or not name.startswith(f"{job.name}-"):
            continue
        if reason in _DISRUPTIONS and seen is not None and job.created is not None and seen >= job.created:
            cause, summary, advice = _DISRUPTIONS[reason]
            yield Finding(cause, summary, (f"Pod {name}",), (snapshot.quote(event),), advice)


def _retried(job: LiveObject) -> Finding:
    count = job.number("status", "failed")
    return Finding(
        "pods-failing",
        f"{count} pod{'s' if count > 1 else ''} of the Job {job.name} failed, and the Job waits before it creates the "
        "next",
        (str(job),),
        (f"status.failed of {job} is {count}", f"{job} has fewer pods than it wants"),
        "See the logs of the pods as soon as they exist again. The runtime sets the number of retries in backoffLimit.",
    )


def _ended(snapshot: Snapshot, obj: LiveObject) -> Finding:
    condition = obj.condition("Failed")
    reason, message = text(condition, "reason"), " ".join(text(condition, "message").split())
    events = snapshot.events(
        obj, "BackoffLimitExceeded", "DeadlineExceeded", "ReachedMaxRestarts", "FailedJobs"
    )
    evidence = (condition_line(obj, "Failed"), *(snapshot.quote(each) for each in events[:1]))
    subject = (str(obj),)
    if reason == "DeadlineExceeded":
        summary = f"the {deadline(obj)} of the {obj.kind} {obj.name} has passed: {message}"
        return Finding(
            "deadline-exceeded",
            summary,
            subject,
            evidence,
            "Raise activeDeadlineSeconds, or make the training shorter.",
        )
    if reason in (
        "BackoffLimitExceeded",
        "MaxFailedIndexesExceeded",
        "FailedIndexes",
        "PodFailurePolicy",
        "ReachedMaxRestarts",
    ):
        summary = f"the {obj.kind} {obj.name} failed ({reason}): {message}"
        advice = f"{_to_see(snapshot, obj)} The runtime sets the number of retries in backoffLimit and failurePolicy."
        return Finding("retries-exhausted", summary, subject, evidence, advice)
    summary = f"the {obj.kind} {obj.name} failed ({reason}): {message}"
    return Finding("failed", summary, subject, evidence, _to_see(snapshot, obj))


def _to_see(snapshot: Snapshot, obj: LiveObject) -> str:
    """Return advice on how to find out why the pods of a failed object failed."""
    job, step = snapshot.train_job, obj.label(REPLICATED_JOB_NAME_KEY)
    named = f"{job.name} -n {job.namespace}"
    is_failed = any(pod.text("status", "phase") == "Failed" for pod in snapshot.pods)
    if kinds.POD in snapshot.unread:
        return f"Get permission to list pods, and read the logs of the failed ones: kubectl logs. {KEEP}"
    if is_failed or snapshot.removed:
        return f"Read the logs: trainerctl logs {named}{f' --step {step}' if step else ''} --all."
    return f"The failed pods were removed, and their logs with them. {KEEP}"
