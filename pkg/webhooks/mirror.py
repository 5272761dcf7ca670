# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Mirrors the first generation's fields of a TrainJob in a runtime patch, for clients of v2.2 and later.

Kueue computes pod sets from ``runtimePatches`` only, and MultiKueue does not copy the first generation's fields to
another cluster. The mirror is the first patch of the list. The mirror is updated when these fields change, and removed
when these fields are removed.
"""

from __future__ import annotations

from collections.abc import Sized

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import JSON, Struct, equality, openapi, printable, wire_name
from controller_runtime.machinery.crd import Markers
from controller_runtime.machinery.patch import StrategicMergeError, strategic_merge_patch

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.constants import trainer as constants
from pkg.runtime.core.overrides import MERGE_OVERRIDES, MergeLimit, pod_patch
from pkg.util import generations

Document = dict[str, JSON]


class NotMirrorableError(ValueError):
    """The fields cannot be mirrored, because no runtime patch has the same effect. The text says why."""


def update(train_job: trainer.TrainJob, *, wanted: bool) -> None:
    """Create or renew the mirror of the first generation's fields, if a mirror is ``wanted`` or already present.

    Nothing is changed if the TrainJob has none of these fields: a CRD of another release may have pruned them.

    Raises:
        NotMirrorableError: the fields cannot be mirrored; an existing mirror was removed.
    """
    spec = train_job.spec
    present = [patch for patch in spec.runtime_patches or () if generations.is_mirror(patch)]
    if not generations.has_first_generation(spec) or not (wanted or present):
        return
    others = [patch for patch in spec.runtime_patches or () if not generations.is_mirror(patch)]
    try:
        mirror = compose(spec)
        _check(mirror, [mirror, *others])
    except (NotMirrorableError, StrategicMergeError) as error:
        remove(train_job)
        raise NotMirrorableError(str(error)) from error
    mirror.manager = _manager(present, mirror)
    for patch in present:
        if patch.manager == mirror.manager:
            mirror.time = patch.time
    spec.runtime_patches = [mirror, *others]


def remove(train_job: trainer.TrainJob) -> None:
    """Remove the mirror."""
    spec = train_job.spec
    if any(map(generations.is_mirror, spec.runtime_patches or ())):
        kept = [patch for patch in spec.runtime_patches or () if not generations.is_mirror(patch)]
        spec.runtime_patches = kept or None


def compose(spec: trainer.TrainJobSpec) -> trainer.RuntimePatch:
    """Return the patch that has the same effect as the labels, the annotations and the overrides, merged in order.

    Placements by Kueue are merged after the overrides of the user.

    Raises:
        NotMirrorableError: a map contains a directive of strategic merge patches, or the overrides name too many jobs.
        StrategicMergeError: the overrides cannot be merged with each other, or would write too many values.
    """
    pods: dict[str, Document] = {}
    limit, overrides = MergeLimit(), sorted(spec.pod_template_overrides or (), key=generations.is_placement)
    names = {target.name for override in overrides for target in override.target_jobs or ()}
    _check_length(names, "replicatedJobs", _marker(trainer.JobSetSpecPatch, "replicated_jobs"))
    for index, override in enumerate(overrides, 1):
        merged = f"podTemplateOverrides: the first {index} of {len(overrides)}"
        for name in {target.name: None for target in override.target_jobs or ()}:
            pods[name] = strategic_merge_patch(
                pods.get(name, {}), _pod_patch(override), openapi.merge_schema("core.v1.PodTemplateSpec")
            )
            limit.spend(pods[name], merged, MERGE_OVERRIDES)
    jobs = [
        trainer.ReplicatedJobPatch(
            name=name,
            template=trainer.JobTemplatePatch(
                spec=trainer.JobSpecPatch(template=trainer.PodTemplatePatch.from_dict(pod))
            ),
        )
        for name, pod in pods.items()
    ]
    metadata = None
    if spec.labels or spec.annotations:
        _refuse_directives(spec.labels or {})
        _refuse_directives(spec.annotations or {})
        metadata = ObjectMeta(labels=spec.labels or None, annotations=spec.annotations or None)
    template = trainer.JobSetTemplatePatch(
        metadata=metadata, spec=trainer.JobSetSpecPatch(replicated_jobs=jobs) if jobs else None
    )
    return trainer.RuntimePatch(
        manager=constants.FIRST_GENERATION_MANAGERS[0],
        training_runtime_spec=trainer.TrainingRuntimeSpecPatch(template=template),
    )


def _pod_patch(override: trainer.PodTemplateOverride) -> Document:
    """Return an override as a patch of a pod template. Empty maps and containers' ``resources`` are left out."""
    patch = pod_patch(override)
    metadata = {name: value for name, value in patch.pop("metadata", {}).items() if value}
    patch = {**({"metadata": metadata} if metadata else {}), **patch}
    for kind in ("containers", "initContainers"):
        for container in patch.get("spec", {}).get(kind, ()):
            container.pop("resources", None)
    _refuse_directives(patch)
    return patch


