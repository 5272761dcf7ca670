# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies a TrainJob's initializers and trainer, and the gang's labels, to the jobs of the template, in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from controller_runtime.apis.core.v1 import Container, EnvFromSource, EnvVar, SecretEnvSource
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import Struct

from pkg import apply
from pkg.apis.jobset.v1alpha2 import ReplicatedJob
from pkg.apis.trainer.v1alpha1 import (
    DatasetInitializer,
    Initializer,
    ModelInitializer,
    TrainJob,
)
from pkg.constants import trainer as constants
from pkg.runtime.framework.interface import PluginError
from pkg.runtime.framework.plugins import members
from pkg.runtime.runtime import Info, Scheduler, ancestor_of, containers_of, trainers

INITIALIZER_ENV_STORAGE_URI: Final = "STORAGE_URI"
_LARGEST: Final = 3 << 20
"""Bytes of the largest request that the API server accepts."""
_ALWAYS_FIT: Final = 2
"""Number of containers that fit in any case: a TrainJob has at most half of these bytes."""


def require_room(containers: Sequence[Container], *parts: Struct | list[str] | None) -> None:
    """Check that containers that each get a copy of some parts of a TrainJob fit into a request to the API server.

    Raises:
        PluginError: they do not fit. Serving such a TrainJob could need gigabytes of memory.
    """
    if len(containers) <= _ALWAYS_FIT:
        return
    held = [part.to_dict() if isinstance(part, Struct) else part for part in parts]
    size = len(containers) * len(msgspec.json.encode(held))
    if size > _LARGEST:
        raise PluginError(
            f"the JobSet would be too large: {len(containers)} containers would get {size} bytes of the TrainJob"
        )


def apply_initializer(jobs: Sequence[ReplicatedJob], train_job: TrainJob) -> None:
    """Set one replica for initializer jobs, and apply the TrainJob's initializer to their containers.

    Raises:
        PluginError: the JobSet would be too large.
    """
    wanted = train_job.spec.initializer or Initializer()
    for name, source in (
        (constants.DATASET_INITIALIZER, wanted.dataset),
        (constants.MODEL_INITIALIZER, wanted.model),
    ):
        containers: list[Container] = []
        for job in jobs:
            if ancestor_of(job) == name:
                job.replicas = constants.DEFAULT_JOB_REPLICAS
                containers += containers_of(job, name)
        if source is not None:
            require_room(containers, source)
            env = apply.env_vars(source.env)
            for container in containers:
                _initialize(container, source, env)


def apply_trainer(jobs: Sequence[ReplicatedJob], info: Info, train_job: TrainJob) -> None:
    """Set one replica for the trainer's job, and apply the TrainJob's trainer to its container ``node``.

    If the launcher trains too (MPI), apply the environment to the job ``node`` as well. The TrainJob's resources were
    applied before the first plugin ran.

    The command and args that a plugin sets replace the TrainJob's command and args. An empty list removes those of the
    container.

    Raises:
        PluginError: the JobSet would be too large.
    """
    wanted, containers = train_job.spec.trainer, list(trainers(jobs, info.ml_policy))
    require_room(containers, wanted, info.trainer_command, info.trainer_args)
    command, args = info.trainer_command, info.trainer_args
    if wanted is not None:
        command = wanted.command if command is None else command
        args = wanted.args if args is None else args
    for job in jobs:
        if ancestor_of(job) == constants.ANCESTOR_TRAINER:
            job.replicas = constants.DEFAULT_JOB_REPLICAS
            for container in containers_of(job, constants.NODE):
                if wanted is not None and wanted.image is not None:
                    container.image = wanted.image
                if command is not None:
                    container.command = command or None
                if args is not None:
                    container.args = args or None
    env = apply.env_vars(wanted.env) if wanted is not None else []
    for container in containers:
        container.env = apply.upsert_env_vars(container.env, env)


def apply_scheduler(jobs: Sequence[ReplicatedJob], scheduler: Scheduler) -> None:
    """Add the labels and annotations of the gang's plugins to the pod templates of its members."""
    if not scheduler.pod_labels and not scheduler.pod_annotations:
        return
    before = members.awaited(jobs)
    for job in jobs:
        if job.name in before:
            continue
        template = job.template.spec.template
        if template.metadata is None:
            template.metadata = ObjectMeta()
        metadata = template.metadata
        if scheduler.pod_labels:
            metadata.labels = {**(metadata.labels or {}), **scheduler.pod_labels}
        if scheduler.pod_annotations:
            metadata.annotations = {**(metadata.annotations or {}), **scheduler.pod_annotations}


def _initialize(
    container: Container, source: DatasetInitializer | ModelInitializer, env: Iterable[EnvVar]
) -> None:
    if source.storage_uri is not None:
        uri = EnvVar(name=INITIALIZER_ENV_STORAGE_URI, value=source.storage_uri)
        container.env = apply.upsert_env_vars(container.env, [uri])
    container.env = apply.upsert_env_vars(container.env, env)
    if source.secret_ref is not None:
        secret = EnvFromSource(secret_ref=SecretEnvSource(name=source.secret_ref.name or ""))
        container.env_from = [*(container.env_from or ()), secret]
