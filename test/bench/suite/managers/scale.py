# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Many TrainJobs: the cost of a manager while they are created, at rest, at work, and after its watches have ended.

A third of the TrainJobs is suspended, a third runs, and a third is complete. They are in 100 namespaces. Two of 100 are
MPI jobs and two are gangs; every second one has a field of Trainer v2.1, and the others have one of v2.3. Those that are
created later have neither: such fields need the mutating webhook, which v2.1 does not have. Each program has a separate
API server, so its figures are kept if another program fails. These phases are measured one after another:

- ``fill``: the TrainJobs are created, and their JobSets report;
- ``rest``: nothing happens for half a minute;
- ``work``: new TrainJobs arrive, which the webhooks review, while each second another 1 % of the JobSets change;
- ``restart.N``: the manager starts again, three times, and a TrainJob is created as it starts;
- ``behind``: the manager is suspended while every JobSet changes, so that the API server ends its watches;
- ``apiserver``: the API server is killed and starts again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from harness import api, contest, figures, objects
from harness.api import MERGE, Api
from harness.cluster import Cluster, cluster
from harness.contest import Found, phase
from harness.manager import Manager, running
from harness.plan import Entrant, Plan

NAMESPACES: Final = [f"team-{number:02}" for number in range(100)]
RESTARTS: Final = 3
REST: Final = 30.0
RATE: Final = 5.0
"""New TrainJobs per second."""
NEW: Final = 200
_JOB_SETS: Final = "/apis/jobset.x-k8s.io/v1alpha2"
_ALL_JOB_SETS: Final = f"{_JOB_SETS}/jobsets"
_LOOK: Final = 0.1
_OLD: Final = {
    "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"zone": "a"}}}]
}
_NEW: Final = {
    "runtimePatches": [
        {
            "manager": "example.com/user",
            "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"example.com/team": "a"}}}},
        }
    ]
}

Step = Callable[[str], Awaitable[None]]


async def run(plan: Plan) -> list[figures.Figure]:
    """Measure each program on an API server of its own."""

    async def one(entrant: Entrant) -> Found:
        found = Found()
        async with cluster() as where:
            for name in NAMESPACES:
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await where.api.send("POST", "/api/v1/namespaces", body)
            await _measure(plan, where, entrant, found)
        return found

    count = plan.sizes.scale
    return contest.combine(
        f"scale.{count}", await contest.contest(plan.rounds, plan.managers, one, apart=True)
    )


async def _measure(plan: Plan, where: Cluster, entrant: Entrant, found: Found) -> None:
    jobs = objects.names("job", plan.sizes.scale)
    patience = plan.patience + len(jobs) / 20
    async with running(entrant, where) as manager:
        await manager.ready()
        async with phase(found, "fill", manager, len(jobs)):
            await _fill(manager, jobs, patience)
            await manager.within(patience, manager.settled(plan.quiet))
        async with phase(found, "rest", manager):
            await anyio.sleep(REST if len(jobs) > 1_000 else 1.0)
        await _work(plan, manager, jobs, found)
    for number in range(1, RESTARTS + 1):
        await _restart(plan, where, entrant, found, f"restart.{number}")
    async with running(entrant, where) as manager:
        await _serve(plan, manager, "before-behind")  # it may wait for a list, which would count as settled
        await manager.within(patience, manager.settled(plan.quiet))
        manager.pause()
        await api.each(jobs, _touching(where.api, "behind"))
        async with _recovery(plan, manager, found, "behind"):
            manager.resume()
        async with _recovery(plan, manager, found, "apiserver"):
            await where.restart_api_server()


async def _fill(manager: Manager, jobs: Sequence[str], patience: float) -> None:
    where = manager.cluster
    async with where.api.watching(_ALL_JOB_SETS, jobs) as watch:
        await api.each(jobs, _creating(where.api))
        await manager.within(patience, watch.all())
    for state, status in ((1, objects.active()), (2, objects.completed())):
        some = [job for job in jobs if _number(job) % 3 == state]
        await api.each(some, _patching(where.api, status, "/status"))


