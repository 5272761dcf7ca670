# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a TrainJob's reference to its runtime means."""

from __future__ import annotations

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, RuntimeRef, TrainingRuntime


def runtime_ref_is_training_runtime(ref: RuntimeRef) -> bool:
    """Say whether ``ref`` names a TrainingRuntime of the TrainJob's namespace."""
    return (ref.api_group, ref.kind) == (TrainingRuntime.gvk.group, TrainingRuntime.gvk.kind)


def runtime_ref_is_cluster_training_runtime(ref: RuntimeRef) -> bool:
    """Say whether ``ref`` names a ClusterTrainingRuntime."""
    return (ref.api_group, ref.kind) == (ClusterTrainingRuntime.gvk.group, ClusterTrainingRuntime.gvk.kind)
