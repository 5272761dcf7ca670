# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Builder: applies a TrainJob's initializers and trainer to the JobSet of the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from controller_runtime.apis.core.v1 import Container, EnvFromSource, EnvVar, SecretEnvSource
from controller_runtime.apis.meta.v1 import ObjectMeta

from pkg import apply
from pkg.apis.jobset.v1alpha2 import JobSet, ReplicatedJob
from pkg.apis.trainer.v1alpha1 import DatasetInitializer, ModelInitializer, Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.runtime import Info, ancestor_of, containers_of

INITIALIZER_ENV_STORAGE_URI: Final = "STORAGE_URI"


class Builder:
    """Changes a JobSet step by step, in place."""

    def __init__(self, job_set: JobSet) -> None:
        self._job_set = job_set
        self._jobs = job_set.spec.replicated_jobs or []

    def initializer(self, train_job: TrainJob) -> Self:
        """Set one replica for initializer jobs, and apply the TrainJob's initializer to their containers."""
        wanted = train_job.spec.initializer
        for job in self._jobs:
            ancestor = ancestor_of(job)
            if ancestor not in (constants.DATASET_INITIALIZER, constants.MODEL_INITIALIZER):
                continue
            job.replicas = constants.DEFAULT_JOB_REPLICAS
            if wanted is None:
                continue
            source = wanted.dataset if ancestor == constants.DATASET_INITIALIZER else wanted.model
            if source is not None:
                for container in containers_of(job, ancestor):
                    _initialize(container, source)
        return self

    def trainer(self, info: Info, train_job: TrainJob) -> Self:
        """Set one replica for the trainer's job, and apply the TrainJob's trainer to its container ``node``.

        If the launcher trains too (MPI), apply the environment to the job ``node`` as well. The TrainJob's
        resources were applied before the first plugin ran.
        """
        wanted = train_job.spec.trainer
        mpi = info.ml_policy.mpi
        launcher_trains = mpi is not None and mpi.run_launcher_as_node is True
        for job in self._jobs:
            is_trainer = ancestor_of(job) == constants.ANCESTOR_TRAINER
            if is_trainer:
                job.replicas = constants.DEFAULT_JOB_REPLICAS
            for container in containers_of(job, constants.NODE):
                if is_trainer:
                    _set_program(container, wanted, info)
                if wanted is not None and (is_trainer or (launcher_trains and job.name == constants.NODE)):
                    container.env = apply.upsert_env_vars(container.env, apply.env_vars(wanted.env))
        return self

    def pod_labels(self, labels: Mapping[str, str]) -> Self:
        """Add labels to every pod template."""
        for job in self._jobs:
            if labels:
                metadata = _pod_metadata(job)
                metadata.labels = {**(metadata.labels or {}), **labels}
        return self

    def pod_annotations(self, annotations: Mapping[str, str]) -> Self:
        """Add annotations to every pod template."""
        for job in self._jobs:
            if annotations:
                metadata = _pod_metadata(job)
                metadata.annotations = {**(metadata.annotations or {}), **annotations}
        return self

    def suspend(self, suspend: bool | None) -> Self:
        """Set ``suspend`` of the JobSet."""
        self._job_set.spec.suspend = suspend
        return self

    def build(self) -> JobSet:
        """Return the JobSet."""
        return self._job_set


def _pod_metadata(job: ReplicatedJob) -> ObjectMeta:
    template = job.template.spec.template
    if template.metadata is None:
        template.metadata = ObjectMeta()
    return template.metadata


def _initialize(container: Container, source: DatasetInitializer | ModelInitializer) -> None:
    if source.storage_uri is not None:
        uri = EnvVar(name=INITIALIZER_ENV_STORAGE_URI, value=source.storage_uri)
        container.env = apply.upsert_env_vars(container.env, [uri])
    container.env = apply.upsert_env_vars(container.env, apply.env_vars(source.env))
    if source.secret_ref is not None:
        secret = EnvFromSource(secret_ref=SecretEnvSource(name=source.secret_ref.name or ""))
        container.env_from = [*(container.env_from or ()), secret]


def _set_program(container: Container, trainer: Trainer | None, info: Info) -> None:
    """Set image, command and args. A plugin's command and args replace the TrainJob's.

    An empty list removes the container's command or args.
    """
    command, args = info.trainer_command, info.trainer_args
    if trainer is not None:
        command = trainer.command if command is None else command
        args = trainer.args if args is None else args
        if trainer.image is not None:
            container.image = trainer.image
    if command is not None:
        container.command = command or None
    if args is not None:
        container.args = args or None
