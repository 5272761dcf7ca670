# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time at which a finished TrainJob will be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pydantic_core
from controller_runtime.machinery.meta import format_time

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from pkg.util import trainjob
from pkg.why.causes.references import runtime_of
from pkg.why.finding import Finding, found
from pkg.why.snapshot import Snapshot


def due(snapshot: Snapshot) -> tuple[str, str] | None:
    """Return the time of the deletion and the field that determines it, or None if no field does.

    The time of the manager's Configuration is not known here; only the manager's event contains it.
    """
    with suppress(pydantic_core.ValidationError, ValueError, OverflowError):
        train_job = TrainJob.from_dict(dict(snapshot.train_job.data))
        finished = trainjob.finished_at(train_job)
        if finished is None or not trainjob.is_ours(train_job) or train_job.metadata.deletion_timestamp:
            return None
        reference = runtime_of(snapshot.train_job)
        kind = TrainingRuntime if reference.namespace else ClusterTrainingRuntime
        stored = next((each for each in snapshot.all(reference.kind) if each.name == reference.name), None)
        ttl = trainjob.time_to_live(train_job)
        if ttl is None and stored is not None:
            ttl = trainjob.time_to_live(train_job, kind.from_dict(dict(stored.data)))
        if ttl is not None:
            return format_time(finished + timedelta(seconds=ttl[0])), f"{ttl[1]} is {ttl[0]}"
    return None


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a note that says when the TrainJob will be deleted, if this is known."""
    job = snapshot.train_job
    announced = snapshot.events(job, constants.TRAIN_JOB_EXPIRING_REASON)
    lines = [snapshot.quote(each) for each in announced[:1]]
    if (expected := due(snapshot)) is not None:
        yield found("expiring", job, *lines, due=expected[0], field=expected[1])
    elif announced and (job.is_true("Complete") or job.is_true("Failed")):
        yield found("expiring/announced", job, *lines, words=announced[0].text("message"))
