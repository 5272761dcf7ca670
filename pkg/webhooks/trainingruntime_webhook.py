# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission of TrainingRuntimes, and the check of a template that both kinds of runtime share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller_runtime import offload
from controller_runtime.machinery import equality, field
from controller_runtime.webhook import CustomValidator

from pkg import features
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.jobset.v1alpha2 import ReplicatedJob
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, RunPolicy, TrainingRuntime, TrainJobSpec
from pkg.constants import trainer as constants
from pkg.runtime import ancestor_of, containers_of, remarks
from pkg.util import podtemplate, trainingruntime

from . import v23rules

AnyRuntime = TrainingRuntime | ClusterTrainingRuntime
REPLICAS_ERROR: Final = "always must be 1"
CONTAINER_NAMES_ERROR: Final = "must contain the required container for the ancestor: {}"
MOST_TEMPLATE_WARNINGS: Final = 5
"""Maximum number of warnings about pod templates in a response: clients print them all."""

_CONTAINER_OF_ANCESTOR: Final = {
    constants.ANCESTOR_TRAINER: constants.NODE,
    constants.MODEL_INITIALIZER: constants.MODEL_INITIALIZER,
    constants.DATASET_INITIALIZER: constants.DATASET_INITIALIZER,
}

# +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-trainingruntime,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainingruntimes,verbs=create;update,versions=v1alpha1,name=validator.trainingruntime.trainer.kubeflow.org,admissionReviewVersions=v1


class TrainingRuntimeWebhook(CustomValidator[TrainingRuntime]):
    """Validates TrainingRuntimes. Upstream's webhook lets every update pass (trainer#3686)."""

    protects_go_clients = True

    def __init__(self, cfg: Configuration | None = None) -> None:
        self._cfg = defaulted() if cfg is None else cfg

    async def validate_create(self, obj: TrainingRuntime) -> list[str]:
        """Return the warnings. Raises if the template's jobs do not meet the requirements of TrainJobs."""
        return await check_runtime(None, obj, self._cfg)

    async def validate_update(self, old: TrainingRuntime, new: TrainingRuntime) -> list[str]:
        """Check a changed spec, see :func:`check_update`."""
        return await check_update(old, new, self._cfg)

    async def validate_delete(self, obj: TrainingRuntime) -> list[str]:
        """Allow the deletion: the finalizer protects a runtime in use."""
        del obj
        return []


async def check_update(old: AnyRuntime, new: AnyRuntime, cfg: Configuration) -> list[str]:
    """Return the warnings. Raise the errors of a changed spec as one aggregate.

    An update passes if the object is being deleted or if the spec is unchanged, because finalizers may change.
    """
    if new.metadata.deletion_timestamp is not None or equality.deep_equal(old.spec, new.spec):
        return []
    return await check_runtime(old, new, cfg)


async def check_runtime(
    old: AnyRuntime | None,
    new: AnyRuntime,
    cfg: Configuration,
    *,
    warnings: Iterable[str] = (),
) -> list[str]:
    """Return ``warnings``, the remarks about the runtime, and warnings of values that v2.3 refuses or an empty policy.

    Also warn of mistakes in the pod templates. Raise the errors of a runtime as one aggregate, with ``warnings`` as
    notes. In the second generation, a value that v2.3 refuses is an InvalidError.
    """
    errors = list(v23rules.runtime_violations(old.spec if old is not None else None, new.spec))
    if cfg.second_generation:
        low = v23rules.low_runtime_numbers(old.spec if old is not None else None, new.spec)
        v23rules.refuse(new, [*errors, *(low if cfg.previews_v2_4 else ())])
    found = [v23rules.REFUSED_LATER.format(error) for error in errors]
    found += ttl_warnings(
        cfg, old.spec.run_policy if old is not None else None, new.spec.run_policy, "spec.runPolicy"
    )
    found += map(str, remarks.about_runtime(new))
    was = old is not None and trainingruntime.names_no_scheduler(old.spec.pod_group_policy)
    if trainingruntime.names_no_scheduler(new.spec.pod_group_policy) and not was:
        found.append(trainingruntime.NO_SCHEDULER.format(field.Path("spec", "podGroupPolicy")))
    aggregate = validate_replicated_jobs(new.spec.template.spec.replicated_jobs or []).to_aggregate()
    if aggregate is not None:
        for warning in warnings:
            aggregate.add_note(warning)
        raise aggregate
    template = new.spec.template
    wrong = await offload.run_sized(
        new.decoded_size, lambda: podtemplate.violations(template.to_dict(), of_runtime=True)
    )
    return [*warnings, *found, *(each.sentence for each in wrong[:MOST_TEMPLATE_WARNINGS])]


def ttl_warnings(
    cfg: Configuration,
    old: RunPolicy | TrainJobSpec | None,
    new: RunPolicy | TrainJobSpec | None,
    path: str,
) -> list[str]:
    """Return the warning that a new or changed ``ttlSecondsAfterFinished`` has no effect without its feature gate."""
    wanted = new.ttl_seconds_after_finished if new is not None else None
    if wanted is None or (old is not None and old.ttl_seconds_after_finished == wanted):
        return []
    gate = features.TTL_AFTER_FINISHED
    if features.resolve(cfg.feature_gates or {}).enabled(gate):
        return []
    return [f"{path}.ttlSecondsAfterFinished: has no effect: the manager's feature gate {gate} is disabled"]


def validate_replicated_jobs(jobs: list[ReplicatedJob]) -> field.ErrorList:
    """Check the jobs that carry out a step of a TrainJob: the initializers and the trainer.

    Each of these jobs must have one replica and the container for its step.
    """
    errors = field.ErrorList()
    path = field.Path("spec", "template", "spec", "replicatedJobs")
    for index, job in enumerate(jobs):
        ancestor = ancestor_of(job) or ""
        container = _CONTAINER_OF_ANCESTOR.get(ancestor)
        if container is None:
            continue
        replicas = job.replicas or 0
        if replicas != 1:
            errors.append(field.invalid(path.index(index).child("replicas"), replicas, REPLICAS_ERROR))
        if not containers_of(job, container):
            containers = job.template.spec.template.spec.containers
            where = path.index(index).child("template", "spec", "template", "spec", "containers")
            errors.append(field.invalid(where, containers, CONTAINER_NAMES_ERROR.format(ancestor)))
    return errors
