# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The controllers of TrainJob, TrainingRuntime and ClusterTrainingRuntime."""

from .clustertrainingruntime_controller import (
    ClusterTrainingRuntimeReconciler as ClusterTrainingRuntimeReconciler,
)
from .setup import setup_controllers as setup_controllers
from .trainingruntime_controller import TrainingRuntimeReconciler as TrainingRuntimeReconciler
from .trainjob_controller import TrainJobReconciler as TrainJobReconciler
