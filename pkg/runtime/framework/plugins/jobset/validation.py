# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Validation of a TrainJob against its runtime's template, and of changes to its overrides."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from controller_runtime.client import Reader
from controller_runtime.machinery import equality, field
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError

from pkg.apis.jobset.v1alpha2 import JobSet, JobSetSpec
from pkg.apis.trainer.v1alpha1 import PodTemplateOverride, PodTemplateSpecOverride, TrainJob
from pkg.constants import trainer as constants

_RUNTIME_REF: Final = field.Path("spec").child("runtimeRef")
_OVERRIDES: Final = field.Path("spec").child("podTemplateOverrides")
RESERVED: Final = (constants.DATASET_INITIALIZER, constants.MODEL_INITIALIZER, constants.NODE)
RESERVED_ENV: Final = f"must not have envs for the {', '.join(RESERVED)} containers"
_INITIALIZER_VOLUME: Final = "initializer"
_MAX_ERRORS: Final = 1000
_MAX_DETAILS: Final = 16
"""Maximum number of errors about overrides, and of different errors, in one response."""

Containers = dict[str, set[str]]
"""The names of the containers of each job, including init containers."""


def containers_by_job(spec: JobSetSpec) -> Containers:
    """Return the names of the template's jobs and their containers."""
    names: Containers = {}
    for job in spec.replicated_jobs or ():
        pod = job.template.spec.template.spec
        names[job.name] = {
            container.name for container in (*(pod.init_containers or ()), *(pod.containers or ()))
        }
    return names


def validate_initializers(
    containers: Containers, job: TrainJob, spec: JobSetSpec | None = None
) -> Iterator[field.FieldError]:
    """Yield an error for each initializer of the TrainJob whose job or container the template lacks.

    With the template's ``spec``, also yield an error if the container does not mount the initializers' volume.
    """
    initializer = job.spec.initializer
    if initializer is None:
        return
    for name, wanted, config in (
        (constants.DATASET_INITIALIZER, initializer.dataset, "datasetConfig"),
        (constants.MODEL_INITIALIZER, initializer.model, "modelConfig"),
    ):
        if wanted is None:
            continue
        if name not in containers:
            detail = f"must have {name} job when trainJob is configured with input {config}"
        elif name not in containers[name]:
            detail = f"must have container with name - {name} in the {name} job"
        elif spec is not None and not _mounts_volume(spec, name):
            detail = f"must have volumeMount with name - {_INITIALIZER_VOLUME} in container {name} of the {name} job"
        else:
            continue
        yield field.invalid(_RUNTIME_REF, job.spec.runtime_ref, detail)


def _mounts_volume(spec: JobSetSpec, name: str) -> bool:
    """Return True if the container of an initializer mounts the initializers' volume."""
    return any(
        mount.name == _INITIALIZER_VOLUME
        for job in spec.replicated_jobs or ()
        if job.name == name
        for container in job.template.spec.template.spec.containers or ()
        if container.name == name
        for mount in container.volume_mounts or ()
    )


def validate_overrides(containers: Containers, job: TrainJob) -> field.ErrorList:
    """Check that overrides name existing jobs and containers, and set no environment of a reserved container."""
    problems = _override_problems(containers, job.spec.pod_template_overrides or ())
    details = list(itertools.islice(problems, _MAX_ERRORS))
    # Each error quotes all overrides: build one error per detail, and only for the first details.
    quoted = field.Quoted(job.spec.pod_template_overrides)
    once = {
        detail: field.invalid(_OVERRIDES, quoted, detail)
        for detail in itertools.islice(dict.fromkeys(details), _MAX_DETAILS)
    }
    return field.ErrorList(once[detail] for detail in details if detail in once)


def _override_problems(containers: Containers, overrides: Iterable[PodTemplateOverride]) -> Iterator[str]:
    """Yield the problems of each override in each of its jobs."""
    for override in overrides:
        spec = override.spec or PodTemplateSpecOverride()
        first = {container.name: None for container in spec.init_containers or ()}
        later = {(container.name, bool(container.env)): None for container in spec.containers or ()}
        for job in {target.name: None for target in override.target_jobs or ()}:
            known = containers.get(job, set())
            if job not in containers:
                yield "must not have targetJob that doesn't exist in the runtime job template"
            for name in first:
                if name not in known:
                    yield f"must not have initContainer that doesn't exist in the runtime job {job}"
            for name, has_env in later:
                if name not in known:
                    yield f"must not have container that doesn't exist in the runtime job {job}"
                elif has_env and name in RESERVED:
                    yield RESERVED_ENV


async def validate_override_changes(client: Reader, old: TrainJob | None, new: TrainJob) -> field.ErrorList:
    """Check that overrides change only while the TrainJob is suspended and none of its jobs is active."""
    if old is None or equality.deep_equal(old.spec.pod_template_overrides, new.spec.pod_template_overrides):
        return field.ErrorList()
    if not new.spec.suspend:
        detail = "PodTemplateOverrides can only be modified when the TrainJob is suspended"
        return field.ErrorList([field.forbidden(_OVERRIDES, detail)])
    return await forbid_active_jobs(client, new, _OVERRIDES, "PodTemplateOverrides")


async def forbid_active_jobs(
    client: Reader, train_job: TrainJob, path: field.Path, changes: str
) -> field.ErrorList:
    """Return an error for each replicated job with an active Job: the active Job would not follow the change.

    The errors call the changed field ``changes``, for example "RuntimePatches".
    """
    try:
        job_set = await client.get(JobSet, train_job.key)
    except NotFoundError:
        return field.ErrorList()
    except (StatusError, RestError) as error:
        return field.ErrorList([field.internal(path, error)])
    detail = f"{changes} cannot be modified when the JobSet's ReplicatedJob {{}} is still active"
    jobs = job_set.status.replicated_jobs_status or ()
    return field.ErrorList(field.forbidden(path, detail.format(job.name)) for job in jobs if job.active > 0)
