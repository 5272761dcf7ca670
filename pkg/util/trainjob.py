# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a TrainJob's reference to its runtime means, and how its children refer to it."""

from __future__ import annotations

from pkg.apis.meta.v1 import OwnerReference
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, RuntimeRef, TrainingRuntime, TrainJob


def runtime_ref_is_training_runtime(ref: RuntimeRef) -> bool:
    """Say whether ``ref`` names a TrainingRuntime of the TrainJob's namespace."""
    return (ref.api_group, ref.kind) == (TrainingRuntime.gvk.group, TrainingRuntime.gvk.kind)


def runtime_ref_is_cluster_training_runtime(ref: RuntimeRef) -> bool:
    """Say whether ``ref`` names a ClusterTrainingRuntime."""
    return (ref.api_group, ref.kind) == (ClusterTrainingRuntime.gvk.group, ClusterTrainingRuntime.gvk.kind)


def controller_reference(train_job: TrainJob) -> OwnerReference:
    """Return the reference by which ``train_job`` controls its children, and takes them with it when it goes."""
    return OwnerReference(
        api_version=TrainJob.gvk.api_version,
        kind=TrainJob.gvk.kind,
        name=train_job.name,
        uid=train_job.metadata.uid or "",
        controller=True,
        block_owner_deletion=True,
    )
