# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJob: a user's request to train a model."""

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
from controller_runtime.machinery import Object, Struct, is_unset
from controller_runtime.machinery.crd import (
    ATOMIC,
    MAP_BY_NAME,
    MAP_BY_TYPE,
    KindMarkers,
    Markers,
    PrinterColumn,
    Rule,
)
from controller_runtime.machinery.quantity import MAX_INT32, IntOrString
from pydantic import Field

from pkg.apis.integers import Int32, Int64

from .runtimepatch_types import FIELD_IMMUTABLE, RuntimePatch

# Condition types.
TRAIN_JOB_SUSPENDED: Final = "Suspended"
TRAIN_JOB_COMPLETE: Final = "Complete"
TRAIN_JOB_FAILED: Final = "Failed"
TRAIN_JOB_GANG_UNAVAILABLE: Final = "GangSchedulingUnavailable"
TRAIN_JOB_SPEC_INVALID: Final = "SpecInvalid"

# Condition reasons.
TRAIN_JOB_SUSPENDED_REASON: Final = "Suspended"
TRAIN_JOB_RESUMED_REASON: Final = "Resumed"
TRAIN_JOB_RUNTIME_NOT_SUPPORTED_REASON: Final = "TrainingRuntimeNotSupported"
TRAIN_JOB_DEADLINE_EXCEEDED_REASON: Final = "DeadlineExceeded"
TRAIN_JOB_INVALID_FIELD_REASON: Final = "InvalidField"

_NAMED: Final = Markers(min_length=1, required=True)
_COUNT: Final = Markers(minimum=0, required=True)
_BOUNDED: Final = Markers(minimum=-MAX_INT32 - 1, maximum=MAX_INT32)


class RuntimeRef(Struct):
    """A reference to the training runtime from which the objects of a TrainJob are built."""

    name: Annotated[str, _NAMED] = ""
    """Name of the runtime. A TrainingRuntime must be in the TrainJob's namespace."""
    api_group: Annotated[str | None, Markers(default="trainer.kubeflow.org")] = None
    """API group of the runtime. Defaults to trainer.kubeflow.org."""
    kind: Annotated[str | None, Markers(default="ClusterTrainingRuntime")] = None
    """Kind of the runtime: ClusterTrainingRuntime (the default) or TrainingRuntime."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"api_group", "kind"})


class DatasetInitializer(Struct):
    """Settings of the job that downloads the dataset before the training."""

    storage_uri: str | None = None
    """URI of the dataset, which the initializer receives in the environment variable STORAGE_URI.

    If the manager runs with compatibilityVersion 2.3, it must be empty or have the form scheme://..., with at most
    2048 characters.
    """
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables of the dataset initializer. A variable replaces the runtime's variable of the same name."""
    secret_ref: LocalObjectReference | None = None
    """Secret with credentials, in the TrainJob's namespace.

    The initializer receives an environment variable for each key of the Secret.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"storage_uri"})


class ModelInitializer(Struct):
    """Settings of the job that downloads the pre-trained model before the training."""

    storage_uri: str | None = None
    """URI of the model, which the initializer receives in the environment variable STORAGE_URI.

    If the manager runs with compatibilityVersion 2.3, it must be empty or have the form scheme://..., with at most
    2048 characters.
    """
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables of the model initializer. A variable replaces the runtime's variable of the same name."""
    secret_ref: LocalObjectReference | None = None
    """Secret with credentials, in the TrainJob's namespace.

    The initializer receives an environment variable for each key of the Secret.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"storage_uri"})


class Initializer(Struct):
    """Settings of the jobs that run before the training and download the dataset and the model."""

    dataset: DatasetInitializer | None = None
    """Settings of the dataset initializer. The runtime must have a job named dataset-initializer."""
    model: ModelInitializer | None = None
    """Settings of the model initializer. The runtime must have a job named model-initializer."""


class Trainer(Struct):
    """Settings of the training nodes. The runtime's settings apply where a field is unset."""

    image: str | None = None
    """Image of the training container, the container named node."""
    command: Annotated[list[str] | None, ATOMIC] = None
    """Command of the training container. It replaces the runtime's command."""
    args: Annotated[list[str] | None, ATOMIC] = None
    """Arguments of the command. They replace the runtime's arguments."""
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables of the training container. A variable replaces the runtime's variable of the same name."""
    num_nodes: Annotated[Int32 | None, _BOUNDED] = None
    """Number of training nodes. Defaults to numNodes of the runtime's mlPolicy.

    For MPI with runLauncherAsNode, the launcher is one of the nodes.
    """
    resources_per_node: ResourceRequirements | None = None
    """Compute resources of the training container on each node. Resource claims are ignored.

    They replace all requests and limits of the runtime. If the manager runs with compatibilityVersion 2.3, an amount
    replaces only the runtime's amount of the same resource.
    """
    num_proc_per_node: Annotated[IntOrString | None, _BOUNDED] = None
    """Number of processes on each node, for PyTorch, MPI and Flux. Defaults to the number in the runtime's mlPolicy.

    For PyTorch, it may also be auto, cpu or gpu. The admission webhook moves such a word to the annotation
    trainer.kubeflow.org/num-proc-per-node, because clients of Trainer v2.2 and later can only read a number.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"image", "num_nodes", "num_proc_per_node"})


class PodTemplateOverrideTargetJob(Struct):
    """The name of a replicated job of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the replicated job."""


class ContainerOverride(Struct):
    """Changes to one container of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the container. The runtime must have a container of this name."""
    env: Annotated[list[EnvVar] | None, MAP_BY_NAME] = None
    """Environment variables. A variable replaces the runtime's variable of the same name.

    They cannot be set for the containers node, dataset-initializer and model-initializer: set the variables of these
    containers in spec.trainer and spec.initializer.
    """
    volume_mounts: Annotated[list[VolumeMount] | None, MAP_BY_NAME] = None
    """Volume mounts of the container, merged by mount path with the runtime's volume mounts."""


