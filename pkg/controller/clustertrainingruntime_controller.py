# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The ClusterTrainingRuntime controller."""

from __future__ import annotations

from typing import Final

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from pkg.util import trainjob

from .trainingruntime_controller import RuntimeReconciler

NAME: Final = "clustertrainingruntime_controller"


# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=clustertrainingruntimes,verbs=get;list;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=clustertrainingruntimes/finalizers,verbs=get;update;patch


class ClusterTrainingRuntimeReconciler(RuntimeReconciler):
    """Protects the ClusterTrainingRuntimes that TrainJobs of any namespace refer to."""

    kind = ClusterTrainingRuntime
    name = NAME
    refers = staticmethod(trainjob.runtime_ref_is_cluster_training_runtime)
