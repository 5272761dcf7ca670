# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies a TrainJob's ``resourcesPerNode`` to the template, so that plugins see the resources of the containers."""

from __future__ import annotations

from collections.abc import Iterator

from controller_runtime.apis.core.v1 import Container, ResourceRequirements

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import MLPolicy, TrainJob
from pkg.constants import trainer as constants
from pkg.util import resources


def apply_resources(
    spec: JobSetSpec, train_job: TrainJob, ml_policy: MLPolicy | None, *, merge: bool
) -> None:
    """Merge the TrainJob's resources into those of the trainer's containers, or replace them.

    Claims are dropped, as upstream. An empty map that replaces is sent. Without limits and requests nothing is
    replaced.
    """
    trainer = train_job.spec.trainer
    wanted = trainer.resources_per_node if trainer is not None else None
    if wanted is None or (not merge and wanted.limits is None and wanted.requests is None):
        return
    for container in _trainers(spec, ml_policy):
        if merge:
            container.resources = resources.merged(container.resources, wanted)
        else:
            container.resources = ResourceRequirements(limits=wanted.limits, requests=wanted.requests)


def _trainers(spec: JobSetSpec, ml_policy: MLPolicy | None) -> Iterator[Container]:
    """Yield the containers ``node`` of the trainer's jobs, and of the job ``node`` if an MPI launcher trains too."""
    mpi = ml_policy.mpi if ml_policy is not None else None
    launcher_trains = mpi is not None and mpi.run_launcher_as_node is True
    for job in spec.replicated_jobs or ():
        metadata = job.template.metadata
        labels = (metadata.labels if metadata is not None else None) or {}
        if labels.get(constants.LABEL_TRAIN_JOB_ANCESTOR) == constants.ANCESTOR_TRAINER or (
            launcher_trains and job.name == constants.NODE
        ):
            for container in job.template.spec.template.spec.containers or ():
                if container.name == constants.NODE:
                    yield container
