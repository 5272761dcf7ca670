# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bursts of TrainJobs of three runtimes: from the answer to the create until the JobSet exists.

``rate`` is measured until the last JobSet exists. The API server also calls the manager's webhook for each TrainJob.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness import api, contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found, phase
from harness.manager import Manager, started
from harness.plan import Entrant, Plan


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found = Found()
        async with started(entrant, where) as manager, manager.asked():
            await manager.settled(plan.quiet)
            found.memory("idle", manager)
            await _warm(plan, manager, objects.TORCH, min(plan.sizes.few, 50))
            for count in plan.sizes.jobs:
                await _measure(plan, manager, found, objects.TORCH, count)
            for runtime in (objects.COSCHEDULING, objects.MPI):
                await _warm(plan, manager, runtime, 2)
                await _measure(plan, manager, found, runtime, plan.sizes.few)
        return found

    return contest.combine("burst", await contest.contest(plan.rounds, plan.managers, one))


async def _warm(plan: Plan, manager: Manager, runtime: str, count: int) -> None:
    await create(plan, manager, objects.names(f"{runtime}-warm", count), runtime)
    await manager.settled(plan.quiet)


async def _measure(plan: Plan, manager: Manager, found: Found, runtime: str, count: int) -> None:
    name = f"{runtime}.{count}"
    jobs = objects.names(f"{runtime}-{count}", count)
    async with phase(found, name, manager, count):
        took, latencies = await create(plan, manager, jobs, runtime)
        await manager.settled(plan.quiet)
    found.add(f"{name}.rate", count / took, "TrainJobs/s")
    found.latencies(name, latencies)


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
