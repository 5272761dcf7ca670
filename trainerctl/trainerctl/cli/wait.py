# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl wait``: waits until a TrainJob is complete, has failed, runs, is suspended or is deleted."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import anyio
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError
from pkg.why import LiveObject, kinds
from pkg.why.phase import Phase, phase, state

from trainerctl.cli import live, streams, trainerstatus
from trainerctl.cli.progress import progress_on
from trainerctl.cli.terminal import Console

TIMED_OUT: Final = 3
_REACHED: Final = {
    "complete": (Phase.COMPLETE,),
    "failed": (Phase.FAILED,),
    "finished": (Phase.COMPLETE, Phase.FAILED),
    "running": (Phase.RUNNING, Phase.COMPLETE),
    "suspended": (Phase.SUSPENDED,),
    "deleted": (),
}
_JOB_SET: Final = unstructured(kinds.VERSIONS[kinds.JOB_SET][0])
_TICK: Final = 1.0
"""The age of the last report is drawn again after this many seconds."""

Show = Callable[[LiveObject, LiveObject | None], None]
"""Takes a TrainJob and, if it is known, its JobSet."""


async def wait_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Return 0 when the state is reached, 1 if it cannot be reached any more, and 3 after the time limit.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        with anyio.move_on_after(arguments.timeout):
            async with _bar(cluster, arguments.name, err) as show:
                code, said = await wait_for(cluster, arguments, show)
            (out.say if code == 0 else streams.say_error)(said)
            return code
    streams.say_error(
        f"TrainJob {cluster.namespace}/{arguments.name} is not {arguments.state} after {arguments.timeout:g} s; "
        f"see trainerctl why {arguments.name} -n {cluster.namespace}"
    )
    return TIMED_OUT


@asynccontextmanager
async def _bar(cluster: live.Connection, name: str, err: Console) -> AsyncIterator[Show]:
    """Draw the progress of a TrainJob on a terminal. Yield a function that shows another state."""
    if not err.is_terminal:
        yield lambda _job, _job_set: None
        return
    shown = "", trainerstatus.Report()
    task = name

    def show(job: LiveObject, job_set: LiveObject | None) -> None:
        nonlocal shown
        shown = state(job, job_set), trainerstatus.report_of(job) or trainerstatus.Report()
        draw()

    def draw() -> None:
        words, report = shown
        if report != trainerstatus.Report():
            now = cluster.clock.corrected(datetime.now(UTC))
            words = f"{words}, {dataclasses.replace(report, percent=None).aged(now)}"
        percent = report.percent
        progress.update(task, done=percent or 0, total=None if percent is None else 100, detail=words)

    async def tick() -> None:
        while True:
            await anyio.sleep(_TICK)
            draw()

    with progress_on(err, percent=True) as progress:
        progress.start(task)
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            yield show
            group.cancel_scope.cancel()


async def wait_for(
    cluster: live.Connection, arguments: argparse.Namespace, show: Show = lambda _job, _job_set: None
) -> tuple[int, str]:
    """Wait and return the exit code and the text to print. ``show`` is called with each state of the TrainJob.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    wanted, shown = arguments.state, f"TrainJob {cluster.namespace}/{arguments.name}"
    existed, job_set = False, None
    async with aclosing(cluster.states(arguments.name)) as states:
        async for job in states:
            if job is None:
                break
            existed = True
            if job_set is None and len(job.maps("status", "jobsStatus")) > 1:
                # The step that trains has a label there. Without the JobSet, the usual names of steps are used.
                with suppress(StatusError, RestError):
                    found = await cluster.client.get(_JOB_SET, (cluster.namespace, arguments.name))
                    job_set = LiveObject(found.to_dict())
            now = phase(job, job_set)
            show(job, job_set)
            if now in _REACHED[wanted]:
                return 0, f"{shown} {now.said}"
            if now.ended and wanted != "deleted":
                see = f"; see trainerctl why {arguments.name} -n {cluster.namespace}"
                return 1, f"{shown} {now.said} and is not {wanted}{see if now is Phase.FAILED else ''}"
    if wanted == "deleted":
        return 0, f"{shown} is deleted"
    return 1, f"{shown} was deleted" if existed else f"{shown} does not exist"