class PodTemplateSpecOverride(Struct):
    """Changes to the spec of a pod template."""

    service_account_name: str | None = None
    """Service account of the pods. An empty value removes the runtime's service account."""
    node_selector: dict[str, str] | None = None
    """Labels that a node must have to run the pods. A label replaces the runtime's label with the same key."""
    affinity: Affinity | None = None
    """Affinity and anti-affinity of the pods. They are merged into the runtime's affinity."""
    tolerations: Annotated[list[Toleration] | None, ATOMIC] = None
    """Tolerations of the pods. They replace all tolerations of the runtime."""
    volumes: Annotated[list[Volume] | None, MAP_BY_NAME] = None
    """Volumes of the pods, merged by name with the runtime's volumes."""
    init_containers: Annotated[list[ContainerOverride] | None, MAP_BY_NAME] = None
    """Changes to init containers of the runtime."""
    containers: Annotated[list[ContainerOverride] | None, MAP_BY_NAME] = None
    """Changes to containers of the runtime."""
    scheduling_gates: Annotated[list[PodSchedulingGate] | None, MAP_BY_NAME] = None
    """Gates that must be removed before the pods are scheduled, merged by name with the runtime's gates."""
    image_pull_secrets: Annotated[list[LocalObjectReference] | None, MAP_BY_NAME] = None
    """Secrets for pulling the pods' images, merged by name with the runtime's secrets."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"service_account_name"})


class PodTemplateOverride(Struct):
    """Changes to the pod templates of one or more replicated jobs of the runtime."""

    target_jobs: Annotated[
        list[PodTemplateOverrideTargetJob] | None, Markers(list_type="atomic", required=True)
    ] = None
    """Replicated jobs whose pod templates are changed. The runtime must have each of them."""
    metadata: ObjectMeta | None = None
    """Labels and annotations. They replace the pod template's labels and annotations with the same keys.

    Other metadata is ignored.
    """
    spec: PodTemplateSpecOverride | None = None
    """Changes to the pod template's spec. They are applied as a strategic merge patch."""


