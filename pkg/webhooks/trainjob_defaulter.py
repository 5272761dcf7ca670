# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The mutating webhook of TrainJobs: makes them readable for clients of both generations, and records suspensions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from controller_runtime import offload
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.machinery import equality, field
from controller_runtime.machinery.meta import format_time
from controller_runtime.machinery.quantity import MAX_INT32
from controller_runtime.webhook import CustomMutator

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import RuntimePatch, TrainJob
from pkg.constants import trainer as constants
from pkg.util import generations, trainjob

from . import kueue, mirror, putguard, v23rules

_WORD_ANNOTATION: Final = constants.NUM_PROC_PER_NODE_ANNOTATION
_NUM_PROC: Final = field.Path("spec").child("trainer", "numProcPerNode")

# +kubebuilder:webhook:path=/mutate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=true,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=defaulter.trainjob.trainer.kubeflow.org,admissionReviewVersions=v1,reinvocationPolicy=IfNeeded


class TrainJobDefaulter(CustomMutator[TrainJob]):
    """Prepares TrainJobs for clients of both API generations.

    The steps, in this order:

    1. Warn of each value that Trainer v2.3 refuses, unless the validating webhook refuses that value.
    2. Put back fields that a client dropped without knowing them.
    3. If an older release of Kueue has placed the TrainJob, hand it over to a newer release. Move the newer release's
       entry to the end of the patches.
    4. Record in an annotation that the TrainJob was suspended. The controller may not see the suspension itself: the
       TrainJob may be resumed before a manager reads it, or while no replica is the leader.
    5. Move words in ``numProcPerNode`` to an annotation.
    6. Mirror the first generation's fields in ``runtimePatches`` if a newer client reads the TrainJob.
    7. Set the time of changed patches.
    """

    leaves_undecodable = True

    def __init__(
        self, cfg: Configuration | None = None, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        cfg = defaulted() if cfg is None else cfg
        self._second_generation = cfg.second_generation
        self._now = now

    def concerns(self, request: AdmissionRequest, old: TrainJob | None, new: TrainJob) -> bool:
        """Return True if one of the steps of this webhook may concern the TrainJob."""
        if new.metadata.deletion_timestamp is not None:
            return False
        return bool(
            _num_proc_changes(new)
            or new.spec.runtime_patches
            or (generations.has_first_generation(new.spec) and _is_mirrored(new))
            or (
                old is not None
                and (putguard.dropped(request, old, new) or trainjob.suspension_note_of_update(old, new))
            )
            or next(v23rules.violations(old, new), None)
        )

    async def mutate(self, request: AdmissionRequest, old: TrainJob | None, new: TrainJob) -> list[str]:
        """Change the TrainJob and return the warnings.

        Raises:
            AggregateError: ``numProcPerNode`` does not fit into 32 bits.
        """
        warnings: list[str] = []
        if not self._second_generation:
            warnings += await offload.run(_refused_later, old, new)
        if old is not None:
            dropped = putguard.dropped(request, old, new)
            warnings += putguard.put_back(old, new, dropped)
            kueue.hand_over(old, new, dropped)
        kueue.keep_last(old, new)
        if old is not None and (note := trainjob.suspension_note_of_update(old, new)):
            new.metadata.annotations = {
                **(new.metadata.annotations or {}),
                constants.SUSPENDED_ANNOTATION: note,
            }
        _store_number(new)
        if (
            old is not None
            and generations.has_first_generation(old.spec)
            and not generations.has_first_generation(new.spec)
        ):
            mirror.remove(new)
        try:
            await offload.run(mirror.update, new, wanted=_is_mirrored(new))
        except mirror.NotMirrorableError as error:
            warnings.append(
                "spec.podTemplateOverrides, spec.labels and spec.annotations take effect, but are not mirrored in "
                f"spec.runtimePatches: {error}"
            )
        await offload.run(_stamp, old, new, format_time(self._now()))
        return warnings


def _is_mirrored(train_job: TrainJob) -> bool:
    """Return True if a client of the second generation reads this TrainJob: Kueue, or another manager."""
    return constants.KUEUE_QUEUE_LABEL in train_job.labels or not trainjob.is_ours(train_job)


def _refused_later(old: TrainJob | None, new: TrainJob) -> list[str]:
    return [v23rules.REFUSED_LATER.format(error) for error in v23rules.violations(old, new)]


def _num_proc_changes(train_job: TrainJob) -> bool:
    value = train_job.spec.trainer.num_proc_per_node if train_job.spec.trainer is not None else None
    if isinstance(value, int):
        in_range = generations.MIN_INT32 <= value <= MAX_INT32
        return not in_range or _WORD_ANNOTATION in (train_job.metadata.annotations or {})
    return value is not None


def _store_number(train_job: TrainJob) -> None:
    """Store ``numProcPerNode`` in its field if it is a number, or in the annotation if it is a word."""
    trainer, metadata = train_job.spec.trainer, train_job.metadata
    if trainer is None or trainer.num_proc_per_node is None:
        return
    try:
        value = generations.number_or_word(trainer.num_proc_per_node)
    except ValueError as error:
        invalid = field.invalid(_NUM_PROC, trainer.num_proc_per_node, str(error))
        raise field.AggregateError([invalid]) from error
    annotations = dict(metadata.annotations or {})
    if isinstance(value, str):
        trainer.num_proc_per_node = None
        annotations[_WORD_ANNOTATION] = value
    else:
        trainer.num_proc_per_node = value
        annotations.pop(_WORD_ANNOTATION, None)
    if annotations != (metadata.annotations or {}):
        metadata.annotations = annotations or None


def _stamp(old: TrainJob | None, new: TrainJob, now: str) -> None:
    """Set the time of changed patches to ``now``; an unchanged patch keeps the stored time."""
    stored = {patch.manager: patch for patch in (old.spec.runtime_patches if old is not None else None) or ()}
    for patch in new.spec.runtime_patches or ():
        before = stored.get(patch.manager)
        if before is not None:
            patch.time = before.time if _equal_except_time(before, patch) else now
        elif patch.time is None:
            patch.time = now


def _equal_except_time(a: RuntimePatch, b: RuntimePatch) -> bool:
    return equality.deep_equal(a.training_runtime_spec, b.training_runtime_spec) and equality.deep_equal(
        a.unknown_fields, b.unknown_fields
    )
