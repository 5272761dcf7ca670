# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines about TrainJobs at the level info: one for each outcome."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime import log
from controller_runtime.machinery.meta import format_time

from testkit.trainjobs import KEY, START, ReconcilerWorld, world

JOB = {"trainJob": "ns/job"}


@pytest.fixture
def stream() -> io.StringIO:
    written = io.StringIO()
    log.configure(log.Options(encoder=log.Encoder.JSON), stream=written)
    return written


async def created() -> ReconcilerWorld:
    w = await world(metadata={"creationTimestamp": format_time(START)})
    await after(w, 1)
    return w


async def after(w: ReconcilerWorld, seconds: float) -> None:
    """Reconcile after some time, and once more."""
    w.now += timedelta(seconds=seconds)
    with log.into_context(trainJob=str(KEY)):
        await w.reconcile()
        await w.reconcile()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    wanted = ("msg", "trainJob", "after", "restarts", "reason", "message")
    return [
        {key: line[key] for key in wanted if key in line}
        for line in map(json.loads, stream.getvalue().splitlines())
    ]


async def test_each_outcome_is_one_line(stream: io.StringIO) -> None:
    w = await created()
    for suspended in (True, False):
        await w.suspend(suspended)
        await after(w, 10)
    await w.finish("Completed", restarts=2)
    await after(w, 240)
    assert lines(stream) == [
        {"msg": "TrainJob Created", **JOB, "after": "1s"},
        {"msg": "TrainJob Suspended", **JOB, "after": "11s", "restarts": 0},
        {"msg": "TrainJob Resumed", **JOB, "after": "21s", "restarts": 0},
        {"msg": "TrainJob Complete", **JOB, "after": "4m21s", "restarts": 2},
    ]


async def test_a_failure_is_logged_with_its_reason(stream: io.StringIO) -> None:
    w = await created()
    await w.finish("Failed")
    await after(w, 240)
    ended = {"after": "4m1s", "restarts": 0, "reason": "R", "message": "m"}
    assert lines(stream)[1:] == [{"msg": "TrainJob Failed", **JOB, **ended}]
