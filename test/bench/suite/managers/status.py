# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Status fan-in: all JobSets report that they are completed, until all TrainJobs are Complete."""

from __future__ import annotations

import time

from harness import api, contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found, phase
from harness.manager import Manager, started
from harness.plan import Entrant, Plan
from managers.burst import create


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found = Found()
        async with started(entrant, where) as manager:
            for count in plan.sizes.jobs:
                jobs = objects.names(f"job-{count}", count)
                await create(plan, manager, jobs)
                await manager.settled(plan.quiet)
                await _measure(plan, manager, found, jobs)
        return found

    return contest.combine("status", await contest.contest(plan.rounds, plan.managers, one))


async def _measure(plan: Plan, manager: Manager, found: Found, jobs: list[str]) -> None:
    where, name = manager.cluster, f"torch.{len(jobs)}"
    async with (
        phase(found, name, manager, len(jobs)),
        where.api.watching(
            objects.TRAIN_JOBS, jobs, lambda job: job.has("Complete"), metadata=False
        ) as watch,
    ):
        begin = time.perf_counter()
        done = await api.each(jobs, where.api.patching(objects.JOB_SETS + "/{}/status", objects.completed()))
        seen = await manager.within(plan.patience, watch.all())
        await manager.settled(plan.quiet)
    found.add(f"{name}.rate", len(jobs) / (max(seen.values()) - begin), "TrainJobs/s")
    found.latencies(name, (seen[job] - done[job].at for job in jobs))
