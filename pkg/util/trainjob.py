# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob's state and deadline, its reference to its runtime, and its children's references to the TrainJob."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.machinery import Object, conditions, equality
from controller_runtime.machinery.meta import parse_time
from controller_runtime.machinery.raised import ExpectedError

from pkg.apis.trainer.v1alpha1 import (
    TRAIN_JOB_COMPLETE,
    TRAIN_JOB_DEADLINE_EXCEEDED_REASON,
    TRAIN_JOB_FAILED,
    TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON,
    TRAIN_JOB_SUSPENDED,
    ClusterTrainingRuntime,
    TrainingRuntime,
    TrainJob,
    TrainJobStatus,
)
from pkg.constants import trainer as constants
from pkg.util import deadlines


class ChildConflictError(ExpectedError):
    """The name of a TrainJob's child is used by an object that the TrainJob does not control."""


class PredecessorError(ChildConflictError):
    """The name is used by a child of an earlier TrainJob of the same name. The garbage collector deletes that child."""

    def __init__(self, text: str, live: Object) -> None:
        super().__init__(text)
        self.live = live


def own_status(status: TrainJobStatus) -> TrainJobStatus:
    """Return a copy of a status whose fields and conditions may be changed. The other values are shared."""
    copied = status.shallow_copy()
    if copied.conditions is not None:
        copied.set_unchecked("conditions", [each.shallow_copy() for each in copied.conditions])
    return copied


def is_ours(train_job: TrainJob) -> bool:
    """Return True unless ``managedBy`` names another controller."""
    return train_job.spec.managed_by in (None, "", constants.TRAIN_JOB_CONTROLLER_NAME)


def is_finished(train_job: TrainJob) -> bool:
    """Return True if the TrainJob is Complete or Failed.

    A TrainJob that is Failed because its runtime is not supported is not finished, because its spec may change.
    """
    if not train_job.status.conditions:
        return False
    if conditions.is_true(train_job.status.conditions, TRAIN_JOB_COMPLETE):
        return True
    return _failed(train_job) not in (None, TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON)


def finished_at(train_job: TrainJob) -> datetime | None:
    """Return the time at which a finished TrainJob became Complete or Failed, or None if it is not finished."""
    if not is_finished(train_job):
        return None
    for kind in (TRAIN_JOB_COMPLETE, TRAIN_JOB_FAILED):
        found = conditions.find(train_job.status.conditions, kind)
        if found is not None and found.status == "True" and found.last_transition_time:
            return parse_time(found.last_transition_time)
    return None


def time_to_live(
    train_job: TrainJob, runtime: TrainingRuntime | ClusterTrainingRuntime | None = None
) -> tuple[int, str] | None:
    """Return the ``ttlSecondsAfterFinished`` of a TrainJob or else of its runtime, and the field; None if unset."""
    if train_job.spec.ttl_seconds_after_finished is not None:
        return train_job.spec.ttl_seconds_after_finished, "spec.ttlSecondsAfterFinished"
    policy = runtime.spec.run_policy if runtime is not None else None
    if runtime is None or policy is None or policy.ttl_seconds_after_finished is None:
        return None
    field = f"spec.runPolicy.ttlSecondsAfterFinished of {runtime.gvk.kind} {runtime.name}"
    return policy.ttl_seconds_after_finished, field


def deadline_exceeded(train_job: TrainJob) -> bool:
    """Return True if the TrainJob failed because of its deadline."""
    return _failed(train_job) == TRAIN_JOB_DEADLINE_EXCEEDED_REASON


def _failed(train_job: TrainJob) -> str | None:
    """Return the reason for which the TrainJob is Failed, or None if it is not Failed."""
    found = conditions.find(train_job.status.conditions, TRAIN_JOB_FAILED)
    return found.reason or "" if found is not None and found.status == "True" else None


def time_left(train_job: TrainJob, now: datetime) -> timedelta | None:
    """Return the time until the deadline, or None if the TrainJob has no deadline or is suspended.

    The result is zero or negative if the deadline has passed. ``activeDeadlineSeconds`` counts from the creation or
    from the last resume. If the TrainJob is being resumed, it counts from ``now``.
    """
    seconds = train_job.spec.active_deadline_seconds
    if not seconds or train_job.spec.suspend:
        return None
    created, suspended = train_job.metadata.creation_timestamp, None
    if (found := conditions.find(train_job.status.conditions, TRAIN_JOB_SUSPENDED)) is not None:
        suspended = found.last_transition_time
    deadline = deadlines.deadline_of(
        seconds,
        parse_time(created) if created else None,
        found.status or "" if found is not None else "",
        parse_time(suspended) if suspended else None,
        now,
    )
    return None if deadline is None else deadline - now


