# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time at which a running TrainJob will fail, and at which a finished one will be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from controller_runtime.machinery.meta import format_time

from pkg.constants import trainer as constants
from pkg.util import deadlines
from pkg.why.causes.outcome import UNSUPPORTED
from pkg.why.causes.references import stored_runtime
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, at, moment, text
from pkg.why.snapshot import PATIENCE, Snapshot, finished

_SKEW: Final = timedelta(days=1)
"""Times that are further in the future are not believed: a later date may exceed the year 9999."""
_MOST_SECONDS: Final = 1 << 31
"""The API server stores no larger numbers in these fields."""


class Deletion(NamedTuple):
    """When a finished TrainJob is to be deleted, as far as a client can know."""

    due: datetime
    field: str
    """The field that determines the time, and its value."""
    is_announced: bool
    """True if the manager has announced it. Until then, a client does not know the manager's feature gate."""
    is_overdue: bool
    """True if the time has passed: the gate is disabled, or the manager cannot delete the TrainJob."""

    def __str__(self) -> str:
        """Return the time in a few words."""
        if self.is_overdue:
            return f"not deleted at {format_time(self.due)}"
        gate = "" if self.is_announced else " if TTLAfterFinished is enabled"
        return f"expires {format_time(self.due)}{gate}"


def deletion_of(snapshot: Snapshot) -> Deletion | None:
    """Return when the TrainJob is to be deleted, or None if no field determines this.

    The time of the manager's Configuration is not known here; only the manager's event contains it.
    """
    job, runtime = snapshot.train_job, stored_runtime(snapshot)
    ended = next((job.condition(each) for each in ("Complete", "Failed") if job.is_true(each)), None)
    since = moment(ended, "lastTransitionTime")
    if since is None or job.deleted is not None or not _is_ours(job) or at(ended, "reason") == UNSUPPORTED:
        return None
    ttl, field = job.at("spec", "ttlSecondsAfterFinished"), "spec.ttlSecondsAfterFinished"
    if ttl is None and runtime is not None:
        field = f"spec.runPolicy.ttlSecondsAfterFinished of {runtime}"
        ttl = runtime.at("spec", "runPolicy", "ttlSecondsAfterFinished")
    if not isinstance(ttl, int) or not 0 <= ttl < _MOST_SECONDS:
        return None
    due = min(since, snapshot.now + _SKEW) + timedelta(seconds=ttl)
    announced = bool(snapshot.events(job, constants.TRAIN_JOB_EXPIRING_REASON))
    return Deletion(due, f"{field} is {ttl}", announced, snapshot.now - due > PATIENCE)


def deadline_of(snapshot: Snapshot) -> datetime | None:
    """Return when a running TrainJob will fail because of ``activeDeadlineSeconds``, or None if it has no deadline."""
    job = snapshot.train_job
    seconds, suspended = job.number("spec", "activeDeadlineSeconds"), job.condition("Suspended")
    if seconds <= 0 or job.at("spec", "suspend") or finished(job) or not _is_ours(job):
        return None
    resumed = moment(suspended, "lastTransitionTime")
    return deadlines.deadline_of(seconds, job.created, text(suspended, "status"), resumed, snapshot.now)


def _is_ours(job: LiveObject) -> bool:
    """Return False if another controller manages the TrainJob: the manager then does not end or delete it."""
    return job.text("spec", "managedBy") in ("", constants.TRAIN_JOB_CONTROLLER_NAME)


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a note that says when the TrainJob will be deleted, or why it cannot be, if this is known."""
    job = snapshot.train_job
    announced = snapshot.events(job, constants.TRAIN_JOB_EXPIRING_REASON)
    failed = snapshot.events(job, constants.TRAIN_JOB_DELETION_FAILED_REASON)
    lines = [snapshot.quote(each) for each in (failed or announced)[:1]]
    expected = deletion_of(snapshot)
    is_due = expected.is_overdue if expected is not None else bool(announced)
    if failed and finished(job) and is_due:
        yield found("expiring/failed", job, *lines, words=failed[0].text("message"), job=job)
    elif expected is not None:
        rule = "expiring/overdue" if expected.is_overdue else "expiring"
        gate = "" if expected.is_announced else ", if the manager's feature gate TTLAfterFinished is enabled"
        due = format_time(expected.due)
        yield found(rule, job, *lines, due=due, field=expected.field, job=job, gate=gate)
    elif announced and finished(job):
        yield found("expiring/configured", job, *lines, words=announced[0].text("message"))
