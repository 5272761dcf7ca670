# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainingRuntime controller."""

from __future__ import annotations

from typing import Final

from pkg.apis.trainer.v1alpha1 import TrainingRuntime
from pkg.runtime import indexer
from pkg.util import trainjob

from .runtime_reconciler import RuntimeReconciler

NAME: Final = "trainingruntime_controller"


# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes,verbs=get;list;watch;update;patch
# +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainingruntimes/finalizers,verbs=get;update;patch


class TrainingRuntimeReconciler(RuntimeReconciler):
    """Protects the TrainingRuntimes that TrainJobs of their namespace refer to."""

    kind = TrainingRuntime
    name = NAME
    index = indexer.TRAIN_JOB_RUNTIME_REF_KEY
    refers = staticmethod(trainjob.runtime_ref_is_training_runtime)
