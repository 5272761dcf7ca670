# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time from the arrival of a TrainJob to its children."""

from datetime import timedelta

import pytest
from controller_runtime.event import CreateEvent
from controller_runtime.machinery.meta import format_time

from pkg import metrics
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.trainjobs import KEY, START, world


@pytest.mark.parametrize(("listed", "expected"), [(False, 0.03), (True, 0.73)])
async def test_the_time_counts_from_the_event_or_of_an_older_train_job_from_its_creation(
    monkeypatch: pytest.MonkeyPatch, *, listed: bool, expected: float
) -> None:
    w = await world(metadata={"creationTimestamp": format_time(START)})
    w.now = START + timedelta(milliseconds=700)  # the text of the creation has whole seconds only
    job = await w.server.get(TrainJob, KEY)
    assert w.reconciler.arrives(CreateEvent(job, is_in_initial_list=listed))
    w.now += timedelta(milliseconds=30)
    observed: list[float] = []  # the histogram's sum over all tests would be too large to see the difference
    monkeypatch.setattr(metrics.TIME_TO_CHILDREN, "observe", observed.append)
    await w.reconcile()
    assert observed == [pytest.approx(expected)]
