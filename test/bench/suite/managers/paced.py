# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that arrive one after another, 20 a second: the latency of a manager whose queue is empty."""

from __future__ import annotations

from harness import api, contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found, phase
from harness.manager import started
from harness.plan import Entrant, Plan
from managers.burst import create

RATE = 20.0


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found = Found()
        jobs = objects.names("paced", plan.sizes.few)
        post = where.api.posting(objects.TRAIN_JOBS, objects.train_job)
        async with started(entrant, where) as manager, manager.asked():
            await create(plan, manager, objects.names("warm", min(plan.sizes.few, 50)))
            await manager.settled(plan.quiet)
            async with (
                phase(found, "torch", manager, len(jobs)),
                where.api.watching(objects.JOB_SETS, jobs) as watch,
            ):
                done = await api.at_rate(jobs, post, RATE)
                seen = await manager.within(plan.patience, watch.all())
                await manager.settled(plan.quiet)
        found.latencies("torch", (seen[job] - done[job].at for job in jobs))
        return found

    return contest.combine("paced", await contest.contest(plan.rounds, plan.managers, one))
