# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``podTemplateOverrides``: strategic merges into the pod templates of a runtime's jobs, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.strategicpatch import StrategicMergeError, strategic_merge_patch
from controller_runtime.apis.machinery.strategicschema import POD_TEMPLATE

from pkg import apply
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer import v1alpha1 as trainer

_KEPT: Final = 16
_MOST_VALUES: Final = 500_000
"""Maximum number of values that all merges of a TrainJob write: half a second of CPU, or 500 overrides with volumes."""
_lock: Final = threading.Lock()
_texts: Final[dict[int, tuple[JobSetSpec, bytes]]] = {}

Observe = Callable[[dict[str, JSON], int | None], None]
"""Receives the original template, then the template after each override with the override's index."""


def with_overrides(
    spec: JobSetSpec, overrides: Sequence[trainer.PodTemplateOverride], observe: Observe | None = None
) -> JobSetSpec:
    """Return a decoded copy of the spec with the overrides merged in order.

    Raises:
        StrategicMergeError: an override does not fit the template, or the merges would write too many values.
    """
    if not overrides and observe is None:
        return JobSetSpec.from_json(_typed_text(spec))
    data = apply.as_typed(spec.to_dict())
    if observe is not None:
        observe(data, None)
    by_name: dict[JSON, list[dict[str, JSON]]] = {}
    for job in data.get("replicatedJobs", ()):
        if isinstance(job, dict):
            by_name.setdefault(job.get("name"), []).append(job)
    left = _MOST_VALUES
    for index, override in enumerate(overrides):
        for name in {target.name: None for target in override.target_jobs or ()}:
            for job in by_name.get(name, ()):
                left -= _merge(job, override)
        if left < 0:
            raise StrategicMergeError(
                f"podTemplateOverrides: the first {index + 1} of {len(overrides)} write more than "
                f"{_MOST_VALUES} values; merge overrides of the same job into one"
            )
        if observe is not None:
            observe(data, index)
    return JobSetSpec.from_dict(data)


def _merge(job: dict[str, JSON], override: trainer.PodTemplateOverride) -> int:
    """Merge an override into a replicated job's pod template, and return the number of written values."""
    spec = job.setdefault("template", {}).setdefault("spec", {})
    merged = strategic_merge_patch(spec.get("template", {}), _patch(override), POD_TEMPLATE)
    spec["template"] = apply.as_typed(merged, inside="template")
    return _values(spec["template"])


def _values(value: JSON) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_values, value.values()))
    return 1 + sum(map(_values, value)) if isinstance(value, list) else 1


def _typed_text(spec: JobSetSpec) -> bytes:
    """Return a spec's JSON as a typed client sends it. Cached for recent specs; callers must not change the result."""
    with _lock:  # large TrainJobs are processed in threads
        kept = _texts.get(id(spec))
        if kept is None or kept[0] is not spec:
            kept = spec, msgspec.json.encode(apply.as_typed(spec.to_dict()))
            if len(_texts) >= _KEPT:
                del _texts[next(iter(_texts))]
            _texts[id(spec)] = kept
    return kept[1]


def _patch(override: trainer.PodTemplateOverride) -> dict[str, JSON]:
    """Return an override as a patch of a pod template; of its metadata, only labels and annotations."""
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
