# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJob: a user's request to train a model."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from controller_runtime.apis.core.v1 import (
    Affinity,
    EnvVar,
    LocalObjectReference,
    PodSchedulingGate,
    ResourceRequirements,
    Toleration,
    Volume,
    VolumeMount,
)
from controller_runtime.apis.meta.v1 import Condition, ObjectMeta
from controller_runtime.machinery import (
    ATOMIC,
    CRD,
    MAP_BY_NAME,
    MAP_BY_TYPE,
    Int32,
    Int64,
    KindMarkers,
    Object,
    PrinterColumn,
    Rule,
    Struct,
    is_unset,
)
from controller_runtime.machinery.quantity import MAX_INT32, IntOrString
from pydantic import Field

from .runtimepatch_types import FIELD_IMMUTABLE, RuntimePatch

TRAIN_JOB_KIND: Final = "TrainJob"

# Condition types.
TRAIN_JOB_SUSPENDED: Final = "Suspended"
TRAIN_JOB_COMPLETE: Final = "Complete"
TRAIN_JOB_FAILED: Final = "Failed"
TRAIN_JOB_GANG_UNAVAILABLE: Final = "GangSchedulingUnavailable"

# Condition reasons.
TRAIN_JOB_SUSPENDED_REASON: Final = "Suspended"
TRAIN_JOB_RESUMED_REASON: Final = "Resumed"
TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON: Final = "TrainingRuntimeNotSupported"
TRAIN_JOB_DEADLINE_EXCEEDED_REASON: Final = "DeadlineExceeded"

_NAMED: Final = CRD(min_length=1)
_COUNT: Final = CRD(minimum=0, required=True)
_BOUNDED: Final = CRD(minimum=-MAX_INT32 - 1, maximum=MAX_INT32)


class RuntimeRef(Struct):
    """The training runtime that a TrainJob is made from."""

    name: Annotated[str, _NAMED] = ""
    """Name of the runtime; a TrainingRuntime has to be in the TrainJob's namespace."""
    api_group: Annotated[str | None, CRD(default="trainer.kubeflow.org")] = None
    """API group of the runtime."""
    kind: Annotated[str | None, CRD(default="ClusterTrainingRuntime")] = None
    """Kind of the runtime: ClusterTrainingRuntime or TrainingRuntime."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"api_group", "kind"})


class DatasetInitializer(Struct):
    """How the dataset is fetched before training."""

    storage_uri: str | None = None
    """Where the dataset comes from."""
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables of the dataset initializer; they are merged over the runtime's."""
    secret_ref: LocalObjectReference | None = None
    """Secret in the TrainJob's namespace whose keys become environment variables, for credentials."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"storage_uri"})


class ModelInitializer(Struct):
    """How the pre-trained model is fetched before training."""

    storage_uri: str | None = None
    """Where the model comes from."""
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables of the model initializer; they are merged over the runtime's."""
    secret_ref: LocalObjectReference | None = None
    """Secret in the TrainJob's namespace whose keys become environment variables, for credentials."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"storage_uri"})


class Initializer(Struct):
    """What runs before the trainer to bring data and model to it."""

    dataset: DatasetInitializer | None = None
    """The dataset."""
    model: ModelInitializer | None = None
    """The pre-trained model."""


class Trainer(Struct):
    """What the training nodes run; what is unset comes from the runtime."""

    image: str | None = None
    """Image of the training container."""
    command: Annotated[list[str] | None, ATOMIC] = None
    """Entrypoint of the training container."""
    args: Annotated[list[str] | None, ATOMIC] = None
    """Arguments of the entrypoint."""
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables of the training container; they are merged over the runtime's."""
    num_nodes: Annotated[Int32 | None, _BOUNDED] = None
    """Number of training nodes."""
    resources_per_node: ResourceRequirements | None = None
    """Compute resources of each training node."""
    num_proc_per_node: Annotated[IntOrString | None, _BOUNDED] = None
    """Processes on each node.

    A number is stored. The words auto, cpu and gpu are accepted for PyTorch; the admission webhook moves them to the
    annotation trainer.kubeflow.org/num-proc-per-node, because clients of newer releases can only read a number.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"image", "num_nodes", "num_proc_per_node"})


class PodTemplateOverrideTargetJob(Struct):
    """A replicated job of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the replicated job."""


class ContainerOverride(Struct):
    """What is changed in one container of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the container; the runtime has to have it."""
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables, merged over the runtime's.

    Not for the containers node, dataset-initializer and model-initializer, whose variables are set in trainer and
    initializer.
    """
    volume_mounts: Annotated[list[VolumeMount] | None, MAP_BY_NAME] = None
    """Volumes to mount."""


class PodTemplateSpecOverride(Struct):
    """What is changed in the pod template's spec."""

    service_account_name: str | None = None
    """Service account of the pods."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes that the pods may run on."""
    affinity: Affinity | None = None
    """Scheduling constraints of the pods."""
    tolerations: Annotated[list[Toleration] | None, ATOMIC] = None
    """Taints that the pods tolerate."""
    volumes: Annotated[list[Volume] | None, MAP_BY_NAME] = None
    """Volumes of the pods."""
    init_containers: Annotated[list[ContainerOverride] | None, MAP_BY_NAME] = None
    """Changes to init containers."""
    containers: Annotated[list[ContainerOverride] | None, MAP_BY_NAME] = None
    """Changes to containers."""
    scheduling_gates: Annotated[list[PodSchedulingGate] | None, MAP_BY_NAME] = None
    """Gates that hold the pods back from scheduling."""
    image_pull_secrets: Annotated[list[LocalObjectReference] | None, MAP_BY_NAME] = None
    """Secrets to pull images with."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"service_account_name"})


class PodTemplateOverride(Struct):
    """Changes to the pod templates of some of the runtime's jobs."""

    target_jobs: Annotated[
        list[PodTemplateOverrideTargetJob] | None, CRD(list_type="atomic", required=True)
    ] = None
    """Replicated jobs of the runtime's template that are changed."""
    metadata: ObjectMeta | None = None
    """Labels and annotations, merged over the pod template's."""
    spec: PodTemplateSpecOverride | None = None
    """Changes to the pod template's spec, merged over it."""


