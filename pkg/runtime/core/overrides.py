# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob's changes to its runtime's template: ``podTemplateOverrides``, ``runtimePatches``, Kueue's placement.

All of them are strategic merge patches. The runtime patches are merged in the order of the list; each manager has at
most one patch. What the merges of one TrainJob may write is limited.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
from controller_runtime.machinery import JSON, field, openapi, printable
from controller_runtime.machinery.patch import StrategicMergeError, strategic_merge_patch

from pkg import apply
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.util import generations

_KEPT: Final = 16
_KEPT_SIZE: Final = 256 * 1024
"""Maximum number of specs whose JSON is kept, and of bytes of this JSON. The newest is always kept."""
_lock: Final = threading.Lock()
_texts: Final[deque[tuple[JobSetSpec, bytes]]] = deque(maxlen=_KEPT)
"""Recent specs and their JSON. Specs are compared by identity: all TrainJobs of a runtime share the cached spec."""
MERGE_OVERRIDES: Final = "merge overrides of the same job into one"
"""The advice to a user whose overrides write too many values."""
_MOST_VALUES: Final = 500_000
"""Maximum number of values that all merges of one TrainJob may write together.

Writing them takes half a second of CPU time. The limit is reached by 500 overrides with volumes.
"""
_CHARACTERS: Final = 64
"""Number of characters of a text or key that count as one more value."""
_MAX_DETAILS: Final = 16
"""Maximum number of different problems in one error."""
_DENIED: Final = "the manager's Configuration denies a securityContext in runtime patches"
_TO_JOBS: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_TO_POD: Final = ("template", "spec", "template", "spec")

Observe = Callable[[dict[str, JSON], str], None]
"""Receives the template and a description: first the original and an empty text, then the result of each change."""


class RuntimePatchError(StrategicMergeError):
    """Patches cannot be merged into the template. ``details`` are the reasons."""

    def __init__(self, details: Iterable[str]) -> None:
        self.details = list(islice(dict.fromkeys(details), _MAX_DETAILS))
        super().__init__(f"runtimePatches: {'; '.join(self.details)}")


class DeniedPatchError(RuntimePatchError):
    """A patch sets a field that the Configuration denies. ``errors`` name the fields."""

    def __init__(self, paths: Iterable[field.Path]) -> None:
        self.errors = [field.forbidden(path, _DENIED) for path in islice(paths, _MAX_DETAILS)]
        super().__init__(map(str, self.errors))


