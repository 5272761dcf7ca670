# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that failed: deadlines, retries, and the conditions of the TrainJob, its JobSet and its Jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY
from pkg.why import kinds
from pkg.why.causes.admission import RETRIED
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, deadline, moment, text
from pkg.why.rules import keep, remedy
from pkg.why.snapshot import Snapshot, condition_line, event_time

UNSUPPORTED: Final = "TrainingRuntimeNotSupported"
"""The reason with which a TrainJob fails whose runtime has another kind. It can still be corrected."""
_DISRUPTIONS: Final = {"Preempted": "preempted/deleted", "TaintManagerEviction": "node-lost/taints"}
"""The rule for each reason that an event of a deleted pod may have."""
_WAITS: Final = (
    "FailedScheduling",
    "Unschedulable",
    "Failed",
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
)
"""The reasons of events of pods that cannot start."""
_RETRIED: Final = (
    "BackoffLimitExceeded",
    "MaxFailedIndexesExceeded",
    "FailedIndexes",
    "PodFailurePolicy",
    "ReachedMaxRestarts",
)


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on the failure of the TrainJob or its Jobs, and on Jobs that wait before they retry."""
    job = snapshot.train_job
    failed = job.condition("Failed")
    if failed.get("status") == "True" and text(failed, "reason") == UNSUPPORTED:
        line = condition_line(job, "Failed")
        yield found("runtime-unsupported", job, line, words=text(failed, "message"))
        return
    job_set = [snapshot.job_set] if snapshot.job_set is not None else []
    for each in snapshot.jobs:
        if each.is_true("Failed"):
            yield from _disrupted(snapshot, each)
    for level in (snapshot.jobs, job_set, [job]):
        if ended := [each for each in level if each.is_true("Failed")]:
            yield from (_ended(snapshot, each) for each in ended)
            break
    if text(failed, "reason") == "DeadlineExceeded":
        yield _ended(snapshot, job)
    for each in snapshot.jobs:
        if snapshot.missing_pods(each) and (count := each.number("status", "failed")):
            shown = (f"status.failed of {each} is {count}", f"{each} has fewer pods than it wants")
            pods = f"{count} pod{'s' if count > 1 else ''}"
            yield found("pods-failing", each, *shown, pods=pods, job=each)


def _disrupted(snapshot: Snapshot, job: LiveObject) -> Iterator[Finding]:
    """Yield the disruptions of a failed Job, from the events of its pods. The pods themselves have been deleted."""
    if kinds.POD in snapshot.unread or snapshot.children(kinds.POD, [job]):
        return
    for event in snapshot.all(kinds.EVENT):
        name, seen = event.text("involvedObject", "name"), event_time(event)
        if event.text("involvedObject", "kind") != "Pod" or not name.startswith(f"{job.name}-"):
            continue
        rule = _DISRUPTIONS.get(event.text("reason"))
        if rule and seen is not None and job.created is not None and seen >= job.created:
            yield found(rule, f"Pod {name}", snapshot.quote(event))


def _waited(snapshot: Snapshot, failed: datetime | None) -> LiveObject | None:
    """Return the newest event that says why a pod had not started when the TrainJob failed, or None."""
    events = [
        each for pod in snapshot.all_pods for each in snapshot.events(pod)
    ] + snapshot.events_of_removed()
    started = {each.text("involvedObject", "uid") for each in events if each.text("reason") == "Started"}
    newest: LiveObject | None = None
    for each in sorted(events, key=lambda each: event_time(each) or snapshot.now):
        of, seen = each.at("involvedObject"), event_time(each)
        if text(of, "kind") != "Pod" or text(of, "uid") in started or each.text("reason") not in _WAITS:
            continue
        if failed is not None and seen is not None and seen >= failed - RETRIED:
            newest = each
    return newest


def _ended(snapshot: Snapshot, obj: LiveObject) -> Finding:
    condition = obj.condition("Failed")
    reason, words = text(condition, "reason"), " ".join(text(condition, "message").split())
    events = snapshot.events(
        obj, "BackoffLimitExceeded", "DeadlineExceeded", "ReachedMaxRestarts", "FailedJobs"
    )
    evidence = (condition_line(obj, "Failed"), *(snapshot.quote(each) for each in events[:1]))
    if (job_set := snapshot.job_set) is not None and (count := job_set.number("status", "restarts")):
        most = job_set.number("spec", "failurePolicy", "maxRestarts")
        evidence = (*evidence, f"{job_set} was restarted {count} times; its failurePolicy permits {most}")
    if reason == "DeadlineExceeded":
        rule = "deadline-exceeded"
        if (kept := _waited(snapshot, moment(condition, "lastTransitionTime"))) is not None:
            rule, words = "deadline-exceeded/waited", " ".join(kept.text("message").split())
            evidence = (*evidence, snapshot.quote(kept))
        return found(rule, obj, *evidence, deadline=deadline(obj), obj=obj, words=words.rstrip("."))
    job, step = snapshot.train_job, obj.label(REPLICATED_JOB_NAME_KEY)
    if kinds.POD in snapshot.unread:
        name = "pods-unread"
    elif snapshot.removed or any(pod.text("status", "phase") == "Failed" for pod in snapshot.pods):
        name = "read-logs"
    else:
        name = "pods-removed"
    stored, of_step = keep(job.namespace, f"{obj.name}-"), f" --step {step}" if step else ""
    todo = remedy(name, keep=stored, job=job, step=of_step)
    rule = "retries-exhausted" if reason in _RETRIED else "failed"
    return found(rule, obj, *evidence, obj=obj, reason=reason, words=words, remedy=todo)
