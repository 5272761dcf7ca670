# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``podTemplateOverrides``: strategic merges over the pod templates of a runtime's jobs, the later over the earlier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.patchseries import PatchSeries
from controller_runtime.apis.machinery.strategicpatch import POD_TEMPLATE

from pkg import apply
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer import v1alpha1 as trainer

_KEPT: Final = 16
_lock: Final = threading.Lock()
_texts: Final[dict[int, tuple[JobSetSpec, bytes]]] = {}

Observe = Callable[[dict[str, JSON], int | None], None]
"""Is shown the template, first as it was, then after each override, by the override's index."""


def with_overrides(
    spec: JobSetSpec, overrides: Sequence[trainer.PodTemplateOverride], observe: Observe | None = None
) -> JobSetSpec:
    """Return the spec as it will be applied, a decoded copy, with the overrides merged in, later ones last.

    Raises:
        StrategicMergeError: an override does not fit the template.
    """
    if not overrides and observe is None:
        return JobSetSpec.from_json(_typed_text(spec))
    data = apply.as_typed(spec.to_dict())
    if observe is not None:
        observe(data, None)
    jobs = [_PodTemplate(job) for job in data.get("replicatedJobs", ()) if isinstance(job, dict)]
    by_name: dict[JSON, list[_PodTemplate]] = {}
    for job in jobs:
        by_name.setdefault(job.name, []).append(job)
    for index, override in enumerate(overrides):
        for name in {target.name: None for target in override.target_jobs or ()}:
            for job in by_name.get(name, ()):
                job.merge(_patch(override))
        if observe is not None:
            for job in jobs:
                job.settle()
            observe(data, index)
    for job in jobs:
        job.settle()
    return JobSetSpec.from_dict(data)


def _typed_text(spec: JobSetSpec) -> bytes:
    """Return a spec's JSON as a typed client sends it; kept for specs that were seen last, which nobody changes."""
    with _lock:  # what belongs to a large TrainJob is done in threads
        kept = _texts.get(id(spec))
        if kept is None or kept[0] is not spec:
            kept = spec, msgspec.json.encode(apply.as_typed(spec.to_dict()))
            if len(_texts) >= _KEPT:
                del _texts[next(iter(_texts))]
            _texts[id(spec)] = kept
    return kept[1]


class _PodTemplate:
    """The pod template in the JSON of a replicated job, while it is patched."""

    def __init__(self, job: dict[str, JSON]) -> None:
        self.name = job.get("name")
        self._job = job
        self._series: PatchSeries | None = None

    def merge(self, patch: dict[str, JSON]) -> None:
        """Merge one override's patch."""
        if self._series is None:
            template = self._job.get("template", {}).get("spec", {}).get("template", {})
            self._series = PatchSeries(template, POD_TEMPLATE, partial(apply.as_typed, inside="template"))
        self._series.merge(patch)

    def settle(self) -> None:
        """Write what became of the template into the job."""
        if self._series is not None:
            spec = self._job.setdefault("template", {}).setdefault("spec", {})
            spec["template"] = self._series.document()


def _patch(override: trainer.PodTemplateOverride) -> dict[str, JSON]:
    """Return the patch of a pod template that an override stands for; of its metadata, labels and annotations."""
    patch: dict[str, JSON] = {}
    if override.metadata is not None:
        metadata = {"labels": override.metadata.labels, "annotations": override.metadata.annotations}
        if present := {name: dict(held) for name, held in metadata.items() if held is not None}:
            patch["metadata"] = present
    if override.spec is not None:
        account = override.spec.service_account_name
        patch["spec"] = apply.as_typed(override.spec.to_dict(), inside="spec")
        if account is not None:
            # Empty, it takes the template's account away.
            patch["spec"]["serviceAccountName"] = account
    return patch
