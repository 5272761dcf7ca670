# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Training runtimes: the templates that platform engineers keep and TrainJobs refer to."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import CRD, JSON, Int32, Object, Rule, Struct, is_unset
from controller_runtime.machinery.quantity import MAX_INT32, IntOrString
from pydantic import Field

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.volcano.v1beta1 import NetworkTopologySpec

TRAINING_RUNTIME_KIND: Final = "TrainingRuntime"
CLUSTER_TRAINING_RUNTIME_KIND: Final = "ClusterTrainingRuntime"

MPI_IMPLEMENTATION_OPEN_MPI: Final = "OpenMPI"
MPI_IMPLEMENTATION_INTEL: Final = "Intel"
MPI_IMPLEMENTATION_MPICH: Final = "MPICH"

_MIN_INT32: Final = -MAX_INT32 - 1
_BOUNDED: Final = CRD(minimum=_MIN_INT32, maximum=MAX_INT32)


class CoschedulingPodGroupPolicySource(Struct):
    """Gang-scheduling by the coscheduling plugin."""

    schedule_timeout_seconds: Annotated[Int32 | None, CRD(default=60)] = None
    """How long the gang may wait to be scheduled; 0 stands for the default."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"schedule_timeout_seconds"})


class VolcanoPodGroupPolicySource(Struct):
    """Gang-scheduling by Volcano."""

    network_topology: NetworkTopologySpec | None = None
    """How far apart in the network the pods may be."""


class WorkloadPodGroupPolicySource(Struct):
    """Gang-scheduling by Kubernetes itself."""


class PodGroupPolicy(Struct):
    """Which gang-scheduler the pods are grouped for."""

    coscheduling: CoschedulingPodGroupPolicySource | None = None
    """The coscheduling plugin of the Kubernetes scheduler plugins."""
    volcano: VolcanoPodGroupPolicySource | None = None
    """Volcano."""
    workload: WorkloadPodGroupPolicySource | None = None
    """Kubernetes' own scheduler, by the gangs of scheduling.k8s.io."""


class TorchElasticPolicy(Struct):
    """Elastic training: how the number of nodes may move."""

    max_restarts: Int32 | None = None
    """How often the job may be restarted."""
    min_nodes: Int32 | None = None
    """The fewest nodes it may shrink to."""
    max_nodes: Int32 | None = None
    """The most nodes it may grow to."""
    metrics: Annotated[
        list[dict[str, JSON]] | None, CRD(list_type="atomic", schema="autoscaling.v2.MetricSpec")
    ] = None
    """Metrics by which the number of nodes is chosen."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"max_restarts", "min_nodes", "max_nodes"})


class EnvInjectionTarget(Struct):
    """Containers of one replicated job that receive environment variables."""

    job_name: Annotated[str, CRD(min_length=1, max_length=253)] = ""
    """Name of the replicated job."""
    container_names: Annotated[
        list[Annotated[str, CRD(max_length=63)]] | None,
        CRD(
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
    """Names of the containers; the node container always receives the variables and must not be listed."""


class EnvInjection(Struct):
    """Further containers that receive the environment variables of torchrun."""

    targets: Annotated[
        list[EnvInjectionTarget] | None, CRD(list_type="map", list_map_keys=("jobName",), max_items=16)
    ] = None
    """The containers, by replicated job."""


class TorchMLPolicySource(Struct):
    """How PyTorch is launched."""

    num_proc_per_node: Annotated[
        IntOrString | None,
        CRD(
            default="auto",
            rules=(
                Rule(
                    "self > 0 || self in ['auto', 'cpu', 'gpu']",
                    "NumProcPerNode must be equal to auto, cpu, gpu, or int value",
                ),
            ),
        ),
    ] = None
    """Processes on each node: auto, cpu, gpu or a number."""
    elastic_policy: TorchElasticPolicy | None = None
    """Elastic training."""
    env_injection: EnvInjection | None = None
    """Further containers that receive the environment variables of torchrun."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_proc_per_node"})


class JAXMLPolicySource(Struct):
    """How JAX is launched; it has no options."""


class XGBoostMLPolicySource(Struct):
    """How XGBoost is launched; it has no options."""


class FluxMLPolicySource(Struct):
    """How the Flux workload manager is launched."""

    num_proc_per_node: Annotated[
        Int32 | None,
        CRD(
            default=1,
            minimum=_MIN_INT32,
            maximum=MAX_INT32,
            rules=(Rule("self >= 1", "NumProcPerNode in fluxPolicy must be >= 1"),),
        ),
    ] = None
    """Processes on each node."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_proc_per_node"})


class MPIMLPolicySource(Struct):
    """How MPI is launched."""

    num_proc_per_node: Annotated[Int32 | None, CRD(default=1, minimum=_MIN_INT32, maximum=MAX_INT32)] = None
    """Processes on each node: the slots in the host file."""
    mpi_implementation: Annotated[str | None, CRD(default="OpenMPI", enum=("OpenMPI", ""))] = None
    """The MPI implementation, which decides the form of the host file."""
    ssh_auth_mount_path: Annotated[str | None, CRD(default="/root/.ssh")] = None
    """Directory that the SSH keys are mounted in."""
    run_launcher_as_node: Annotated[bool | None, CRD(default=False)] = None
    """Whether the launcher takes part in the training."""
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"num_proc_per_node", "mpi_implementation", "ssh_auth_mount_path", "run_launcher_as_node"}
    )


class MLPolicy(Struct):
    """How the training framework is set up; one framework at most."""

    crd: ClassVar[CRD] = CRD(
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
    """Number of training nodes."""
    torch: TorchMLPolicySource | None = None
    """PyTorch."""
    mpi: MPIMLPolicySource | None = None
    """MPI."""
    flux: FluxMLPolicySource | None = None
    """The Flux workload manager."""
    jax: JAXMLPolicySource | None = None
    """JAX."""
    xgboost: XGBoostMLPolicySource | None = None
    """XGBoost."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_nodes"})


class JobSetTemplateSpec(Struct):
    """The JobSet that a TrainJob becomes."""

    crd: ClassVar[CRD] = CRD(min_properties=1)

    metadata: ObjectMeta | None = None
    """Labels and annotations of the JobSet; its name and namespace are the TrainJob's."""
    spec: JobSetSpec = Field(default_factory=JobSetSpec, exclude_if=is_unset)
    """The JobSet's spec."""
    go_always: ClassVar[frozenset[str]] = frozenset({"metadata", "spec"})


class TrainingRuntimeSpec(Struct):
    """What a training runtime brings to a TrainJob."""

    crd: ClassVar[CRD] = CRD(min_properties=1)

    ml_policy: MLPolicy | None = None
    """How the training framework is set up."""
    pod_group_policy: PodGroupPolicy | None = None
    """How the pods are scheduled together."""
    template: JobSetTemplateSpec = Field(default_factory=JobSetTemplateSpec, exclude_if=is_unset)
    """The JobSet that a TrainJob becomes."""


class TrainingRuntime(
    Object,
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainingRuntime",
    plural="trainingruntimes",
):
    """A template for the TrainJobs of its namespace."""

    spec: TrainingRuntimeSpec = Field(default_factory=TrainingRuntimeSpec)


class ClusterTrainingRuntime(
    Object,
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="ClusterTrainingRuntime",
    plural="clustertrainingruntimes",
    namespaced=False,
):
    """A template for the TrainJobs of all namespaces."""

    spec: TrainingRuntimeSpec = Field(default_factory=TrainingRuntimeSpec)
