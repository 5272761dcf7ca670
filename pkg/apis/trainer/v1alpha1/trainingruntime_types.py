# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Training runtimes: the templates that platform engineers keep and TrainJobs refer to."""

from typing import Annotated, ClassVar, Final

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import JSON, Object, Struct, is_unset
from controller_runtime.machinery.crd import Markers, Rule
from controller_runtime.machinery.quantity import MAX_INT32, IntOrString
from pydantic import Field

from pkg.apis.integers import Int32
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.volcano.v1beta1 import NetworkTopologySpec

_MIN_INT32: Final = -MAX_INT32 - 1
_BOUNDED: Final = Markers(minimum=_MIN_INT32, maximum=MAX_INT32)


class CoschedulingPodGroupPolicySource(Struct):
    """Settings of gang-scheduling by the coscheduling plugin of the Kubernetes scheduler plugins."""

    schedule_timeout_seconds: Annotated[Int32 | None, Markers(default=60)] = None
    """Maximum time, in seconds, that the gang waits to be scheduled. Defaults to 60; 0 means the default."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"schedule_timeout_seconds"})


class VolcanoPodGroupPolicySource(Struct):
    """Settings of gang-scheduling by Volcano."""

    network_topology: NetworkTopologySpec | None = None
    """Limit on the distance between the pods in the network."""


class WorkloadPodGroupPolicySource(Struct):
    """Settings of gang-scheduling by Kubernetes' own scheduler. There are none yet."""


class PodGroupPolicy(Struct):
    """The gang-scheduler that schedules all pods of a TrainJob together, and its settings."""

    coscheduling: CoschedulingPodGroupPolicySource | None = None
    """Schedule the pods with the coscheduling plugin of the Kubernetes scheduler plugins."""
    volcano: VolcanoPodGroupPolicySource | None = None
    """Schedule the pods with Volcano."""
    workload: WorkloadPodGroupPolicySource | None = None
    """Schedule the pods as gangs with Kubernetes' own scheduler (scheduling.k8s.io).

    Requires Kubernetes 1.35 or newer with the feature gate GenericWorkload. It cannot be combined with coscheduling or
    volcano.
    """


class TorchElasticPolicy(Struct):
    """Settings of elastic training, in which the number of nodes may change. They have no effect."""

    max_restarts: Int32 | None = None
    """Maximum number of times that the job may be restarted."""
    min_nodes: Int32 | None = None
    """Minimum number of nodes."""
    max_nodes: Int32 | None = None
    """Maximum number of nodes."""
    metrics: Annotated[
        list[dict[str, JSON]] | None, Markers(list_type="atomic", schema="autoscaling.v2.MetricSpec")
    ] = None
    """Metrics from which the number of nodes is derived."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"max_restarts", "min_nodes", "max_nodes"})


class EnvInjectionTarget(Struct):
    """Containers of one replicated job that receive the environment variables of torchrun."""

    job_name: Annotated[str, Markers(min_length=1, max_length=253, required=True)] = ""
    """Name of the replicated job. The runtime must have a replicated job of this name."""
    container_names: Annotated[
        list[Annotated[str, Markers(max_length=63)]] | None,
        Markers(
            list_type="set",
            min_items=1,
            max_items=8,
            required=True,
            rules=(
                Rule(
                    "!self.exists(c, c == 'node')",
                    "containerNames must not include the main node container because PET_* envs are always"
                    " injected into it",
                ),
            ),
        ),
    ] = None
    """Names of containers or init containers of the replicated job.

    The container named node must not be listed: the container node of the trainer always receives the variables.
    """


class EnvInjection(Struct):
    """Additional containers that receive the environment variables of torchrun."""

    targets: Annotated[
        list[EnvInjectionTarget] | None, Markers(list_type="map", list_map_keys=("jobName",), max_items=16)
    ] = None
    """Containers that receive the variables, grouped by replicated job."""


class TorchMLPolicySource(Struct):
    """Settings for PyTorch: the environment variables with which torchrun starts the processes."""

    num_proc_per_node: Annotated[
        IntOrString | None,
        Markers(
            default="auto",
            minimum=_MIN_INT32,
            maximum=MAX_INT32,
            rules=(
                Rule(
                    "self > 0 || self in ['auto', 'cpu', 'gpu']",
                    "NumProcPerNode must be equal to auto, cpu, gpu, or int value",
                ),
            ),
        ),
    ] = None
    """Number of processes on each node, or auto, cpu or gpu. Defaults to auto.

    If it is cpu, or if it is auto and no GPU is requested, one process is started for each requested CPU. Otherwise
    torchrun receives the word and counts the devices on the node. A TrainJob can set another value in
    spec.trainer.numProcPerNode.
    """
    elastic_policy: TorchElasticPolicy | None = None
    """Settings of elastic training. They have no effect."""
    env_injection: EnvInjection | None = None
    """Additional containers that receive the environment variables of torchrun.

    By default, only the trainer's container node receives them.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_proc_per_node"})


class JAXMLPolicySource(Struct):
    """Settings for JAX. There are none yet."""


class XGBoostMLPolicySource(Struct):
    """Settings for XGBoost. There are none yet."""


