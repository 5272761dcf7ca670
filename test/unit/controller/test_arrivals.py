# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time from the arrival of a TrainJob to its children."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from controller_runtime.event import CreateEvent
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.meta import format_time

from pkg import metrics
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from testkit.trainjobs import KEY

BEGIN = datetime(2030, 1, 1, microsecond=700_000, tzinfo=UTC)
MakeJob = Callable[..., TrainJob]


@pytest.mark.parametrize(("listed", "expected"), [(False, 0.03), (True, 0.73)])
async def test_the_time_counts_from_the_event_or_of_an_older_train_job_from_its_creation(
    new_train_job: MakeJob,
    make_runtime: Callable[..., Any],
    recorder: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    listed: bool,
    expected: float,
) -> None:
    job = new_train_job()
    job.metadata.creation_timestamp = format_time(BEGIN)  # its text has whole seconds only
    client, clock = FakeClient(job), [BEGIN]
    runtimes = {"ClusterTrainingRuntime.trainer.kubeflow.org": make_runtime(client=client)}
    reconciler = TrainJobReconciler(client, recorder, runtimes, now=lambda: clock[0])
    assert reconciler.arrives(CreateEvent(job, is_in_initial_list=listed))
    clock[0] += timedelta(milliseconds=30)
    observed: list[float] = []  # the histogram's sum over all tests would be too large to see the difference
    monkeypatch.setattr(metrics.TIME_TO_CHILDREN, "observe", observed.append)
    await reconciler.reconcile(KEY)
    assert observed == [pytest.approx(expected)]
