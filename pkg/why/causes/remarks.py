# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fields of the TrainJob and its runtime that have no effect, and values with which no pod can start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pydantic_core

from pkg.why.causes.references import stored_runtime
from pkg.why.finding import Finding, found
from pkg.why.rules import Severity
from pkg.why.snapshot import Snapshot


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each remark about the TrainJob and its runtime.

    A value with which no pod can start is an error, as long as no pod runs and the TrainJob is not Complete. All
    other remarks are notes.
    """
    can_be_grave = not snapshot.running and not snapshot.train_job.is_true("Complete")
    stored = stored_runtime(snapshot)
    if stored is None:
        return
    from pkg.apis.jobset.v1alpha2 import JobSet  # slow to load, as the next modules
    from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
    from pkg.runtime import about_runtime, about_train_job

    kind = TrainingRuntime if stored.kind == "TrainingRuntime" else ClusterTrainingRuntime
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
            rule = "no-effect"
            if each.is_number or each.prevents_start:
                rule = "number-invalid" if each.is_number else "object-invalid/remark"
            severity = Severity.ERROR if each.prevents_start and can_be_grave else Severity.NOTE
            line = f"{each.path} of {subject}"
            yield found(rule, subject, line, severity=severity, words=each, path=each.path)
