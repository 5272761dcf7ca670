# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJob: what a user asks for."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from pkg.apis.core.v1 import (
    Affinity,
    EnvVar,
    LocalObjectReference,
    PodSchedulingGate,
    ResourceRequirements,
    Toleration,
    Volume,
    VolumeMount,
)
from pkg.apis.machinery.base import Struct, is_unset
from pkg.apis.machinery.intstr import IntOrString
from pkg.apis.machinery.object import Object, ObjectMeta
from pkg.apis.meta.v1 import Condition

TRAIN_JOB_KIND: Final = "TrainJob"

# Condition types.
TRAIN_JOB_SUSPENDED: Final = "Suspended"
TRAIN_JOB_COMPLETE: Final = "Complete"
TRAIN_JOB_FAILED: Final = "Failed"

# Condition reasons.
TRAIN_JOB_SUSPENDED_REASON: Final = "Suspended"
TRAIN_JOB_RESUMED_REASON: Final = "Resumed"
TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON: Final = "TrainingRuntimeNotSupported"


class RuntimeRef(Struct):
    """trainerv1alpha1.RuntimeRef."""

    name: str = ""
    api_group: str | None = None
    kind: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"api_group", "kind"})


class DatasetInitializer(Struct):
    """trainerv1alpha1.DatasetInitializer."""

    storage_uri: str | None = None
    env: list[EnvVar] | None = None
    secret_ref: LocalObjectReference | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"storage_uri"})


class ModelInitializer(Struct):
    """trainerv1alpha1.ModelInitializer."""

    storage_uri: str | None = None
    env: list[EnvVar] | None = None
    secret_ref: LocalObjectReference | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"storage_uri"})


class Initializer(Struct):
    """trainerv1alpha1.Initializer."""

    dataset: DatasetInitializer | None = None
    model: ModelInitializer | None = None


class Trainer(Struct):
    """trainerv1alpha1.Trainer."""

    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    num_nodes: int | None = None
    resources_per_node: ResourceRequirements | None = None
    num_proc_per_node: IntOrString | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"image", "num_nodes", "num_proc_per_node"})


class PodTemplateOverrideTargetJob(Struct):
    """trainerv1alpha1.PodTemplateOverrideTargetJob."""

    name: str = ""


class ContainerOverride(Struct):
    """trainerv1alpha1.ContainerOverride."""

    name: str = ""
    env: list[EnvVar] | None = None
    volume_mounts: list[VolumeMount] | None = None


class PodTemplateSpecOverride(Struct):
    """trainerv1alpha1.PodTemplateSpecOverride."""

    service_account_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[Volume] | None = None
    init_containers: list[ContainerOverride] | None = None
    containers: list[ContainerOverride] | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"service_account_name"})


class PodTemplateOverride(Struct):
    """trainerv1alpha1.PodTemplateOverride."""

    target_jobs: list[PodTemplateOverrideTargetJob] | None = None
    metadata: ObjectMeta | None = None
    spec: PodTemplateSpecOverride | None = None


class TrainJobSpec(Struct):
    """trainerv1alpha1.TrainJobSpec."""

    runtime_ref: RuntimeRef = Field(default_factory=RuntimeRef, exclude_if=is_unset)
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    pod_template_overrides: list[PodTemplateOverride] | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"suspend", "managed_by"})


class JobStatus(Struct):
    """trainerv1alpha1.JobStatus."""

    name: str = ""
    ready: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    active: int | None = None
    suspended: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"ready", "succeeded", "failed", "active", "suspended"})


class TrainJobStatus(Struct):
    """trainerv1alpha1.TrainJobStatus."""

    conditions: list[Condition] | None = None
    jobs_status: list[JobStatus] | None = None


class TrainJob(Object, group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob", plural="trainjobs"):
    """trainerv1alpha1.TrainJob."""

    spec: TrainJobSpec = Field(default_factory=TrainJobSpec)
    status: TrainJobStatus = Field(default_factory=TrainJobStatus)
