# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time from the arrival of a TrainJob to its children."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from controller_runtime.event import CreateEvent, UpdateEvent
from controller_runtime.machinery.meta import format_time

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.arrivals import Arrivals

BEGIN = datetime(2030, 1, 1, microsecond=700_000, tzinfo=UTC)
MakeJob = Callable[..., TrainJob]


class Clock:
    """A clock that is set."""

    now = BEGIN

    def __call__(self) -> datetime:
        return self.now


def job_of(new_train_job: MakeJob) -> TrainJob:
    job = new_train_job(name="a")
    job.metadata.creation_timestamp = format_time(BEGIN)
    return job


def test_the_time_counts_from_the_event_in_fractions_of_a_second(new_train_job: MakeJob) -> None:
    clock, job = Clock(), job_of(new_train_job)
    arrivals = Arrivals(clock)
    assert arrivals.create(CreateEvent(job))
    clock.now += timedelta(milliseconds=30)

    assert arrivals.take(job) == 0.03
    assert len(arrivals) == 0


def test_a_train_job_of_the_first_list_counts_from_its_creation(new_train_job: MakeJob) -> None:
    clock, job = Clock(), job_of(new_train_job)
    arrivals = Arrivals(clock)
    assert arrivals.create(CreateEvent(job, is_in_initial_list=True))
    clock.now += timedelta(seconds=5)

    assert len(arrivals) == 0
    assert arrivals.take(job) == 5.7


def test_updates_pass_and_are_not_noted(new_train_job: MakeJob) -> None:
    arrivals, job = Arrivals(Clock()), job_of(new_train_job)

    assert arrivals.update(UpdateEvent(job, job))
    assert len(arrivals) == 0


def test_a_forgotten_train_job_takes_no_memory(new_train_job: MakeJob) -> None:
    arrivals, job = Arrivals(Clock()), job_of(new_train_job)
    arrivals.create(CreateEvent(job))
    arrivals.forget(job.key)

    assert len(arrivals) == 0
