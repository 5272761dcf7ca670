# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers that do not react: Trainer's manager, JobSet's controller, and the Job controller of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.constants.trainer import FIELD_OWNER
from pkg.why import kinds
from pkg.why.causes import admission, counts, leases
from pkg.why.causes.statuses import of_pod
from pkg.why.causes.suspension import writer
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import LiveObject, ago, maps, moment, text
from pkg.why.snapshot import NOT_INSTALLED, PATIENCE, Snapshot, event_time, finished

MANAGER: Final = "kubeflow-trainer-controller-manager"
JOB_SET_MANAGER: Final = "jobset-controller-manager"
_ANSWERED: Final = timedelta(minutes=1)
"""A manager that recorded an event within this time runs, whatever Deployments and leases say."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the controller that has to act next does not react."""
    if (unread := snapshot.unread.get(kinds.JOB_SET)) == NOT_INSTALLED:
        yield Finding(
            "jobset-missing",
            "JobSet is not installed",
            (str(snapshot.train_job),),
            (f"JobSets cannot be read: {unread}",),
            "Install JobSet.",
        )
        return
    if kinds.JOB_SET in snapshot.unread:
        return
    job_set = snapshot.job_set
    if job_set is not None and job_set.deleted is not None:
        return
    if job_set is None or _is_ignored(snapshot, job_set):
        yield from _manager(snapshot)
    elif (
        not finished(job_set)
        and job_set.at("spec", "suspend") is not True
        and kinds.JOB not in snapshot.unread
    ):
        yield from _jobs(snapshot, job_set)


def _is_ignored(snapshot: Snapshot, job_set: LiveObject) -> bool:
    """Return True if JobSet and TrainJob differ in a way that only the manager can correct."""
    job = snapshot.train_job
    if finished(job):
        return False
    suspended = job_set.at("spec", "suspend") is True
    if suspended != (job.at("spec", "suspend") is True) and writer(job_set, "f:suspend") in ("", FIELD_OWNER):
        return snapshot.spec_is_settled(job)
    ended = [
        moment(job_set.condition(kind), "lastTransitionTime")
        for kind in ("Completed", "Failed")
        if job_set.is_true(kind)
    ]
    return any(each is not None and snapshot.now - each > PATIENCE for each in ended)


def _manager(snapshot: Snapshot) -> Iterator[Finding]:
    job = snapshot.train_job
    if finished(job):
        return
    evidence = [
        f"{job} is {ago(job.created, snapshot.now)} old",
        f"{job} has no JobSet" if snapshot.job_set is None else f"{job} and its JobSet differ",
    ]
    down = _down(snapshot, MANAGER)
    lease = leases.no_leader(snapshot, leases.MANAGER)
    if (down is not None or lease is not None) and not _has_tried(snapshot, job, _ANSWERED):
        evidence += [each for each in (down, lease) if each]
        advice = "Start the manager; its Deployment, pods and log say why it does not run."
        yield Finding(
            "manager-down",
            f"Trainer's manager does not run: {down or lease}",
            (f"Deployment {MANAGER}",),
            tuple(evidence),
            advice,
        )
    elif not snapshot.spec_is_settled(job) or _has_tried(snapshot, job, admission.RETRIED):
        return
    elif kinds.EVENT in snapshot.unread:
        summary = (
            "the manager has not acted on the TrainJob, and the events that would show why cannot be read"
        )
        unread = f"events cannot be read: {snapshot.unread[kinds.EVENT]}"
        advice = f"Get permission to list events in namespace {job.namespace}."
        yield Finding("unexplained", summary, (str(job),), (*evidence, unread), advice, Severity.WAITING)
    else:
        advice = (
            "Read the log of the manager, and its /readyz?verbose, which names the kinds that it cannot read."
        )
        yield Finding(
            "manager-silent",
            "Trainer's manager does not react to the TrainJob",
            (str(job),),
            (*evidence, *_manager_state(snapshot)),
            advice,
        )


def _has_tried(snapshot: Snapshot, job: LiveObject, within: timedelta) -> bool:
    """Return True if the manager has acted recently: it is replacing the JobSet, or will try again after an error."""
    seen = map(event_time, snapshot.events(job, *admission.TRAIN_JOB, "JobSetRecreating"))
    return any(each is not None and snapshot.now - each <= within for each in seen)


def _jobs(snapshot: Snapshot, job_set: LiveObject) -> Iterator[Finding]:
    wanted = [each for each in maps(job_set.data, "spec", "replicatedJobs") if not each.get("dependsOn")]
    if wanted and not snapshot.all_jobs and not snapshot.events(job_set, "JobCreationFailed"):
        down = _down(snapshot, JOB_SET_MANAGER) or leases.no_leader(snapshot, leases.JOB_SET)
        missing = f"{job_set} is {ago(job_set.created, snapshot.now)} old and has no Jobs"
        if down is None and not job_set.older_than(PATIENCE, snapshot.now):
            pass  # it may still react
        elif down is None and snapshot.children(kinds.SERVICE, [job_set]):
            yield _uncreated(snapshot, job_set, missing)
        else:
            yield counts.silent(job_set, missing, down)
    yield from _all_ended(snapshot, job_set)
    down = leases.no_leader(snapshot, leases.JOB_CONTROLLER)
    for job in snapshot.jobs:
        if _is_uncounted(snapshot, job):
            yield _job_controller(job, f"all pods of {job} have succeeded, but the Job is not complete", down)
        if kinds.POD not in snapshot.unread and _is_idle(
            snapshot, job, PATIENCE if down is None else timedelta()
        ):
            age = ago(job.created, snapshot.now)
            line = f"{job} is {age} old, and has neither pods, nor a status, nor events"
            yield _job_controller(job, line, down)
        elif kinds.EVENT in snapshot.unread and _has_no_pods(snapshot, job):
            yield _unknown_pods(snapshot, job)


