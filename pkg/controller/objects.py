# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects that a TrainJob's runtime builds, as the JobSet and its siblings."""

from __future__ import annotations

from controller_runtime.machinery import Object

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime

Built = tuple[JobSet | None, list[Object]]
"""A JobSet and its siblings."""


async def desired(runtime: Runtime, train_job: TrainJob) -> Built:
    """Return all objects of a TrainJob whose JobSet does not run, including the PodGroup of a resumed one."""
    suspended = train_job
    if not train_job.spec.suspend:
        suspended = train_job.shallow_copy()
        suspended.spec = train_job.spec.model_copy(update={"suspend": True})
    objects = await runtime.new_objects(suspended)
    job_set, siblings = split(objects)
    return job_set and with_suspend(job_set, train_job.spec.suspend), siblings


def with_suspend(job_set: JobSet, suspend: bool | None) -> JobSet:
    """Return the JobSet with this ``suspend``, itself if it has it."""
    if job_set.spec.suspend is suspend:
        return job_set
    changed = job_set.shallow_copy()
    changed.spec = job_set.spec.model_copy(update={"suspend": suspend})
    return changed


def split(objects: list[Object]) -> Built:
    """Return the JobSet or None, and its siblings."""
    job_set = next((each for each in objects if isinstance(each, JobSet)), None)
    return job_set, [each for each in objects if each is not job_set]
