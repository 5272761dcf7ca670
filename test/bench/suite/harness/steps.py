# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that several workloads on managers take."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from harness import api, objects
from harness.cluster import Cluster
from harness.manager import Manager, running
from harness.plan import Entrant, Plan


async def create(
    plan: Plan,
    manager: Manager,
    jobs: Sequence[str],
    runtime: str = objects.TORCH,
    *,
    suspend: bool = False,
) -> tuple[float, list[float]]:
    """Create TrainJobs and wait for their JobSets; return the seconds until the last one, and the latency of each."""
    where = manager.cluster

    post = where.api.posting(objects.TRAIN_JOBS, lambda job: objects.train_job(job, runtime, suspend=suspend))
    async with where.api.watching(objects.JOB_SETS, jobs) as watch:
        begin = time.perf_counter()
        done = await api.each(jobs, post)
        seen = await manager.within(plan.patience, watch.all())
    return max(seen.values()) - begin, [max(0.0, seen[job] - done[job].at) for job in jobs]


async def populate(plan: Plan, manager: Manager, jobs: Sequence[str]) -> None:
    """Create TrainJobs in states as in a used cluster: a quarter suspended, a quarter running, and half complete."""
    where = manager.cluster
    await create(plan, manager, jobs[::4], suspend=True)
    if others := [job for at, job in enumerate(jobs) if at % 4]:
        await create(plan, manager, others)
    through = [job for at, job in enumerate(jobs) if at % 4 > 1]
    await api.each(through, where.api.patching(objects.JOB_SETS + "/{}/status", objects.completed()))
    await manager.within(plan.patience, manager.settled(plan.quiet))


async def preload(
    plan: Plan,
    where: Cluster,
    entrants: Sequence[Entrant],
    make: Callable[[Manager], Awaitable[object]],
) -> None:
    """Call ``make`` while the first program runs; then let each program start once and change objects as it needs."""
    async with running(entrants[0], where) as manager:
        await manager.ready()
        await make(manager)
    for entrant in entrants:
        async with running(entrant, where) as manager:
            await manager.ready()
            await manager.within(plan.patience, manager.settled(plan.quiet))
