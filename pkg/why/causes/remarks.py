# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fields of the TrainJob and its runtime that have no effect, and numbers with which no pod can run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pydantic_core

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import Remark, about_runtime, about_train_job
from pkg.why.causes.references import runtime_of
from pkg.why.finding import Finding, Severity
from pkg.why.snapshot import Snapshot


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each remark about the TrainJob and its runtime.

    A number with which no pod can run is an error, as long as no pod runs. All other remarks are notes.
    """
    reference = runtime_of(snapshot.train_job)
    stored = next((each for each in snapshot.all(reference.kind) if each.name == reference.name), None)
    if stored is None:
        return
    kind = TrainingRuntime if reference.namespace else ClusterTrainingRuntime
    with suppress(pydantic_core.ValidationError):  # the webhooks and the manager report such an object
        runtime = kind.from_dict(dict(stored.data))
        jobs = None
        if snapshot.job_set is not None:
            jobs = JobSet.from_dict(dict(snapshot.job_set.data)).spec.replicated_jobs
        about = about_train_job(TrainJob.from_dict(dict(snapshot.train_job.data)), runtime.spec, jobs)
        for subject, each in (
            *((str(snapshot.train_job), each) for each in about),
            *((str(stored), each) for each in about_runtime(runtime)),
        ):
            yield _finding(subject, each, is_grave=each.prevents_start and not snapshot.running)


def _finding(subject: str, remark: Remark, *, is_grave: bool) -> Finding:
    advice = f"Correct {remark.path}."
    if not remark.is_number:
        advice = "Remove what has no effect, or correct the runtime as described."
    return Finding(
        "number-invalid" if remark.is_number else "no-effect",
        str(remark),
        (subject,),
        (f"{remark.path} of {subject}",),
        advice,
        Severity.ERROR if is_grave else Severity.NOTE,
    )
