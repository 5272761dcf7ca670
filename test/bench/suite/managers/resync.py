# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events that change nothing: every JobSet and every TrainJob is annotated, and the manager is restarted.

A quarter of the TrainJobs is suspended, a quarter runs, and half are complete. None of a manager's writes is necessary.
"""

from __future__ import annotations

from harness import api, contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found, phase
from harness.manager import running, started
from harness.plan import Entrant, Plan
from harness.steps import populate


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found, jobs = Found(), objects.names("job", plan.sizes.few)
        async with started(entrant, where) as manager:
            await populate(plan, manager, jobs)
            for what, path in (("jobsets", objects.JOB_SETS), ("trainjobs", objects.TRAIN_JOBS)):
                async with phase(found, what, manager, len(jobs)):
                    await api.each(jobs, where.api.patching(path + "/{}", _TOUCH))
                    await manager.settled(plan.quiet)
        async with running(entrant, where) as manager, phase(found, "restart", manager, len(jobs)):
            await manager.ready()
            found.add("restart.settled", await manager.settled(plan.quiet) - manager.began, "s")
        return found

    return contest.combine("resync", await contest.contest(plan.rounds, plan.managers, one))


_TOUCH = {"metadata": {"annotations": {"bench/touched": "1"}}}
