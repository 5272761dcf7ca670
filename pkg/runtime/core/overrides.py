# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob's changes to its runtime's template: ``podTemplateOverrides``, ``runtimePatches``, Kueue's placement."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from controller_runtime.machinery import JSON, openapi
from controller_runtime.machinery.patch import strategic_merge_patch

from pkg import apply
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.util import generations

from .budget import Budget
from .runtimepatches import has_job_patches, merge_patches

_KEPT: Final = 16
_KEPT_SIZE: Final = 256 * 1024
"""Maximum number of specs whose JSON is kept, and of bytes of this JSON. The newest is always kept."""
_lock: Final = threading.Lock()
_texts: Final[deque[tuple[JobSetSpec, bytes]]] = deque(maxlen=_KEPT)
"""Recent specs and their JSON. Specs are compared by identity: all TrainJobs of a runtime share the cached spec."""
MERGE_OVERRIDES: Final = "merge overrides of the same job into one"
"""The advice to a user whose overrides write too many values."""

Observe = Callable[[dict[str, JSON], str], None]
"""Receives the template and a description: first the original and an empty text, then the result of each change."""


def with_overrides(
    spec: JobSetSpec,
    overrides: Sequence[trainer.PodTemplateOverride],
    patches: Sequence[trainer.RuntimePatch] = (),
    observe: Observe | None = None,
) -> JobSetSpec:
    """Return a copy of the spec into which the overrides, the patches and Kueue's placements are merged, in this order.

    A placement is an override with which Kueue up to v0.16 chooses the nodes of pods. It is merged last, because a
    user's patch could otherwise move the pods to other nodes. Kueue v0.17 and newer uses a runtime patch instead. The
    webhook keeps that patch at the end of the patches, for the same reason.

    Raises:
        RuntimePatchError: a patch cannot be merged into the template, or the merges would write too many values.
        StrategicMergeError: the same is true of an override.
    """
    if not overrides and observe is None and not has_job_patches(patches):
        return JobSetSpec.from_json(_typed_text(spec))
    data = apply.as_typed(spec.to_dict())
    if observe is not None:
        observe(data, "")
    budget = Budget()
    for merges in (
        _merge_overrides(data, overrides, budget, placements=False),
        merge_patches(data, patches, budget),
        _merge_overrides(data, overrides, budget, placements=True),
    ):
        for description in merges:
            if observe is not None:
                observe(data, description)
    return JobSetSpec.from_dict(data)


def _merge_overrides(
    data: dict[str, JSON],
    overrides: Sequence[trainer.PodTemplateOverride],
    budget: Budget,
    *,
    placements: bool,
) -> Iterator[str]:
    """Merge overrides into a template's JSON, and yield a description of each override after its merge.

    If ``placements`` is True, only Kueue's placements are merged. If it is False, only the other overrides are merged.
    """
    by_name: dict[JSON, list[dict[str, JSON]]] = {}
    for job in data.get("replicatedJobs", ()):
        if isinstance(job, dict):
            by_name.setdefault(job.get("name"), []).append(job)
    for index, override in enumerate(overrides):
        if generations.is_placement(override) is not placements:
            continue
        targets = {target.name: None for target in override.target_jobs or ()}
        merged = f"podTemplateOverrides: the first {index + 1} of {len(overrides)}"
        for name in targets:
            for job in by_name.get(name, ()):
                budget.spend(_merge(job, override), merged, MERGE_OVERRIDES)
        yield f"podTemplateOverrides[{index}] for {', '.join(targets)}"


def _merge(job: dict[str, JSON], override: trainer.PodTemplateOverride) -> dict[str, JSON]:
    """Merge an override into a replicated job's pod template, and return the template."""
    spec = job.setdefault("template", {}).setdefault("spec", {})
    merged = strategic_merge_patch(
        spec.get("template", {}), pod_patch(override), openapi.merge_schema("core.v1.PodTemplateSpec")
    )
    template = spec["template"] = apply.as_typed(merged, inside="template")
    return template


def _typed_text(spec: JobSetSpec) -> bytes:
    """Return the JSON that a typed client would send for a spec.

    The JSON is cached for recent specs, so callers must not change a spec.
    """
    with _lock:  # large TrainJobs are processed in threads
        text = next((text for held, text in _texts if held is spec), None)
        if text is None:
            text = msgspec.json.encode(apply.as_typed(spec.to_dict()))
            _texts.append((spec, text))
            while len(_texts) > 1 and sum(len(kept) for _, kept in _texts) > _KEPT_SIZE:
                _texts.popleft()
    return text


def pod_patch(override: trainer.PodTemplateOverride) -> dict[str, JSON]:
    """Return an override as a patch of a pod template.

    The patch contains the labels and annotations of the override, and no other metadata.
    """
    patch: dict[str, JSON] = {}
    if override.metadata is not None:
        metadata = {"labels": override.metadata.labels, "annotations": override.metadata.annotations}
        if present := {name: dict(held) for name, held in metadata.items() if held is not None}:
            patch["metadata"] = present
    if override.spec is not None:
        account = override.spec.service_account_name
        patch["spec"] = apply.as_typed(override.spec.to_dict(), inside="spec")
        if account is not None:
            # An empty value removes the template's service account.
            patch["spec"]["serviceAccountName"] = account
    return patch
