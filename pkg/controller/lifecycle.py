# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The course of TrainJobs, as metrics, log lines and the reports of those that have not started show it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from controller_runtime import log
from controller_runtime.machinery import NamespacedName, conditions
from controller_runtime.machinery.meta import parse_time

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob

from .starts import Starts

_MESSAGES: Final = {
    trainer.TRAIN_JOB_COMPLETE: "TrainJob Complete",
    trainer.TRAIN_JOB_FAILED: "TrainJob Failed",
    trainer.TRAIN_JOB_SUSPENDED: "TrainJob Suspended",
    trainer.TRAIN_JOB_RESUMED_REASON: "TrainJob Resumed",
}


class Lifecycle:
    """Observes each reconciled TrainJob."""

    def __init__(self, starts: Starts | None = None) -> None:
        self._phases = metrics.TrainJobPhases()
        self._starts = starts

    def observe(self, train_job: TrainJob, *, failing: bool = False) -> None:
        """Note the state of a TrainJob after a reconcile, which has failed if ``failing``."""
        self._phases.observe(train_job)
        if self._starts is not None:
            self._starts.observe(train_job, failing=failing)

    def skip(self, key: NamespacedName) -> None:
        """Note that a TrainJob is not ours to start: it is being deleted, or another controller manages it."""
        if self._starts is not None:
            self._starts.forget(key)

    def forget(self, key: NamespacedName) -> None:
        """Note that a TrainJob was deleted."""
        self._phases.forget(key)
        self.skip(key)


def log_outcome(before: TrainJob, after: TrainJob, job_set: JobSet | None, now: datetime) -> None:
    """Log one line if the conditions of a TrainJob have changed to an outcome: ended, suspended or resumed."""
    outcome = _outcome(before, after)
    if not outcome:
        return
    fields: dict[str, object] = {"after": _elapsed(after, now)}
    failed = conditions.find(after.status.conditions, trainer.TRAIN_JOB_FAILED)
    if failed is not None and outcome == trainer.TRAIN_JOB_FAILED:
        fields |= {"reason": failed.reason, "message": failed.message}
    restarts = job_set.status.restarts if job_set is not None else None
    log.logger_from().info(_MESSAGES[outcome], **fields, restarts=restarts or 0)


def log_created(train_job: TrainJob, now: datetime) -> None:
    """Log that the children of a TrainJob were created for the first time."""
    if not train_job.status.jobs_status:
        log.logger_from().info("TrainJob Created", after=_elapsed(train_job, now))


def _outcome(before: TrainJob, after: TrainJob) -> str:
    for kind in (trainer.TRAIN_JOB_COMPLETE, trainer.TRAIN_JOB_FAILED, trainer.TRAIN_JOB_SUSPENDED):
        was, now = (conditions.is_true(each.status.conditions, kind) for each in (before, after))
        if now and not was:
            return kind
        if was and not now and kind == trainer.TRAIN_JOB_SUSPENDED:
            return trainer.TRAIN_JOB_RESUMED_REASON
    return ""


def _elapsed(train_job: TrainJob, now: datetime) -> str:
    """Return the time since the creation as Go prints a duration: ``4m12s``."""
    created = train_job.metadata.creation_timestamp
    seconds = max(0, int((now - parse_time(created)).total_seconds())) if created else 0
    hours, minutes = seconds // 3600, seconds // 60
    return (f"{hours}h" if hours else "") + (f"{minutes % 60}m" if minutes else "") + f"{seconds % 60}s"
