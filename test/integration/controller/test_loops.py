# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Children that change or disappear are restored within a second, and settled TrainJobs cost no requests."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from controller_runtime import cache, metrics
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_runtime, written_train_job

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]

RunManager = Callable[..., Any]
MANY = int(os.environ.get("STEADY_TRAINJOBS", "200"))
WRITES = {"POST", "PUT", "PATCH", "DELETE"}


@pytest.fixture
def sent() -> list[Request]:
    """Return the list of the manager's requests."""
    return []


def writes(sent: list[Request]) -> list[str]:
    return [f"{request.method} {request.path}" for request in sent if request.method in WRITES]


def reconciled() -> float:
    """Return how often TrainJobs were reconciled in this process."""
    name, labels = "controller_runtime_reconcile_total", {"controller": "trainjob_controller"}
    return sum(
        metrics.REGISTRY.get_sample_value(name, {**labels, "result": result}) or 0.0
        for result in ("success", "error", "requeue", "requeue_after")
    )


async def quiet(sent: list[Request], *, looks: int = 30) -> None:
    """Return after ``looks`` checks in a row, every 50 ms, without a new write.

    If the machine pauses, only one check is late.
    """
    before, same = len(writes(sent)), 0
    while same < looks:
        await anyio.sleep(0.05)
        now = len(writes(sent))
        before, same = now, same + 1 if now == before else 0


async def all_at_once(*steps: Awaitable[Any]) -> None:
    limiter = anyio.Semaphore(32)

    async def limited(step: Awaitable[Any]) -> None:
        async with limiter:
            await step

    async with anyio.create_task_group() as tasks:
        for step in steps:
            tasks.start_soon(limited, step)


@pytest.mark.timeout(60 + MANY)
async def test_neither_a_resync_of_settled_jobs_nor_a_restart_sends_a_write(
    run_manager: RunManager, live_client: LiveClient, namespace: str, sent: list[Request], figure: Any
) -> None:
    for shared in (
        written_runtime(namespace, "torch", mlPolicy={"numNodes": 1, "torch": {}}),
        written_runtime(namespace, "mpi", mlPolicy={"numNodes": 1, "mpi": {}}),
    ):
        await live_client.create(shared)
    kinds = [("torch", False), ("torch", False), ("torch", True), ("mpi", False)]
    jobs = []
    for number in range(MANY):
        name, suspend = kinds[number % len(kinds)]
        jobs.append(
            written_train_job(namespace, name, name=f"job-{number}", suspend=suspend, trainer={"numNodes": 2})
        )

    async def counted(job: TrainJob) -> None:
        job_set = await live_client.get(JobSet, job.key)
        counts = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        job_set.status = job_set.status.from_dict({"replicatedJobsStatus": [counts]})
        await live_client.status.update(job_set)

    async with run_manager(sent=sent):
        await all_at_once(*map(live_client.create, jobs))

        async def made() -> bool:
            return len(await live_client.list(JobSet, namespace=namespace)) == MANY

        await eventually(made, timeout=30 + MANY / 4, interval=0.5, reason="every TrainJob has its JobSet")
        await all_at_once(*map(counted, jobs))
        await quiet(sent)

    sent.clear()
    before = reconciled()
    resync = 2.0 + MANY / 200
    options = cache.Options(resync_period=resync)
    async with run_manager(sent=sent, cache=options):
        await eventually(
            lambda: reconciled() - before >= MANY,
            timeout=30 + MANY / 4,
            reason="every TrainJob is reconciled",
        )
        await quiet(sent)
        at_restart = [each for each in writes(sent) if namespace in each]
        read_at_restart = [each.path for each in sent if each.method == "GET" and namespace in each.path]
        sent.clear()
        started = reconciled()

        def resynced() -> bool:
            return reconciled() - started >= 2 * MANY

        await eventually(
            resynced, timeout=8 * resync + 30, interval=0.2, reason="everything was resynced twice"
        )
        figure(
            f"{MANY} settled TrainJobs, {reconciled() - started:.0f} reconciles by resyncs: writes",
            len([each for each in writes(sent) if namespace in each]),
            at_most=0,
            unit="requests",
        )
        assert [each.path for each in sent if namespace in each.path] == []  # nothing is read either
    figure(f"{MANY} settled TrainJobs, restart: writes", len(at_restart), at_most=0, unit="requests")
    # The data of ConfigMaps is not cached, so each is read once after a restart.
    mpi = [job for job in jobs if job.spec.runtime_ref.name == "mpi"]
    assert len(read_at_restart) == len(mpi)
    assert all("/configmaps/" in path for path in read_at_restart)
