# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines about TrainJobs at the level info: one for each outcome."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from controller_runtime import log
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.meta import format_time
from controller_runtime.reconcile import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from pkg.util.trainjob import ChildConflictError

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
MakeJob = Callable[..., TrainJob]


@pytest.fixture
def stream() -> io.StringIO:
    written = io.StringIO()
    log.configure(log.Options(encoder=log.Encoder.JSON), stream=written)
    return written


class Day:
    """Drives TrainJobs through their states, with an in-memory server and a clock."""

    def __init__(self, make_runtime: Callable[..., Any], recorder: Any, make_job: MakeJob) -> None:
        self.clock = BEGIN
        self.client = FakeClient(now=lambda: self.clock)
        self.make_job = make_job
        runtimes = {"ClusterTrainingRuntime.trainer.kubeflow.org": make_runtime(client=self.client)}
        self.reconciler = TrainJobReconciler(self.client, recorder, runtimes, now=lambda: self.clock)

    async def reconcile(self, name: str, *, after: float = 0) -> None:
        self.clock += timedelta(seconds=after)
        key = Request("ns", name)
        with log.into_context(trainJob=str(key)):
            await self.reconciler.reconcile(key)

    async def create(self, name: str) -> None:
        job = self.make_job(name=name)
        job.metadata.creation_timestamp = format_time(self.clock)
        await self.client.create(job)
        await self.reconcile(name, after=1)
        await self.reconcile(name)

    async def suspend(self, name: str, *, suspended: bool) -> None:
        job = await self.client.get(TrainJob, ("ns", name))
        job.spec.suspend = suspended
        await self.client.update(job)
        await self.reconcile(name, after=10)
        await self.reconcile(name)

    async def end(self, name: str, condition: str, *, restarts: int = 0) -> None:
        job_set = await self.client.get(JobSet, ("ns", name))
        ended = {"type": condition, "status": "True", "reason": "Ended", "message": "it ended"}
        ended["lastTransitionTime"] = format_time(self.clock)
        job_set.status = type(job_set.status).from_dict({"conditions": [ended], "restarts": restarts})
        await self.client.status.update(job_set)
        await self.reconcile(name, after=240)
        await self.reconcile(name)


@pytest.fixture
def day(make_runtime: Callable[..., Any], recorder: Any, new_train_job: MakeJob) -> Day:
    return Day(make_runtime, recorder, new_train_job)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    wanted = ("msg", "trainJob", "after", "restarts", "reason", "message")
    return [
        {key: line[key] for key in wanted if key in line}
        for line in map(json.loads, stream.getvalue().splitlines())
    ]


async def test_each_outcome_is_one_line(day: Day, stream: io.StringIO) -> None:
    await day.create("llama")
    await day.suspend("llama", suspended=True)
    await day.suspend("llama", suspended=False)
    await day.end("llama", "Completed", restarts=2)

    job = {"trainJob": "ns/llama"}
    assert lines(stream) == [
        {"msg": "TrainJob Created", **job, "after": "1s"},
        {"msg": "TrainJob Suspended", **job, "after": "11s", "restarts": 0},
        {"msg": "TrainJob Resumed", **job, "after": "21s", "restarts": 0},
        {"msg": "TrainJob Complete", **job, "after": "4m21s", "restarts": 2},
    ]


async def test_a_failure_is_logged_with_its_reason(day: Day, stream: io.StringIO) -> None:
    await day.create("llama")
    await day.end("llama", "Failed")

    assert lines(stream)[1:] == [
        {"msg": "TrainJob Failed", "trainJob": "ns/llama", "after": "4m1s", "restarts": 0}
        | {"reason": "Ended", "message": "it ended"}
    ]


async def test_a_day_of_200_train_jobs_is_at_most_1000_lines(day: Day, stream: io.StringIO) -> None:
    for number in range(200):
        await asyncio.sleep(0)  # one step of the event loop with all TrainJobs would block it too long
        name = f"job-{number}"
        await day.create(name)
        if number % 5 == 0:
            await day.suspend(name, suspended=True)
            await day.suspend(name, suspended=False)
        await day.end(name, "Failed" if number % 10 == 0 else "Completed")

    assert len(stream.getvalue().splitlines()) == 200 + 2 * 40 + 200


def test_an_expected_error_is_logged_without_a_traceback(stream: io.StringIO) -> None:
    with pytest.raises(ChildConflictError) as caught:
        raise ChildConflictError("jobset ns/llama: is controlled by another object")
    log.logger_from().error("Reconciler error", error=caught.value)

    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert "stacktrace" not in line
    assert line["error"] == "jobset ns/llama: is controlled by another object"