class MergeLimit:
    """Counts the values that merges write."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def spend(self, written: JSON, merged: str, advice: str) -> None:
        """Count the values in the result of a merge, before the next merge.

        Raises:
            StrategicMergeError: too many values were written. The text says which items were ``merged``, and ends with
                the ``advice``.
        """
        self._left -= _values(written)
        if self._left < 0:
            raise StrategicMergeError(f"{merged} write more than {_MOST_VALUES} values; {advice}")


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
    if not overrides and observe is None and not any(map(generations.patched_jobs, patches)):
        return JobSetSpec.from_json(_typed_text(spec))
    data = apply.as_typed(spec.to_dict())
    if observe is not None:
        observe(data, "")
    limit = MergeLimit()
    for merges in (
        _merge_overrides(data, overrides, limit, placements=False),
        merge_patches(data, patches, limit),
        _merge_overrides(data, overrides, limit, placements=True),
    ):
        for description in merges:
            if observe is not None:
                observe(data, description)
    return JobSetSpec.from_dict(data)


def _merge_overrides(
    data: dict[str, JSON],
    overrides: Sequence[trainer.PodTemplateOverride],
    limit: MergeLimit,
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
                limit.spend(_merge(job, override), merged, MERGE_OVERRIDES)
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
        for held, text in _texts:
            if held is spec:
                return text
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


def deny_security_context(spec: trainer.TrainJobSpec) -> None:
    """Raise an error if a runtime patch sets the securityContext of a pod or container.

    Patches that do not take effect are ignored.

    Raises:
        DeniedPatchError: a patch sets a securityContext.
    """
    if paths := list(_security_contexts(spec)):
        raise DeniedPatchError(paths)


def _security_contexts(spec: trainer.TrainJobSpec) -> Iterator[field.Path]:
    """Yield the path of each securityContext in the runtime patches. Patches that do not take effect are skipped."""
    effective = {id(patch) for patch in generations.runtime_patches(spec)}
    for number, patch in enumerate(spec.runtime_patches or ()):
        jobs = field.Path("spec", "runtimePatches").index(number).child(*_TO_JOBS)
        for index, job in enumerate(generations.patched_jobs(patch) if id(patch) in effective else ()):
            pod = generations.patched_pod(job)
            if pod is None:
                continue
            path = jobs.index(index).child(*_TO_POD)
            if pod.security_context is not None:
                yield path.child("securityContext")
            for name, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
                for at, container in enumerate(containers or ()):
                    if container.security_context is not None:
                        yield path.child(name).index(at).child("securityContext")


def merge_patches(
    data: dict[str, JSON], patches: Sequence[trainer.RuntimePatch], limit: MergeLimit
) -> Iterator[str]:
    """Merge the patches into the JSON of a template's spec, and yield the description of each patch after its merge.

    Raises:
        RuntimePatchError: a patch names an unknown job or container, or cannot be merged into the template, or the
            merges would write too many values.
    """
    jobs = {job.get("name"): job for job in data.get("replicatedJobs", ())}
    if details := list(_unknown(jobs, patches)):
        raise RuntimePatchError(details)
    for index, patch in enumerate(patches):
        for wanted in generations.patched_jobs(patch):
            if wanted.template is None:
                continue
            job = jobs[wanted.name]
            try:
                merged = strategic_merge_patch(
                    job.get("template", {}),
                    _patch(wanted.template),
                    openapi.merge_schema("batch.v1.JobTemplateSpec"),
                )
                job["template"] = apply.as_typed(merged, inside="template")
                limit.spend(job["template"], f"the first {index + 1} of {len(patches)}", "patch fewer jobs")
            except StrategicMergeError as error:
                where = f"patch of {patch.manager} for job {wanted.name}"
                parts = filter(None, (where, printable.cut(".".join(error.path)), str(error)))
                raise RuntimePatchError([": ".join(parts)]) from error
        yield f"runtimePatches[{index}] of {patch.manager}"


def _unknown(jobs: dict[str, dict[str, JSON]], patches: Iterable[trainer.RuntimePatch]) -> Iterator[str]:
    """Yield a problem if a patch names a job or container that is not in the template.

    The merge would add the job or container without an image.
    """
    for patch in patches:
        for wanted in generations.patched_jobs(patch):
            if wanted.name not in jobs:
                yield "must not have replicated job that doesn't exist in the runtime job template"
                continue
            pod = generations.patched_pod(wanted)
            if pod is None:
                continue
            template = (
                jobs[wanted.name].get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
            )
            for kind, part, named in (
                ("initContainer", "initContainers", pod.init_containers),
                ("container", "containers", pod.containers),
            ):
                known = {container.get("name") for container in template.get(part) or ()}
                if any(container.name not in known for container in named or ()):
                    yield f"must not have {kind} that doesn't exist in the runtime job {wanted.name}"


def _patch(template: trainer.JobTemplatePatch) -> dict[str, JSON]:
    """Return a patch as the JSON that a typed client sends: without empty lists and maps."""
    patch = template.to_dict()
    pod = patch.get("spec", {}).get("template", {}).get("spec", {})
    account = pod.get("serviceAccountName")
    patch = apply.as_typed(patch)
    if account == "":  # a pointer in Go: an empty value removes the template's service account
        patch["spec"]["template"]["spec"]["serviceAccountName"] = account
    return patch


def _values(value: JSON) -> int:
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS
    if isinstance(value, dict):
        return 1 + sum(map(len, value)) // _CHARACTERS + sum(map(_values, value.values()))
    return 1 + sum(map(_values, value)) if isinstance(value, list) else 1
