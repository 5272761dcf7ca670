# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers that do not react: Trainer's manager, JobSet's controller, and the Job controller of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.constants.trainer import FIELD_OWNER
from pkg.why import kinds
from pkg.why.causes import admission, leases
from pkg.why.causes.statuses import of_pod
from pkg.why.causes.suspension import writer
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, ago, maps, moment, number, text
from pkg.why.snapshot import NOT_INSTALLED, PATIENCE, Snapshot, event_time, finished

MANAGER: Final = "kubeflow-trainer-controller-manager"
JOB_SET_MANAGER: Final = "jobset-controller-manager"
_ANSWERED: Final = timedelta(minutes=1)
"""A manager that recorded an event within this time runs, whatever Deployments and leases say."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the controller that has to act next does not react."""
    if (unread := snapshot.unread.get(kinds.JOB_SET)) == NOT_INSTALLED:
        yield found("jobset-missing", snapshot.train_job, f"JobSets cannot be read: {unread}")
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
        yield found("manager-down", f"Deployment {MANAGER}", *evidence, words=down or lease)
    elif not snapshot.spec_is_settled(job) or _has_tried(snapshot, job, admission.RETRIED):
        return
    elif kinds.EVENT in snapshot.unread:
        unread = f"events cannot be read: {snapshot.unread[kinds.EVENT]}"
        yield found("unexplained/events", job, *evidence, unread, job=job)
    else:
        if not snapshot.all(kinds.DEPLOYMENT):
            reason = snapshot.unread.get(kinds.DEPLOYMENT, f"Deployment {MANAGER} was not found")
            evidence.append(f"the state of the manager is not known: {reason}")
        yield found("manager-silent", job, *evidence)


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
            yield found("jobset-controller", job_set, missing, down, words="does not react")
    yield from _all_ended(snapshot, job_set)
    down = leases.no_leader(snapshot, leases.JOB_CONTROLLER)
    for job in snapshot.jobs:
        age = f"{job} is {ago(job.created, snapshot.now)} old"
        if _is_uncounted(snapshot, job):
            line = f"all pods of {job} have succeeded, but the Job is not complete"
            yield found("job-controller", job, line, down)
        patience = PATIENCE if down is None else timedelta()
        if kinds.POD not in snapshot.unread and _is_idle(snapshot, job, patience):
            line = f"{age}, and has neither pods, nor a status, nor events"
            yield found("job-controller", job, line, down)
        elif kinds.EVENT in snapshot.unread and _has_no_pods(snapshot, job):
            unread = f"events cannot be read: {snapshot.unread[kinds.EVENT]}"
            yield found("pods-missing", job, f"{age} and has no pods", unread, job=job)


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
    yield found("jobset-controller", job_set, line, down, words="does not react to the end of the Jobs")


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


def _uncreated(snapshot: Snapshot, job_set: LiveObject, missing: str) -> Finding:
    """Return a finding on a JobSet for which its controller has created the headless service, but no Jobs."""
    for quota in snapshot.all(kinds.QUOTA):
        for name in ("count/jobs.batch", "jobs.batch"):
            limit, used = (quota.at("status", part, name) for part in ("hard", "used"))
            if limit is not None and limit == used:
                words = f"{name} {used} of {limit}"
                line = f"{quota} is used: {words}"
                return found("quota-exceeded/jobs", job_set, missing, line, name=quota.name, words=words)
    return found("creation-failed/jobs", job_set, missing)


def _is_idle(snapshot: Snapshot, job: LiveObject, patience: timedelta) -> bool:
    """Return True if a Job should have pods, but nothing has happened to it for longer than ``patience``."""
    if not snapshot.missing_pods(job) or snapshot.events(job) or job.text("status", "startTime"):
        return False
    return job.older_than(patience, snapshot.now) and (not patience or snapshot.spec_is_settled(job))


def _down(snapshot: Snapshot, name: str) -> str | None:
    """Return why no pod of the Deployments with this name is available.

    Return None if a pod is available, or if no such Deployment was found.
    """
    deployments = [each for each in snapshot.all(kinds.DEPLOYMENT) if each.name == name]
    if not deployments or any(each.number("status", "availableReplicas") for each in deployments):
        return None
    if deployments[0].at("spec", "replicas") == 0:
        return f"the Deployment {name} is scaled to 0"
    for pod in snapshot.all(kinds.POD):
        if pod.namespace == deployments[0].namespace and pod.name.startswith(f"{name}-"):
            waiting = [each.waiting for each in of_pod(pod) if each.waiting]
            for reason in filter(None, (*waiting, text(pod.condition("PodScheduled"), "message"))):
                return f"the Deployment {name} has no available pod: {reason}"
    return f"the Deployment {name} has no available pod"


def unready_steps(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each step whose Jobs are not ready, by the numbers in the JobSet's status.

    If pods can be read, yield nothing: pods show more.
    """
    job_set = snapshot.job_set
    if kinds.POD not in snapshot.unread or job_set is None or finished(job_set):
        return
    if job_set.at("spec", "suspend") is True or not job_set.older_than(PATIENCE, snapshot.now):
        return
    counts = {text(each, "name"): each for each in job_set.maps("status", "replicatedJobsStatus")}
    if not counts and kinds.JOB in snapshot.unread:
        # The API server may refuse the Jobs, which only events show.
        words = "has created no Jobs" if kinds.EVENT in snapshot.unread else "does not react"
        line = f"{job_set} is {ago(job_set.created, snapshot.now)} old and has no status"
        yield found("jobset-controller", job_set, line, words=words)
        return
    in_order = job_set.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    for step in job_set.maps("spec", "replicatedJobs"):
        name, replicas = text(step, "name"), step.get("replicas")
        count, wanted = counts.get(name), replicas if isinstance(replicas, int) else 1
        ready = number(count, "ready") + number(count, "succeeded")
        active, suspended = number(count, "active"), number(count, "suspended")
        waits_for_turn = (step.get("dependsOn") and not active) or (in_order and suspended)
        if count is None or ready >= wanted or waits_for_turn:
            continue
        states = f"{active} active, {number(count, 'failed')} failed, {suspended} suspended"
        restarts = job_set.number("status", "restarts")
        restarted = f"{job_set} was restarted {restarts} times" if restarts else None
        rule = "child-suspended/step" if suspended else "not-ready" if active else "pods-missing/step"
        line = f"{ready} of {wanted} Jobs of step {name} are ready; {states}"
        yield found(rule, job_set, line, restarted, step=name, ready=f"{ready} of {wanted}")
