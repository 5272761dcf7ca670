# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Counts how often a TrainJob was started. The feature gate ``ExecutionAttempts`` decides which JobSets are counted.

An annotation of the JobSet contains the number of starts: the creation of a JobSet that is not suspended, and each
resume. The annotation is written by the same request that starts the JobSet, so a manager that is killed neither counts
a start twice nor misses one. The starts of a deleted JobSet, including JobSet's own restarts, remain in
``status.executionAttempts`` of the TrainJob, and the next JobSet continues with this number.

A JobSet is counted if the gate was on when it was created. Later changes of the gate do not change the JobSet.
"""

from __future__ import annotations

from typing import Final, Protocol

from controller_runtime.apis.core.v1 import EnvVar, EnvVarSource, ObjectFieldSelector
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery.quantity import MAX_INT32

from pkg.apis.jobset.v1alpha2 import RESTARTS_KEY, JobSet, JobSetStatus
from pkg.apis.trainer.v1alpha1 import TrainJobStatus
from pkg.constants import trainer as constants

ENV_RESUMES: Final = "KUBEFLOW_TRAINER_RESUMES"
ENV_RESTARTS: Final = "KUBEFLOW_TRAINER_RESTARTS"
_ENVIRONMENT: Final = {
    ENV_RESUMES: f"metadata.annotations['{constants.RESUMES_ANNOTATION}']",
    ENV_RESTARTS: f"metadata.labels['{RESTARTS_KEY}']",
}
_DIGITS: Final = 10


class Metadata(Protocol):
    """The part of the metadata of a JobSet that counts its starts."""

    annotations: dict[str, str] | None


def starts_of(metadata: Metadata) -> int | None:
    """Return the number of starts up to now, or None if the JobSet is not counted."""
    text = (metadata.annotations or {}).get(constants.STARTS_ANNOTATION)
    if text is None:
        return None
    # Anybody who may edit the JobSet may have changed the annotation.
    return min(int(text), MAX_INT32) if len(text) <= _DIGITS and text.isascii() and text.isdigit() else 0


def attempts_of(metadata: Metadata, status: JobSetStatus) -> int | None:
    """Return how often a TrainJob was started before its current or last start.

    Return None if its JobSet is not counted or was never started.
    """
    starts = starts_of(metadata)
    return min(starts - 1 + max(status.restarts or 0, 0), MAX_INT32) if starts else None


def starts_in(status: TrainJobStatus) -> int:
    """Return the number of starts that the status of a TrainJob contains."""
    return 0 if status.execution_attempts is None else status.execution_attempts + 1


def counted(job_set: JobSet, live: JobSet | None, before: int | None) -> JobSet:
    """Return a copy of the desired ``job_set`` with the number of starts, if it is counted; otherwise ``job_set``.

    ``before`` is the number of starts if there is no live JobSet, or None if the JobSet is not to be counted. The
    number increases by one if ``job_set`` starts: if it is not suspended, and ``live`` is suspended or does not exist.
    The pod templates get the annotation and the variables for the next pods. Variables of the template are kept.
    """
    starts = before if live is None else starts_of(live.metadata)
    if starts is None:
        return job_set
    if not job_set.spec.suspend and (live is None or live.spec.suspend):
        starts = min(starts + 1, MAX_INT32)
    made = job_set.deep_copy()
    made.metadata.annotations = {
        **(made.metadata.annotations or {}),
        constants.STARTS_ANNOTATION: str(starts),
    }
    for job in made.spec.replicated_jobs or ():
        pod = job.template.spec.template
        pod.metadata = pod.metadata or ObjectMeta()
        resumes = {constants.RESUMES_ANNOTATION: str(max(starts - 1, 0))}
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), **resumes}
        for container in pod.spec.containers or ():
            present = {each.name for each in container.env or ()}
            added = [
                EnvVar(name=name, value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path=path)))
                for name, path in _ENVIRONMENT.items()
                if name not in present
            ]
            container.env = [*(container.env or ()), *added] or None
    return made