class TrainJobSpec(Struct):
    """What a TrainJob is to be."""

    runtime_ref: Annotated[RuntimeRef, CRD(required=True, rules=(FIELD_IMMUTABLE,))] = Field(
        default_factory=RuntimeRef, exclude_if=is_unset
    )
    """The training runtime; it cannot be changed later."""
    initializer: Initializer | None = None
    """What brings dataset and model to the trainer."""
    trainer: Trainer | None = None
    """What the training nodes run."""
    labels: dict[str, str] | None = None
    """Labels of the JobSet and its jobs, merged over the runtime's."""
    annotations: dict[str, str] | None = None
    """Annotations of the JobSet and its jobs, merged over the runtime's."""
    pod_template_overrides: Annotated[list[PodTemplateOverride] | None, ATOMIC] = None
    """Changes to the runtime's pod templates; where several change one job, the later wins."""
    suspend: Annotated[bool | None, CRD(default=False)] = None
    """Whether the job is held back; a running job's pods end when it is set."""
    managed_by: Annotated[
        str | None,
        CRD(
            default="trainer.kubeflow.org/trainjob-controller",
            rules=(
                Rule(
                    "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']",
                    "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
                ),
                FIELD_IMMUTABLE,
            ),
        ),
    ] = None
    """The controller that manages this job: ours, or Kueue's for several clusters; it cannot be changed later."""
    runtime_patches: Annotated[
        list[RuntimePatch] | None, CRD(list_type="map", list_map_keys=("manager",), max_items=16)
    ] = None
    """Changes to the training runtime, one entry for each writer, applied in the order of the list."""
    active_deadline_seconds: Annotated[Int64 | None, CRD(minimum=1, rules=(FIELD_IMMUTABLE,))] = None
    """Seconds that the job may be active before it fails; a resumed job starts again from zero."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"suspend", "managed_by", "active_deadline_seconds"})


class JobStatus(Struct):
    """How many jobs of one replicated job are in which state."""

    name: Annotated[str, _NAMED] = ""
    """Name of the replicated job."""
    ready: Annotated[Int32 | None, _COUNT] = None
    """Jobs whose pods are all ready or completed."""
    succeeded: Annotated[Int32 | None, _COUNT] = None
    """Jobs that completed."""
    failed: Annotated[Int32 | None, _COUNT] = None
    """Jobs that failed."""
    active: Annotated[Int32 | None, _COUNT] = None
    """Jobs with a pod that is pending or running and not being deleted."""
    suspended: Annotated[Int32 | None, _COUNT] = None
    """Jobs that are suspended."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"ready", "succeeded", "failed", "active", "suspended"})


class Metric(Struct):
    """A measurement of the training, such as the loss."""

    name: Annotated[str, CRD(min_length=1, max_length=64)] = ""
    """Name of the metric."""
    value: Annotated[str, CRD(min_length=1, max_length=64)] = ""
    """Value of the metric, in any notation."""


class TrainerStatus(Struct):
    """Progress that the trainer's pods report."""

    crd: ClassVar[CRD] = CRD(
        rules=(
            Rule("has(self.lastUpdatedTime)", "lastUpdatedTime is required when trainerStatus is present"),
        )
    )

    progress_percentage: Annotated[Int32 | None, CRD(minimum=0, maximum=100)] = None
    """Percentage of the training that is done."""
    estimated_remaining_seconds: Annotated[Int32 | None, CRD(minimum=0)] = None
    """Estimated seconds until the training is done."""
    metrics: Annotated[list[Metric] | None, CRD(list_type="atomic", max_items=256)] = None
    """The newest measurements."""
    last_updated_time: Annotated[str | None, CRD(format="date-time")] = None
    """When the trainer last reported."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"progress_percentage", "estimated_remaining_seconds"})


class TrainJobStatus(Struct):
    """How a TrainJob is doing."""

    crd: ClassVar[CRD] = CRD(min_properties=1)

    conditions: Annotated[list[Condition] | None, MAP_BY_TYPE] = None
    """Suspended, Complete and Failed."""
    jobs_status: Annotated[list[JobStatus] | None, MAP_BY_NAME] = None
    """The state of each replicated job."""
    trainer_status: TrainerStatus | None = None
    """Progress that the trainer's pods report, if the feature gate TrainJobStatus is enabled."""


class TrainJob(Object, group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob", plural="trainjobs"):
    """A training job: a runtime, and what it is to train."""

    crd_kind: ClassVar[KindMarkers] = KindMarkers(
        printer_columns=(
            # The server prints the first match: Complete, Failed, or another condition that is True. Upstream prints
            # the last condition, so a job that was resumed looks suspended. Without the space, "[?(" would be one
            # filter, not a union.
            PrinterColumn(
                "State",
                "string",
                '.status.conditions[ ?(@.type=="Complete"), ?(@.type=="Failed"), ?(@.status=="True")].type',
            ),
            PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
        ),
        status_subresource=True,
        rules=(
            Rule(
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name must match RFC 1035 DNS label format",
            ),
            Rule("size(self.metadata.name) <= 63", "metadata.name must be no more than 63 characters"),
        ),
    )

    spec: TrainJobSpec = Field(default_factory=TrainJobSpec)
    status: TrainJobStatus = Field(default_factory=TrainJobStatus)
