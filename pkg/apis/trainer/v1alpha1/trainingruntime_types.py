# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Training runtimes: the template that platform engineers keep and TrainJobs refer to."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.machinery.base import JSON, Struct, is_unset
from pkg.apis.machinery.intstr import IntOrString
from pkg.apis.machinery.object import Object, ObjectMeta
from pkg.apis.volcano.v1beta1 import NetworkTopologySpec

TRAINING_RUNTIME_KIND: Final = "TrainingRuntime"
CLUSTER_TRAINING_RUNTIME_KIND: Final = "ClusterTrainingRuntime"

MPI_IMPLEMENTATION_OPEN_MPI: Final = "OpenMPI"
MPI_IMPLEMENTATION_INTEL: Final = "Intel"
MPI_IMPLEMENTATION_MPICH: Final = "MPICH"


class CoschedulingPodGroupPolicySource(Struct):
    """trainerv1alpha1.CoschedulingPodGroupPolicySource."""

    schedule_timeout_seconds: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"schedule_timeout_seconds"})


class VolcanoPodGroupPolicySource(Struct):
    """trainerv1alpha1.VolcanoPodGroupPolicySource."""

    network_topology: NetworkTopologySpec | None = None


class PodGroupPolicy(Struct):
    """trainerv1alpha1.PodGroupPolicy."""

    coscheduling: CoschedulingPodGroupPolicySource | None = None
    volcano: VolcanoPodGroupPolicySource | None = None


class TorchElasticPolicy(Struct):
    """trainerv1alpha1.TorchElasticPolicy."""

    max_restarts: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    metrics: list[dict[str, JSON]] | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"max_restarts", "min_nodes", "max_nodes"})


class TorchMLPolicySource(Struct):
    """trainerv1alpha1.TorchMLPolicySource."""

    num_proc_per_node: IntOrString | None = None
    elastic_policy: TorchElasticPolicy | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_proc_per_node"})


class MPIMLPolicySource(Struct):
    """trainerv1alpha1.MPIMLPolicySource."""

    num_proc_per_node: int | None = None
    mpi_implementation: str | None = None
    ssh_auth_mount_path: str | None = None
    run_launcher_as_node: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"num_proc_per_node", "mpi_implementation", "ssh_auth_mount_path", "run_launcher_as_node"}
    )


class MLPolicy(Struct):
    """trainerv1alpha1.MLPolicy."""

    num_nodes: int | None = None
    torch: TorchMLPolicySource | None = None
    mpi: MPIMLPolicySource | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"num_nodes"})


class JobSetTemplateSpec(Struct):
    """trainerv1alpha1.JobSetTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: JobSetSpec = Field(default_factory=JobSetSpec, exclude_if=is_unset)
    go_always: ClassVar[frozenset[str]] = frozenset({"metadata", "spec"})


class TrainingRuntimeSpec(Struct):
    """trainerv1alpha1.TrainingRuntimeSpec."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplateSpec = Field(default_factory=JobSetTemplateSpec, exclude_if=is_unset)


class TrainingRuntime(
    Object,
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainingRuntime",
    plural="trainingruntimes",
):
    """trainerv1alpha1.TrainingRuntime."""

    spec: TrainingRuntimeSpec = Field(default_factory=TrainingRuntimeSpec)


class ClusterTrainingRuntime(
    Object,
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="ClusterTrainingRuntime",
    plural="clustertrainingruntimes",
    namespaced=False,
):
    """trainerv1alpha1.ClusterTrainingRuntime."""

    spec: TrainingRuntimeSpec = Field(default_factory=TrainingRuntimeSpec)
