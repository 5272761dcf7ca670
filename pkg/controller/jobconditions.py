# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The conditions of a TrainJob that do not come from its JobSet, and its deadline (``activeDeadlineSeconds``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import conditions
from controller_runtime.machinery.meta import parse_time

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.constants import trainer as constants
from pkg.runtime.framework import UnavailableError

_LONGEST: Final = 1000 * 365 * 24 * 3600
"""The longest deadline in seconds. Longer deadlines are shortened to it: ``datetime`` ends with the year 9999."""


def keep_outcome(train_job: TrainJob, status: TrainJobStatus) -> None:
    """If the TrainJob is already Complete, remove Failed from ``status``; if it is Failed, remove Complete."""
    old, ends = train_job.status.conditions, (trainer.TRAIN_JOB_COMPLETE, trainer.TRAIN_JOB_FAILED)
    if status.conditions and any(conditions.is_true(old, end) for end in ends):
        for end in ends:
            if not conditions.is_true(old, end):
                conditions.remove(status.conditions, end)


def set_unsupported(train_job: TrainJob, key: str, now: Callable[[], datetime]) -> None:
    """Set the condition Failed, because no runtime is registered for the TrainJob's reference."""
    reason = trainer.TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON
    _set(train_job, trainer.TRAIN_JOB_FAILED, "True", reason, f"unsupported runtime: {key}", now)


def set_deadline_exceeded(train_job: TrainJob, now: Callable[[], datetime]) -> None:
    """Set the condition Failed, because the deadline has passed."""
    reason, message = (
        trainer.TRAIN_JOB_DEADLINE_EXCEEDED_REASON,
        constants.TRAIN_JOB_DEADLINE_EXCEEDED_MESSAGE,
    )
    _set(train_job, trainer.TRAIN_JOB_FAILED, "True", reason, message, now)


def clear_unsupported(train_job: TrainJob) -> None:
    """Remove the condition Failed from a TrainJob that is not finished."""
    # Only this reason is possible here: a TrainJob that is Failed for another reason is finished.
    if train_job.status.conditions:
        conditions.remove(train_job.status.conditions, trainer.TRAIN_JOB_FAILED)


def set_unavailable(train_job: TrainJob, errors: Sequence[Exception], now: Callable[[], datetime]) -> None:
    """Set the condition GangSchedulingUnavailable if an error is an UnavailableError, otherwise remove it."""
    found = next((error for error in errors if isinstance(error, UnavailableError)), None)
    if found is not None:
        _set(train_job, trainer.TRAIN_JOB_GANG_UNAVAILABLE, "True", found.reason, str(found), now)
    elif train_job.status.conditions:
        conditions.remove(train_job.status.conditions, trainer.TRAIN_JOB_GANG_UNAVAILABLE)


def set_suspended(train_job: TrainJob, now: Callable[[], datetime]) -> None:
    """Set the condition Suspended to the value of ``spec.suspend``.

    A TrainJob that was never suspended does not get the condition.
    """
    kind = trainer.TRAIN_JOB_SUSPENDED
    if train_job.spec.suspend:
        reason, message = trainer.TRAIN_JOB_SUSPENDED_REASON, constants.TRAIN_JOB_SUSPENDED_MESSAGE
        _set(train_job, kind, "True", reason, message, now)
    elif conditions.is_true(train_job.status.conditions, trainer.TRAIN_JOB_SUSPENDED):
        reason, message = trainer.TRAIN_JOB_RESUMED_REASON, constants.TRAIN_JOB_RESUMED_MESSAGE
        _set(train_job, kind, "False", reason, message, now)


def _set(
    train_job: TrainJob, kind: str, status: str, reason: str, message: str, now: Callable[[], datetime]
) -> None:
    if train_job.status.conditions is None:
        train_job.status.conditions = []
    new = Condition(type=kind, status=status, reason=reason, message=message)
    conditions.set_status_condition(train_job.status.conditions, new, now)


def time_left(train_job: TrainJob, now: datetime) -> timedelta | None:
    """Return the time until the deadline, or None if the TrainJob has no deadline or is suspended.

    The result is zero or negative if the deadline has passed. ``activeDeadlineSeconds`` counts from the creation or
    from the last resume. If the TrainJob is being resumed, it counts from ``now``.
    """
    seconds = train_job.spec.active_deadline_seconds
    start = _start(train_job, now)
    if not seconds or start is None or train_job.spec.suspend:
        return None
    return start + timedelta(seconds=min(seconds, _LONGEST)) - now


def has_passed(left: timedelta | None) -> bool:
    """Return True if ``left``, the result of :func:`time_left`, says that the deadline has passed."""
    return left is not None and left <= timedelta()


def _start(train_job: TrainJob, now: datetime) -> datetime | None:
    suspended = conditions.find(train_job.status.conditions, trainer.TRAIN_JOB_SUSPENDED)
    if suspended is not None and suspended.status == "True":
        return now
    if suspended is not None and suspended.status == "False" and suspended.last_transition_time:
        return parse_time(suspended.last_transition_time)
    created = train_job.metadata.creation_timestamp
    return parse_time(created) if created else None
