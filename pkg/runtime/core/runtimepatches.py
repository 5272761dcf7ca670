# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``runtimePatches``: strategic merge patches that change a runtime's template. Each manager has at most one patch.

The patches are merged in the order of the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import JSON, field, openapi, printable
from controller_runtime.machinery.patch import StrategicMergeError, strategic_merge_patch

from pkg import apply
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.util import generations

from .budget import Budget

_MAX_DETAILS: Final = 16
"""Maximum number of different problems in one error."""
_DENIED: Final = "the manager's Configuration denies a securityContext in runtime patches"
_TO_JOBS: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_TO_POD: Final = ("template", "spec", "template", "spec")


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
    data: dict[str, JSON], patches: Sequence[trainer.RuntimePatch], budget: Budget
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
                budget.spend(job["template"], f"the first {index + 1} of {len(patches)}", "patch fewer jobs")
            except StrategicMergeError as error:
                where = f"patch of {patch.manager} for job {wanted.name}"
                parts = filter(None, (where, printable.cut(".".join(error.path)), str(error)))
                raise RuntimePatchError([": ".join(parts)]) from error
        yield f"runtimePatches[{index}] of {patch.manager}"


def job_set_metadata(patches: Iterable[trainer.RuntimePatch]) -> Iterator[ObjectMeta]:
    """Yield the metadata that patches set on the JobSet, in order."""
    for patch in patches:
        template = patch.training_runtime_spec.template if patch.training_runtime_spec is not None else None
        if template is not None and template.metadata is not None:
            yield template.metadata


def has_job_patches(patches: Iterable[trainer.RuntimePatch]) -> bool:
    """Return True if a patch names a job."""
    return any(generations.patched_jobs(patch) for patch in patches)


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
