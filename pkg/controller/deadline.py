# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``activeDeadlineSeconds``: the time after which a TrainJob fails."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import controller_runtime as ctrl
from controller_runtime import handler, source
from controller_runtime.machinery import conditions
from controller_runtime.machinery.meta import parse_time

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob

_LONGEST: Final = 1000 * 365 * 24 * 3600
"""Longest deadline in seconds; a later time could not be represented."""


class Alarms(source.Source):
    """Enqueues TrainJobs at their deadline, also while their reconciles fail and the retries are minutes apart."""

    def __init__(self) -> None:
        self._queue: handler.Queue | None = None

    def __str__(self) -> str:
        return "deadlines of TrainJobs"

    async def start(self, queue: handler.Queue) -> None:
        """Take the queue of the controller."""
        self._queue = queue

    def set(self, request: ctrl.Request, left: timedelta) -> None:
        """Enqueue the TrainJob after the time that is left, if no other event does so before."""
        if self._queue is not None and left > timedelta():
            self._queue.add(request, after=left.total_seconds())


def time_left(train_job: TrainJob, now: datetime) -> timedelta | None:
    """Return the time until the deadline of an active TrainJob, which may have passed; None without a deadline.

    The time counts from the creation, or from the last resume. A TrainJob that is being resumed starts from zero.
    """
    seconds = train_job.spec.active_deadline_seconds
    start = _start(train_job, now)
    if not seconds or start is None or train_job.spec.suspend:
        return None
    return start + timedelta(seconds=min(seconds, _LONGEST)) - now


def has_passed(left: timedelta | None) -> bool:
    """Return True if :func:`time_left` returned that the deadline has passed."""
    return left is not None and left <= timedelta()


def _start(train_job: TrainJob, now: datetime) -> datetime | None:
    suspended = conditions.find(train_job.status.conditions, trainer.TRAIN_JOB_SUSPENDED)
    if suspended is not None and suspended.status == "True":
        return now
    if suspended is not None and suspended.status == "False" and suspended.last_transition_time:
        return parse_time(suspended.last_transition_time)
    created = train_job.metadata.creation_timestamp
    return parse_time(created) if created else None
