# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``activeDeadlineSeconds``: the time after which a TrainJob fails."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from controller_runtime.apis.machinery import conditions
from controller_runtime.apis.machinery.time import parse_time

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob

_LONGEST: Final = 1000 * 365 * 24 * 3600
"""Longest deadline in seconds; a later time could not be represented."""


def time_left(train_job: TrainJob, now: datetime) -> timedelta | None:
    """Return the time until the deadline of an active TrainJob, which may have passed; None without a deadline.

    The time counts from the creation, or from the last resume. A TrainJob that is being resumed starts from zero.
    """
    seconds = train_job.spec.active_deadline_seconds
    start = _start(train_job, now)
    if not seconds or start is None or train_job.spec.suspend:
        return None
    return start + timedelta(seconds=min(seconds, _LONGEST)) - now


def _start(train_job: TrainJob, now: datetime) -> datetime | None:
    suspended = conditions.find(train_job.status.conditions, trainer.TRAIN_JOB_SUSPENDED)
    if suspended is not None and suspended.status == "True":
        return now
    if suspended is not None and suspended.status == "False" and suspended.last_transition_time:
        return parse_time(suspended.last_transition_time)
    created = train_job.metadata.creation_timestamp
    return parse_time(created) if created else None