class TrainJobSpec(Struct):
    """Desired state of a TrainJob."""

    runtime_ref: Annotated[RuntimeRef, Markers(required=True, rules=(FIELD_IMMUTABLE,))] = Field(
        default_factory=RuntimeRef, exclude_if=is_unset
    )
    """The training runtime from which the objects of the TrainJob are built. It cannot be changed."""
    initializer: Initializer | None = None
    """Settings of the jobs that run before the training and download the dataset and the model."""
    trainer: Trainer | None = None
    """Settings of the training nodes."""
    labels: dict[str, str] | None = None
    """Labels of the JobSet and its Jobs. A label replaces the runtime's label with the same key."""
    annotations: dict[str, str] | None = None
    """Annotations of the JobSet and its Jobs. An annotation replaces the runtime's annotation with the same key."""
    pod_template_overrides: Annotated[list[PodTemplateOverride] | None, ATOMIC] = None
    """Changes to the runtime's pod templates, applied in the order of the list.

    They can be changed only while the TrainJob is suspended and none of its Jobs is active.
    """
    suspend: Annotated[bool | None, Markers(default=False)] = None
    """Whether the TrainJob is suspended. Defaults to false.

    A suspended TrainJob runs no pods. If a running TrainJob is suspended, its pods are deleted.
    """
    managed_by: Annotated[
        str | None,
        Markers(
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
    """The controller that manages the TrainJob. It cannot be changed.

    The default is trainer.kubeflow.org/trainjob-controller, this manager. The only other value is
    kueue.x-k8s.io/multikueue: this manager then ignores the TrainJob, and MultiKueue runs it in another cluster.
    """
    runtime_patches: Annotated[
        list[RuntimePatch] | None, Markers(list_type="map", list_map_keys=("manager",), max_items=16)
    ] = None
    """Changes to the training runtime for this TrainJob, with at most one entry for each manager.

    They are applied in the order of the list, after podTemplateOverrides. They can be changed only if the TrainJob is
    suspended before or after the change, and none of its Jobs is active.
    """
    active_deadline_seconds: Annotated[Int64 | None, Markers(minimum=1, rules=(FIELD_IMMUTABLE,))] = None
    """Maximum time, in seconds, for which the TrainJob may be active. It cannot be changed.

    The time counts from the creation, or from the last time the TrainJob was resumed. When the time is over, the
    TrainJob fails with the reason DeadlineExceeded, and its JobSet is deleted. By default, the time is not limited.
    """
    ttl_seconds_after_finished: Annotated[Int32 | None, Markers(minimum=0, maximum=MAX_INT32)] = None
    """Time, in seconds, after which the TrainJob is deleted once it is Complete or Failed.

    Its JobSet and all other objects that it owns are deleted with it. With 0, it is deleted at once. It can be changed
    at any time, also after the TrainJob has finished. By default, the value of the runtime's runPolicy applies, or else
    the value of the manager's Configuration; without them, the TrainJob is kept. Requires the feature gate
    TTLAfterFinished.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"suspend", "managed_by", "active_deadline_seconds", "ttl_seconds_after_finished"}
    )


class JobStatus(Struct):
    """The numbers of Jobs of one replicated job by their state."""

    name: Annotated[str, _NAMED] = ""
    """Name of the replicated job."""
    ready: Annotated[Int32 | None, _COUNT] = None
    """Number of Jobs whose pods are all ready or have succeeded."""
    succeeded: Annotated[Int32 | None, _COUNT] = None
    """Number of Jobs that have completed successfully."""
    failed: Annotated[Int32 | None, _COUNT] = None
    """Number of Jobs that have failed."""
    active: Annotated[Int32 | None, _COUNT] = None
    """Number of Jobs with at least one pod that is pending or running and not being deleted."""
    suspended: Annotated[Int32 | None, _COUNT] = None
    """Number of Jobs that are suspended."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"ready", "succeeded", "failed", "active", "suspended"})


class Metric(Struct):
    """A value that is measured during the training, such as the loss."""

    name: Annotated[str, Markers(min_length=1, max_length=64, required=True)] = ""
    """Name of the metric, such as loss."""
    value: Annotated[str, Markers(min_length=1, max_length=64, required=True)] = ""
    """Value of the metric as text, in any notation."""


class TrainerStatus(Struct):
    """The progress of the training, as its pods last reported it."""

    crd: ClassVar[Markers] = Markers(
        rules=(
            Rule("has(self.lastUpdatedTime)", "lastUpdatedTime is required when trainerStatus is present"),
        )
    )

    progress_percentage: Annotated[Int32 | None, Markers(minimum=0, maximum=100)] = None
    """Percentage of the training that is completed, from 0 to 100."""
    estimated_remaining_seconds: Annotated[Int32 | None, Markers(minimum=0)] = None
    """Estimated time until the training is completed, in seconds."""
    metrics: Annotated[list[Metric] | None, Markers(list_type="atomic", max_items=256)] = None
    """The most recent values of metrics."""
    last_updated_time: Annotated[str | None, Markers(format="date-time")] = None
    """Time of the last report."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"progress_percentage", "estimated_remaining_seconds"})


class TrainJobStatus(Struct):
    """Observed state of a TrainJob."""

    crd: ClassVar[Markers] = Markers(min_properties=1)

    conditions: Annotated[list[Condition] | None, MAP_BY_TYPE] = None
    """Conditions of the TrainJob.

    The types are Suspended, Complete, Failed, GangSchedulingUnavailable and SpecInvalid. GangSchedulingUnavailable
    means that the cluster lacks a feature that the runtime's podGroupPolicy.workload requires. SpecInvalid means that
    no pod can run with a value of the spec, for example with a negative numNodes.
    """
    jobs_status: Annotated[list[JobStatus] | None, MAP_BY_NAME] = None
    """The numbers of Jobs of each replicated job by their state, copied from the JobSet."""
    trainer_status: TrainerStatus | None = None
    """The progress of the training, as its pods last reported it. Requires the feature gate TrainJobStatus."""
    execution_attempts: Annotated[Int32 | None, Markers(minimum=0, maximum=MAX_INT32)] = None
    """How often the TrainJob was started before its current or last start: 0 in its first run.

    Resumes and JobSet's restarts are starts. It is unset if the TrainJob was never started. Requires the feature gate
    ExecutionAttempts.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"execution_attempts"})


class TrainJob(Object, group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob", plural="trainjobs"):
    """A training job. It refers to a training runtime, and adds its own data, model and settings."""

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