def _refuse_directives(value: JSON) -> None:
    if isinstance(value, dict):
        for key, below in value.items():
            if key.startswith("$"):
                raise NotMirrorableError(
                    f"{printable.cut(key)} is a directive, which runtimePatches cannot hold"
                )
            _refuse_directives(below)
    elif isinstance(value, list):
        for each in value:
            _refuse_directives(each)


def _manager(present: list[trainer.RuntimePatch], mirror: trainer.RuntimePatch) -> str:
    """Return the manager for the new mirror: another manager than at present if an immutable field changes."""
    first, second = constants.FIRST_GENERATION_MANAGERS
    if not present:
        return first
    used = present[0].manager
    before = dict(generations.pod_patches(present[0]))
    for job, pod in generations.pod_patches(mirror):
        stored = before.get(job)
        if stored is not None and any(_is_refused(stored, pod, name) for name in type(pod).model_fields):
            return second if used == first else first
    return used


def _is_refused(stored: trainer.PodSpecPatch, new: trainer.PodSpecPatch, name: str) -> bool:
    """Return True if the CRD refuses the change of a field: some fields are immutable once they are set."""
    before, after = getattr(stored, name), getattr(new, name)
    if before is None or after is None or equality.deep_equal(before, after):
        return False
    return any("oldSelf" in each.rule for each in _marker(type(new), name).rules)


def _check(mirror: trainer.RuntimePatch, patches: list[trainer.RuntimePatch]) -> None:
    """Raise NotMirrorableError if the CRD would refuse the mirror."""
    holder = trainer.TrainJobSpec(runtime_patches=patches)
    limit = _marker(type(holder), "runtime_patches").max_items or len(patches)
    if len(patches) > limit:
        raise NotMirrorableError(f"there are already {limit} runtimePatches")
    _check_struct(mirror)


def _check_struct(struct: Struct) -> None:
    for name, value in struct.__dict__.items():
        if isinstance(value, Struct):
            _check_struct(value)
        elif isinstance(value, list | str):
            marker = _marker(type(struct), name)
            wire = wire_name(name, type(struct).model_fields[name])
            _check_length(value, wire, marker)
            if isinstance(value, list):
                _check_list(wire, value, marker.list_map_keys or ())


def _check_length(value: Sized, wire: str, marker: Markers) -> None:
    longest = marker.max_length if isinstance(value, str) else marker.max_items
    if longest is not None and len(value) > longest:
        raise NotMirrorableError(f"{wire} may have at most {longest} items or characters in runtimePatches")


def _check_list(wire: str, items: list[JSON], keys: tuple[str, ...]) -> None:
    seen = [tuple(getattr(item, key, None) for key in keys) for item in items] if keys else []
    if len(set(seen)) != len(seen):
        raise NotMirrorableError(f"{wire} has an item twice, which runtimePatches cannot hold")
    for item in items:
        if isinstance(item, Struct):
            _check_struct(item)


def _marker(model: type[Struct], name: str) -> Markers:
    """Return the first marker of a field. If the field has none, return an empty marker."""
    return next((each for each in model.model_fields[name].metadata if isinstance(each, Markers)), Markers())
