# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission of TrainingRuntimes, and the check of a template that both kinds of runtime share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import controller_runtime as ctrl
from controller_runtime.apis.machinery import field
from controller_runtime.webhook.admission import CustomValidator

from pkg.apis.jobset.v1alpha2 import ReplicatedJob
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainingRuntimeSpec
from pkg.constants import trainer as constants

REPLICAS_ERROR: Final = "always must be 1"
CONTAINER_NAMES_ERROR: Final = "must contain the required container for the ancestor: {}"

_CONTAINER_OF_ANCESTOR: Final = {
    constants.ANCESTOR_TRAINER: constants.NODE,
    constants.MODEL_INITIALIZER: constants.MODEL_INITIALIZER,
    constants.DATASET_INITIALIZER: constants.DATASET_INITIALIZER,
}

# +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-trainingruntime,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainingruntimes,verbs=create;update,versions=v1alpha1,name=validator.trainingruntime.trainer.kubeflow.org,admissionReviewVersions=v1


class TrainingRuntimeWebhook(CustomValidator[TrainingRuntime]):
    """Validates TrainingRuntimes when they are created; upstream lets every update pass."""

    async def validate_create(self, obj: TrainingRuntime) -> list[str]:
        """Raise if the template's jobs do not meet the requirements of TrainJobs."""
        check_replicated_jobs(obj.spec)
        return []

    async def validate_update(self, old: TrainingRuntime, new: TrainingRuntime) -> list[str]:
        """Allow it."""
        del old, new
        return []

    async def validate_delete(self, obj: TrainingRuntime) -> list[str]:
        """Allow it: the finalizer protects a runtime in use."""
        del obj
        return []


def check_replicated_jobs(spec: TrainingRuntimeSpec, *, warnings: Iterable[str] = ()) -> None:
    """Raise the errors of :func:`validate_replicated_jobs` as one aggregate, with the warnings as notes."""
    aggregate = validate_replicated_jobs(spec.template.spec.replicated_jobs or []).to_aggregate()
    if aggregate is not None:
        for warning in warnings:
            aggregate.add_note(warning)
        raise aggregate


def validate_replicated_jobs(jobs: list[ReplicatedJob]) -> field.ErrorList:
    """Return the errors in the jobs that carry out a part of a TrainJob.

    Each must have one replica and the container for its part.
    """
    errors = field.ErrorList()
    path = field.Path("spec", "template", "spec", "replicatedJobs")
    for index, job in enumerate(jobs):
        labels = (job.template.metadata.labels if job.template.metadata else None) or {}
        ancestor = labels.get(constants.LABEL_TRAIN_JOB_ANCESTOR, "")
        container = _CONTAINER_OF_ANCESTOR.get(ancestor)
        if container is None:
            continue
        replicas = job.replicas or 0
        if replicas != 1:
            errors.append(field.invalid(path.index(index).child("replicas"), replicas, REPLICAS_ERROR))
        pod = job.template.spec.template.spec
        containers = (pod.containers if pod else None) or []
        if all(each.name != container for each in containers):
            where = path.index(index).child("template", "spec", "template", "spec", "containers")
            errors.append(field.invalid(where, containers, CONTAINER_NAMES_ERROR.format(ancestor)))
    return errors


def setup_webhook_for_training_runtime(mgr: ctrl.Manager) -> None:
    """Serve the webhook."""
    ctrl.new_webhook_managed_by(mgr, TrainingRuntime).with_validator(TrainingRuntimeWebhook()).complete()
