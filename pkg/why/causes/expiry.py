# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time at which a finished TrainJob will be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

import pydantic_core
from controller_runtime.machinery.meta import format_time

from pkg.constants import trainer as constants
from pkg.why.causes.references import runtime_of
from pkg.why.finding import Finding, found
from pkg.why.snapshot import PATIENCE, Snapshot
from pkg.why.snapshot import finished as is_finished


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
    if not is_finished(snapshot.train_job):
        return None
    from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob  # slow to load
    from pkg.util import trainjob

    with suppress(pydantic_core.ValidationError, ValueError, OverflowError):
        train_job = TrainJob.from_dict(dict(snapshot.train_job.data))
        finished = trainjob.finished_at(train_job)
        if finished is None or not trainjob.is_ours(train_job) or train_job.metadata.deletion_timestamp:
            return None
        reference = runtime_of(snapshot.train_job)
        kind = TrainingRuntime if reference.namespace else ClusterTrainingRuntime
        stored = next((each for each in snapshot.all(reference.kind) if each.name == reference.name), None)
        ttl = trainjob.time_to_live(train_job)
        if ttl is None and stored is not None:
            ttl = trainjob.time_to_live(train_job, kind.from_dict(dict(stored.data)))
        if ttl is not None:
            due = finished + timedelta(seconds=ttl[0])
            announced = snapshot.events(snapshot.train_job, constants.TRAIN_JOB_EXPIRING_REASON)
            is_overdue = snapshot.now - due > PATIENCE
            return Deletion(due, f"{ttl[1]} is {ttl[0]}", bool(announced), is_overdue)
    return None


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a note that says when the TrainJob will be deleted, if this is known."""
    job = snapshot.train_job
    announced = snapshot.events(job, constants.TRAIN_JOB_EXPIRING_REASON)
    lines = [snapshot.quote(each) for each in announced[:1]]
    if (expected := deletion_of(snapshot)) is not None:
        rule = "expiring/announced" if expected.is_announced else "expiring"
        rule = "expiring/overdue" if expected.is_overdue else rule
        yield found(rule, job, *lines, due=format_time(expected.due), field=expected.field, job=job)
    elif announced and (job.is_true("Complete") or job.is_true("Failed")):
        yield found("expiring/configured", job, *lines, words=announced[0].text("message"))
