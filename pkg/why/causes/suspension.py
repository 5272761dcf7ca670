# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that are not supposed to run: suspended, or managed by another controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY
from pkg.constants.trainer import FIELD_OWNER, TRAIN_JOB_CONTROLLER_NAME
from pkg.why import kinds
from pkg.why.causes.queues import QUEUE_LABEL, unadmitted
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, at, moment, text
from pkg.why.snapshot import PATIENCE, Snapshot, finished

_OURS: Final = (
    "",
    TRAIN_JOB_CONTROLLER_NAME,
    "jobset.sigs.k8s.io/jobset-controller",
    "kubernetes.io/job-controller",
)
_CONTROLLERS: Final = {"TrainJob": "Trainer", "JobSet": "JobSet controller", "Job": "Job controller"}


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings if the TrainJob or a child is suspended, or is managed by another controller."""
    job = snapshot.train_job
    for obj in snapshot.owners:
        manager = obj.text("spec", "managedBy")
        if manager not in _OURS and not finished(obj):
            line = f"spec.managedBy of {obj} is {manager}"
            yield found("managed-by", obj, line, obj=obj, manager=manager, ours=_CONTROLLERS[obj.kind])
            break
    if job.at("spec", "suspend") is not True:
        yield from _children(snapshot)
        return
    if unadmitted(snapshot) is not None:
        return  # Kueue resumes the TrainJob. Whoever created it suspended is not the reason why it waits.
    for workload in snapshot.children(kinds.WORKLOAD, [job]):
        since = moment(workload.condition("Admitted"), "lastTransitionTime")
        if workload.is_true("Admitted") and not workload.is_true("Evicted") and since is not None:
            if snapshot.now - since < PATIENCE:
                return  # Kueue has just admitted the TrainJob, and may not have had time to resume it
            break
    by_whom = writer(job, "f:suspend")
    shown = f"the field manager {by_whom} set spec.suspend" if by_whom else None
    by = f" by {by_whom}" if by_whom else ""
    rule = "suspended/queue" if job.label(QUEUE_LABEL) else "suspended"
    yield found(rule, job, "spec.suspend is true", shown, by=by, job=job)


def _children(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if a JobSet or Job is still suspended although it should run.

    Controllers need some time to react. New objects are therefore ignored, and shortly after a change of the TrainJob's
    spec all objects are ignored.
    """
    for child in snapshot.owners[1:]:
        if (
            child.at("spec", "suspend") is not True
            or finished(child)
            or _awaits_turn(snapshot.job_set, child)
        ):
            continue
        by_whom = writer(child, "f:suspend")
        if by_whom in ("", FIELD_OWNER) and child is snapshot.job_set:
            return  # the manager resumes it
        if not child.older_than(PATIENCE, snapshot.now) or not snapshot.spec_is_settled(snapshot.train_job):
            continue
        by = f"; the field manager {by_whom} set it" if by_whom else ""
        yield found("child-suspended", child, f"spec.suspend of {child} is true{by}", child=child)
        return


def _awaits_turn(job_set: LiveObject | None, child: LiveObject) -> bool:
    """Return True if JobSet itself keeps the Job suspended until earlier Jobs have started or ended."""
    if job_set is None or child is job_set or job_set.at("spec", "suspend") is True:
        return False
    if job_set.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder":
        return True
    steps = {text(each, "name"): each for each in job_set.maps("spec", "replicatedJobs")}
    return bool(at(steps.get(child.label(REPLICATED_JOB_NAME_KEY)), "dependsOn"))


def writer(obj: LiveObject, field: str) -> str:
    """Return the field manager that last wrote a field of the spec, or an empty string."""
    owners = [
        each
        for each in obj.maps("metadata", "managedFields")
        if at(each, "fieldsV1", "f:spec", field) is not None
    ]
    newest = max(owners, key=lambda each: text(each, "time"), default={})
    return text(newest, "manager")