async def _work(plan: Plan, manager: Manager, jobs: Sequence[str], found: Found) -> None:
    where, new = manager.cluster, objects.names("new", min(NEW, len(jobs)))
    async with (
        manager.asked([objects.NAMESPACE, *NAMESPACES]),
        where.api.watching(_ALL_JOB_SETS, new) as watch,
        phase(found, "work", manager),
        _answering(manager, found, "work"),
        anyio.create_task_group() as tasks,
    ):
        began, changed = time.perf_counter(), [0]
        tasks.start_soon(_change, where.api, jobs, changed)
        done = await api.at_rate(new, _creating(where.api), RATE)
        seen = await manager.within(plan.patience, watch.all())
        found.add("work.changes", changed[0] / (time.perf_counter() - began), "JobSets/s")
        tasks.cancel_scope.cancel()
    reactions = [max(0.0, seen[job] - done[job].at) for job in new]
    found.latencies("work", reactions)
    found.latencies("work.create", (each.took for each in done.values()))
    await manager.within(plan.patience, manager.settled(plan.quiet))


async def _change(client: Api, jobs: Sequence[str], changed: list[int]) -> None:
    """Change 1 % of the JobSets each second, or as many as the API server accepts."""
    share, at = max(1, len(jobs) // 100), 0
    while True:
        began = time.perf_counter()
        some = [jobs[(at + number) % len(jobs)] for number in range(share)]
        changed[0] += len(await api.each(some, _touching(client, str(at)), at_once=8))
        at += share
        await anyio.sleep(max(0.0, began + 1 - time.perf_counter()))


async def _restart(plan: Plan, where: Cluster, entrant: Entrant, found: Found, name: str) -> None:
    new = name.replace(".", "-")
    async with (
        where.api.watching(_ALL_JOB_SETS, [new]) as watch,
        running(entrant, where) as manager,
        phase(found, name, manager),
    ):
        await _creating(where.api)(new)
        seen = await manager.within(plan.patience, watch.all())
        found.add(f"{name}.first_jobset", seen[new] - manager.began, "s")
        found.add(
            f"{name}.settled",
            await manager.within(plan.patience, manager.settled(plan.quiet)) - manager.began,
            "s",
        )


@asynccontextmanager
async def _recovery(plan: Plan, manager: Manager, found: Found, name: str) -> AsyncIterator[None]:
    """Measure from the beginning of the body until a new TrainJob has its JobSet, and until the manager is idle."""
    async with phase(found, name, manager):
        began = time.perf_counter()
        yield
        found.add(f"{name}.first_jobset", await _serve(plan, manager, f"after-{name}"), "s")
        last = await manager.within(plan.patience, manager.settled(plan.quiet))
        found.add(f"{name}.settled", last - began, "s")


async def _serve(plan: Plan, manager: Manager, new: str) -> float:
    """Create a TrainJob, and return the seconds until its JobSet exists."""
    async with manager.cluster.api.watching(_ALL_JOB_SETS, [new]) as watch:
        began = time.perf_counter()
        await _creating(manager.cluster.api)(new)
        return (await manager.within(plan.patience, watch.all()))[new] - began


@asynccontextmanager
async def _answering(manager: Manager, found: Found, name: str) -> AsyncIterator[None]:
    """Record the longest time that the manager took to answer a liveness probe; it was never blocked for longer."""
    longest = 0.0

    async def ask() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await manager.alive()
            longest = max(longest, time.perf_counter() - began)
            await anyio.sleep(_LOOK)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        yield
        tasks.cancel_scope.cancel()
    found.add(f"{name}.stall", longest * 1000, "ms")


def _creating(client: Api) -> Step:
    async def create(job: str) -> None:
        path = f"{objects.TRAINER}/namespaces/{_namespace(job)}/trainjobs"
        await client.send("POST", path, _train_job(job))

    return create


def _touching(client: Api, value: str) -> Step:
    return _patching(client, {"metadata": {"annotations": {"bench/touched": value}}})


def _patching(client: Api, body: dict[str, Any], subresource: str = "") -> Step:
    """Return the step that merges ``body`` into the JobSet of a TrainJob."""

    async def patch(job: str) -> None:
        path = f"{_JOB_SETS}/namespaces/{_namespace(job)}/jobsets/{job}{subresource}"
        await client.send("PATCH", path, body, content=MERGE)

    return patch


def _train_job(job: str) -> dict[str, Any]:
    number = _number(job)
    runtime = {0: objects.MPI, 1: objects.COSCHEDULING}.get(number % 50, objects.TORCH)
    is_later = not job.startswith("job")
    made = objects.train_job(job, runtime, suspend=number % 3 == 0 and not is_later)
    made["metadata"]["namespace"] = _namespace(job)
    if runtime != objects.MPI and not is_later:
        made["spec"] |= _OLD if number % 2 else _NEW
    return made


def _namespace(job: str) -> str:
    return NAMESPACES[_number(job) % len(NAMESPACES)]


def _number(job: str) -> int:
    tail = job.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 1