class FluxMLPolicySource(Struct):
    """Settings for the Flux workload manager."""

    num_proc_per_node: Annotated[
        Int32 | None,
        Markers(
            default=1,
            minimum=_MIN_INT32,
            maximum=MAX_INT32,
            rules=(Rule("self >= 1", "NumProcPerNode in fluxPolicy must be >= 1"),),
        ),
    ] = None
    """Number of processes on each node. Defaults to 1. A TrainJob can set it in spec.trainer.numProcPerNode."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_proc_per_node"})


class MPIMLPolicySource(Struct):
    """Settings for MPI: the host file, and the SSH keys with which the launcher reaches the nodes."""

    num_proc_per_node: Annotated[Int32 | None, Markers(default=1, minimum=_MIN_INT32, maximum=MAX_INT32)] = (
        None
    )
    """Number of processes on each node, which is the number of slots in the host file. Defaults to 1.

    If it is 1 and the nodes request GPUs, the number of GPUs is used. A TrainJob can set another number in
    spec.trainer.numProcPerNode.
    """
    mpi_implementation: Annotated[str | None, Markers(default="OpenMPI", enum=("OpenMPI", ""))] = None
    """The MPI implementation. Defaults to OpenMPI, which is the only one that is supported."""
    ssh_auth_mount_path: Annotated[str | None, Markers(default="/root/.ssh")] = None
    """Directory in which the SSH keys are mounted. Defaults to /root/.ssh."""
    run_launcher_as_node: Annotated[bool | None, Markers(default=False)] = None
    """Whether the launcher is also a training node. Defaults to false."""
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"num_proc_per_node", "mpi_implementation", "ssh_auth_mount_path", "run_launcher_as_node"}
    )


class MLPolicy(Struct):
    """The number of training nodes, and the settings of at most one training framework."""

    crd: ClassVar[Markers] = Markers(
        rules=(
            Rule(
                "!(has(self.numNodes) && (has(self.torch) && has(self.torch.elasticPolicy)))",
                "numNodes should not be set if torch.elasticPolicy is configured",
            ),
            Rule(
                "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)]"
                ".filter(x, x).size() <= 1",
                "Only one of the policy can be configured",
            ),
        )
    )

    num_nodes: Annotated[Int32 | None, _BOUNDED] = None
    """Number of training nodes. Defaults to 1. A TrainJob can set it in spec.trainer.numNodes."""
    torch: TorchMLPolicySource | None = None
    """Run the training with PyTorch."""
    mpi: MPIMLPolicySource | None = None
    """Run the training with MPI."""
    flux: FluxMLPolicySource | None = None
    """Run the training with the Flux workload manager."""
    jax: JAXMLPolicySource | None = None
    """Run the training with JAX."""
    xgboost: XGBoostMLPolicySource | None = None
    """Run the training with XGBoost."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_nodes"})


class JobSetTemplateSpec(Struct):
    """Template of the JobSet that is created for each TrainJob."""

    crd: ClassVar[Markers] = Markers(min_properties=1)

    metadata: ObjectMeta | None = None
    """Labels and annotations of the JobSet. Its name and namespace are those of the TrainJob."""
    spec: JobSetSpec = Field(default_factory=JobSetSpec, exclude_if=is_unset)
    """Spec of the JobSet."""
    go_always: ClassVar[frozenset[str]] = frozenset({"metadata", "spec"})


class RunPolicy(Struct):
    """Defaults for the life of the TrainJobs that refer to a training runtime."""

    ttl_seconds_after_finished: Annotated[Int32 | None, Markers(minimum=0, maximum=MAX_INT32)] = None
    """Time, in seconds, after which a TrainJob is deleted once it is Complete or Failed.

    The ttlSecondsAfterFinished of a TrainJob takes precedence. A change also applies to TrainJobs that exist. Requires
    the feature gate TTLAfterFinished.
    """
    go_pointers: ClassVar[frozenset[str]] = frozenset({"ttl_seconds_after_finished"})


class TrainingRuntimeSpec(Struct):
    """Desired state of the objects that are created for each TrainJob of a training runtime."""

    crd: ClassVar[Markers] = Markers(min_properties=1)

    ml_policy: MLPolicy | None = None
    """The number of training nodes, and the settings of at most one training framework."""
    pod_group_policy: PodGroupPolicy | None = None
    """The gang-scheduler that schedules all pods of a TrainJob together.

    Without it, each pod is scheduled separately.
    """
    template: JobSetTemplateSpec = Field(default_factory=JobSetTemplateSpec, exclude_if=is_unset)
    """Template of the JobSet that is created for each TrainJob."""
    run_policy: RunPolicy | None = None
    """Defaults for the life of the TrainJobs."""


class TrainingRuntime(
    Object,
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainingRuntime",
    plural="trainingruntimes",
):
    """A template for TrainJobs in the same namespace. Platform engineers write it; TrainJobs refer to it."""

    spec: TrainingRuntimeSpec = Field(default_factory=TrainingRuntimeSpec)


class ClusterTrainingRuntime(
    Object,
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="ClusterTrainingRuntime",
    plural="clustertrainingruntimes",
    namespaced=False,
):
    """A template for TrainJobs in all namespaces. Platform engineers write it; TrainJobs refer to it."""

    spec: TrainingRuntimeSpec = Field(default_factory=TrainingRuntimeSpec)