def _job_controller(job: LiveObject, line: str, down: str | None) -> Finding:
    evidence = (line, down) if down else (line,)
    summary, advice = "the controller of Jobs does not react", "Check kube-controller-manager."
    return Finding("job-controller", summary, (str(job),), evidence, advice)


def _all_ended(snapshot: Snapshot, job_set: LiveObject) -> Iterator[Finding]:
    """Yield a finding if JobSet's controller has done nothing since all Jobs ended."""
    ends = [
        moment(job.condition(kind), "lastTransitionTime")
        for job in snapshot.all_jobs
        for kind in ("Complete", "Failed")
        if job.is_true(kind)
    ]
    if not ends or len(ends) < len(snapshot.all_jobs) or any(job.deleted for job in snapshot.all_jobs):
        return
    last = max(filter(None, ends), default=None)
    if last is None or snapshot.now - last <= PATIENCE:
        return
    down = _down(snapshot, JOB_SET_MANAGER) or leases.no_leader(snapshot, leases.JOB_SET)
    line = f"all Jobs of {job_set} ended {ago(last, snapshot.now)} ago, and it is neither complete nor failed"
    yield counts.silent(job_set, line, down, to=" to the end of the Jobs")


def _is_uncounted(snapshot: Snapshot, job: LiveObject) -> bool:
    """Return True if all pods of a Job succeeded some time ago, but the Job is not complete."""
    pods = [pod for pod in snapshot.pods if pod.owned_by(job.uid)]
    if finished(job) or not pods or any(pod.text("status", "phase") != "Succeeded" for pod in pods):
        return False
    ends = [moment(each.data, "state", "terminated", "finishedAt") for pod in pods for each in of_pod(pod)]
    last = max(filter(None, ends), default=None)
    enough = len(pods) >= job.number("spec", "completions") > 0
    return enough and last is not None and snapshot.now - last > PATIENCE


def _has_no_pods(snapshot: Snapshot, job: LiveObject) -> bool:
    """Return True if a Job has had no pods for some time although it should have some, and no pod of it has failed."""
    if kinds.POD in snapshot.unread or not snapshot.spec_is_settled(job):
        return False
    return (
        bool(snapshot.missing_pods(job))
        and not snapshot.children(kinds.POD, [job])
        and not job.number("status", "failed")
    )


def _unknown_pods(snapshot: Snapshot, job: LiveObject) -> Finding:
    return Finding(
        "pods-missing",
        f"the Job {job.name} has no pods, and the events that would show why cannot be read",
        (str(job),),
        (
            f"{job} is {ago(job.created, snapshot.now)} old and has no pods",
            f"events cannot be read: {snapshot.unread[kinds.EVENT]}",
        ),
        f"Get permission to list events in namespace {job.namespace}: the pods may be refused because of a quota, a "
        "policy or a missing service account.",
        Severity.WAITING,
    )


def _uncreated(snapshot: Snapshot, job_set: LiveObject, missing: str) -> Finding:
    """Return a finding on a JobSet for which its controller has created the headless service, but no Jobs."""
    for quota in snapshot.all(kinds.QUOTA):
        for name in ("count/jobs.batch", "jobs.batch"):
            limit, used = (quota.at("status", part, name) for part in ("hard", "used"))
            if limit is not None and limit == used:
                return Finding(
                    "quota-exceeded",
                    f"the ResourceQuota {quota.name} is exceeded: {name} {used} of {limit}",
                    (str(job_set),),
                    (missing, f"ResourceQuota {quota.name} is used: {name} {used} of {limit}"),
                    f"Delete Jobs of the namespace, or raise the ResourceQuota {quota.name}.",
                )
    return Finding(
        "creation-failed",
        "the controller of JobSet has created the headless service, but no Jobs",
        (str(job_set),),
        (missing,),
        "Read the log of jobset-controller-manager in the namespace jobset-system: it shows the error.",
    )


def _is_idle(snapshot: Snapshot, job: LiveObject, patience: timedelta) -> bool:
    """Return True if a Job should have pods, but nothing has happened to it for longer than ``patience``."""
    if not snapshot.missing_pods(job) or snapshot.events(job) or job.text("status", "startTime"):
        return False
    return job.older_than(patience, snapshot.now) and (not patience or snapshot.spec_is_settled(job))


def _down(snapshot: Snapshot, name: str) -> str | None:
    """Return why no pod of the Deployments with this name is available.

    Return None if a pod is available, or if no such Deployment was found.
    """
    found = [each for each in snapshot.all(kinds.DEPLOYMENT) if each.name == name]
    if not found or any(each.number("status", "availableReplicas") for each in found):
        return None
    if found[0].at("spec", "replicas") == 0:
        return f"the Deployment {name} is scaled to 0"
    return f"the Deployment {name} has no available pod{_of_pods(snapshot, found[0])}"


def _of_pods(snapshot: Snapshot, deployment: LiveObject) -> str:
    for pod in snapshot.all(kinds.POD):
        if pod.namespace == deployment.namespace and pod.name.startswith(f"{deployment.name}-"):
            reasons = [each.waiting for each in of_pod(pod) if each.waiting]
            reasons += [text(pod.condition("PodScheduled"), "message")]
            for reason in filter(None, reasons):
                return f": {reason}"
    return ""


def _manager_state(snapshot: Snapshot) -> list[str]:
    if snapshot.all(kinds.DEPLOYMENT):
        return []
    reason = snapshot.unread.get(kinds.DEPLOYMENT, f"Deployment {MANAGER} was not found")
    return [f"the state of the manager is not known: {reason}"]
