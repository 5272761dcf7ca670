# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cache indices of runtimes and their plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.util import trainjob

TRAIN_JOB_RUNTIME_REF_KEY: Final = ".spec.runtimeRef.kind=trainingRuntime"
TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY: Final = ".spec.runtimeRef.kind=clusterTrainingRuntime"
TRAINING_RUNTIME_CONTAINER_RUNTIME_CLASS_KEY: Final = (
    ".trainingRuntimeSpec.jobSetTemplateSpec.replicatedJobs.podTemplateSpec.runtimeClassName"
)
CLUSTER_TRAINING_RUNTIME_CONTAINER_RUNTIME_CLASS_KEY: Final = (
    ".clusterTrainingRuntimeSpec.jobSetTemplateSpec.replicatedJobs.podTemplateSpec.runtimeClassName"
)
TRAIN_JOBS_OF: Final[Mapping[type[TrainingRuntime | ClusterTrainingRuntime], str]] = {
    TrainingRuntime: TRAIN_JOB_RUNTIME_REF_KEY,
    ClusterTrainingRuntime: TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY,
}
"""The index that finds the TrainJobs of a runtime, by the kind of the runtime."""


class _Reference(msgspec.Struct, rename="camel"):
    name: str = ""
    api_group: str | None = None
    kind: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    runtime_ref: _Reference = msgspec.field(default_factory=_Reference)


class _Metadata(msgspec.Struct):
    namespace: str = ""


class TrainJobReference(msgspec.Struct):
    """A TrainJob of which only the namespace and the reference to its runtime are decoded."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


def index_train_job_training_runtime(job: TrainJob | TrainJobReference) -> list[str]:
    """Return the name of the TrainingRuntime that the job refers to, or nothing if it refers to another kind."""
    ref = job.spec.runtime_ref
    return [ref.name] if trainjob.runtime_ref_is_training_runtime(ref) else []


def index_train_job_cluster_training_runtime(job: TrainJob | TrainJobReference) -> list[str]:
    """Return the name of the ClusterTrainingRuntime that the job refers to, or nothing if it refers to another kind."""
    ref = job.spec.runtime_ref
    return [ref.name] if trainjob.runtime_ref_is_cluster_training_runtime(ref) else []


def index_container_runtime_class(runtime: TrainingRuntime | ClusterTrainingRuntime) -> list[str]:
    """Return the RuntimeClasses that the template's pods name."""
    jobs = runtime.spec.template.spec.replicated_jobs or ()
    names = (job.template.spec.template.spec.runtime_class_name for job in jobs)
    return [name for name in names if name is not None]
