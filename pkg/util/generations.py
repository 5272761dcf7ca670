# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads TrainJobs in the same way, no matter which API generation the client that wrote them uses.

Clients of Trainer v2.1 write ``podTemplateOverrides``, ``labels`` and ``annotations``, and may write a word in
``numProcPerNode``. Clients of v2.2 and later write ``runtimePatches``, and can decode only numbers in
``numProcPerNode``. A word is therefore stored in an annotation, and the other fields may be mirrored in a runtime patch
of this manager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from controller_runtime.machinery import equality
from controller_runtime.machinery.quantity import MAX_INT32, IntOrString

from pkg.apis.trainer.v1alpha1 import (
    PodSpecPatch,
    PodTemplateOverride,
    ReplicatedJobPatch,
    RuntimePatch,
    TrainJob,
    TrainJobSpec,
)
from pkg.constants import trainer as constants

MIN_INT32: Final = -MAX_INT32 - 1


def has_first_generation(spec: TrainJobSpec) -> bool:
    """Return True if a spec has fields that clients of v2.2 and later cannot decode."""
    return bool(spec.pod_template_overrides or spec.labels or spec.annotations)


def is_mirror(patch: RuntimePatch) -> bool:
    """Return True for the patch that mirrors the first generation's fields."""
    return patch.manager in constants.FIRST_GENERATION_MANAGERS


def is_placement(override: PodTemplateOverride) -> bool:
    """Return True for an override with which Kueue up to v0.16 places pods."""
    metadata = override.metadata
    return metadata is not None and constants.KUEUE_POD_SET_LABEL in (metadata.labels or {})


def runtime_patches(spec: TrainJobSpec) -> list[RuntimePatch]:
    """Return the runtime patches to apply after the first generation's fields.

    The mirror of these fields is omitted while the fields are present, so that nothing is applied twice. If a CRD of
    another release has pruned the fields, the mirror is applied.
    """
    patches = spec.runtime_patches or []
    if not has_first_generation(spec):
        return patches
    return [patch for patch in patches if not is_mirror(patch)]


def pod_patches(patch: RuntimePatch) -> Iterator[tuple[str, PodSpecPatch]]:
    """For each job whose pod spec a runtime patch changes, yield the job's name and the change."""
    for job in patched_jobs(patch):
        if (pod := patched_pod(job)) is not None:
            yield job.name, pod


def patched_jobs(patch: RuntimePatch) -> Sequence[ReplicatedJobPatch]:
    """Return the part of a runtime patch that changes jobs."""
    runtime = patch.training_runtime_spec
    template = runtime.template if runtime is not None else None
    spec = template.spec if template is not None else None
    return (spec.replicated_jobs if spec is not None else None) or ()


def patched_pod(patch: ReplicatedJobPatch) -> PodSpecPatch | None:
    """Return the change of the job's pod spec, or None."""
    job = patch.template.spec if patch.template is not None else None
    pod = job.template if job is not None else None
    return pod.spec if pod is not None else None


def number_or_word(value: IntOrString) -> IntOrString:
    """Return ``numProcPerNode`` as a number if it is a number or a string with a number; otherwise return the word.

    Raises:
        ValueError: the number does not fit into 32 bits.
    """
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit()):
            return value
        significant = digits.lstrip("0")
        value = MAX_INT32 + 1 if len(significant) > len(str(MAX_INT32)) else int(value)
    if not MIN_INT32 <= value <= MAX_INT32:
        raise ValueError(f"must be between {MIN_INT32} and {MAX_INT32}")
    return value


def with_word(train_job: TrainJob) -> TrainJob:
    """Return the TrainJob with the annotation's word in ``numProcPerNode``. The result must not be written.

    A value in the field takes precedence over the annotation. If the annotation is missing, ``train_job`` itself is
    returned.
    """
    trainer = train_job.spec.trainer
    annotations = train_job.metadata.annotations
    word = annotations.get(constants.NUM_PROC_PER_NODE_ANNOTATION) if annotations else None
    if word is None or trainer is None or trainer.num_proc_per_node is not None:
        return train_job
    changed = train_job.shallow_copy()
    spec = train_job.spec.shallow_copy()
    spec.set_unchecked("trainer", trainer.model_copy(update={"num_proc_per_node": word}))
    changed.set_unchecked("spec", spec)
    return changed


def same_spec(old: TrainJob, new: TrainJob) -> bool:
    """Return True if the specs of two TrainJobs have the same effect, even if clients wrote them differently."""
    return equality.deep_equal(old.spec, new.spec) or equality.deep_equal(effective(old), effective(new))


def effective(train_job: TrainJob) -> TrainJobSpec:
    """Return the spec in a form that does not depend on the generation of the client that wrote it.

    The word is moved from the annotation to ``numProcPerNode``, a string with a number becomes a number, and the mirror
    of fields that are present is removed.
    """
    spec = with_word(train_job).spec.shallow_copy()
    trainer = spec.trainer
    if trainer is not None and isinstance(trainer.num_proc_per_node, str):
        with contextlib.suppress(ValueError):
            value = number_or_word(trainer.num_proc_per_node)
            spec.set_unchecked("trainer", trainer.model_copy(update={"num_proc_per_node": value}))
    spec.set_unchecked("runtime_patches", runtime_patches(spec) or None)
    return spec


def suspends_with_same_overrides(old: TrainJob | None, new: TrainJob) -> bool:
    """Return True if an update leaves a TrainJob suspended and does not change its overrides."""
    same = old and equality.deep_equal(old.spec.pod_template_overrides, new.spec.pod_template_overrides)
    return bool(same and new.spec.suspend)