def has_passed(left: timedelta | None) -> bool:
    """Return True if ``left``, the result of :func:`time_left`, says that the deadline has passed."""
    return left is not None and left <= timedelta()


def suspension_note(train_job: TrainJob) -> str | None:
    """Return the webhook's note that a TrainJob was suspended, or None. The JobSet may still have run at that time."""
    return (train_job.metadata.annotations or {}).get(constants.SUSPENDED_ANNOTATION)


def suspension_note_of_update(old: TrainJob, new: TrainJob) -> str | None:
    """Return the note that the webhook has to write on an updated TrainJob, or None.

    The note is the generation that the update creates. A suspension is noted if the update also changes other fields,
    or if the spec was changed before. Otherwise the JobSet still has the TrainJob's spec. In that case, the next change
    of the spec is noted instead, if the TrainJob is still suspended at that time.

    A client that does not know the note may drop it when it replaces the TrainJob. The note is then written again if
    the update changes the spec.
    """
    if not (old.spec.suspend or new.spec.suspend or suspension_note(old)):
        return None
    generation = old.metadata.generation or 1
    suspends = bool(new.spec.suspend and not old.spec.suspend)
    changes = not equality.deep_equal(old.spec.model_copy(update={"suspend": new.spec.suspend}), new.spec)
    if (suspends and (changes or generation > 1)) or (old.spec.suspend and changes and generation == 2):
        return str(generation + 1) if is_ours(new) and not is_finished(old) else None
    same = not changes and bool(old.spec.suspend) == bool(new.spec.suspend)
    return None if same or suspension_note(new) else suspension_note(old)


class Reference(Protocol):
    """A reference to a kind of runtime."""

    api_group: str | None
    kind: str | None


def runtime_ref_is_training_runtime(ref: Reference) -> bool:
    """Return True if ``ref`` names a TrainingRuntime of the TrainJob's namespace."""
    return (ref.api_group, ref.kind) == (TrainingRuntime.gvk.group, TrainingRuntime.gvk.kind)


def runtime_ref_is_cluster_training_runtime(ref: Reference) -> bool:
    """Return True if ``ref`` names a ClusterTrainingRuntime."""
    return (ref.api_group, ref.kind) == (ClusterTrainingRuntime.gvk.group, ClusterTrainingRuntime.gvk.kind)


def controller_reference(train_job: TrainJob) -> OwnerReference:
    """Return the controller reference for children of ``train_job``. The children are deleted with the TrainJob."""
    return OwnerReference(
        api_version=TrainJob.gvk.api_version,
        kind=TrainJob.gvk.kind,
        name=train_job.name,
        uid=train_job.metadata.uid or "",
        controller=True,
        block_owner_deletion=True,
    )


def child_metadata(train_job: TrainJob, suffix: str = "") -> ObjectMeta:
    """Return the metadata of a child whose name is the TrainJob's name with a suffix."""
    return ObjectMeta(
        name=train_job.name + suffix,
        namespace=train_job.namespace,
        owner_references=[controller_reference(train_job)],
    )


def controller_of(obj: Object) -> OwnerReference | None:
    """Return the reference to the controller of ``obj``, or None."""
    return next((each for each in obj.metadata.owner_references or () if each.controller), None)


def controls(train_job: TrainJob, live: Object) -> bool:
    """Return True if the TrainJob is the controller of ``live``."""
    owner = controller_of(live)
    return owner is not None and owner.uid == train_job.metadata.uid


def require_control(live: Object, controller: OwnerReference | None) -> None:
    """Raise an error unless ``controller`` controls ``live``.

    If ``controller`` is None, ``live`` must have no controller.

    Raises:
        PredecessorError: an earlier object with the controller's kind and name controls ``live``.
        ChildConflictError: another object or no object controls ``live``.
    """
    found = controller_of(live)
    if (found and found.uid) == (controller and controller.uid):
        return
    what = f"{live.gvk.kind.lower()} {live.key}"
    if found is None:
        raise ChildConflictError(f"{what}: exists and has no controller")
    text = f"{what}: controlled by {found.kind} {found.name}"
    if controller is not None and (found.kind, found.name) == (controller.kind, controller.name):
        raise PredecessorError(text, live)
    raise ChildConflictError(text)
