# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A start with existing TrainJobs: until a new TrainJob has its JobSet, and until nothing is left to do.

A quarter of the existing TrainJobs is suspended, a quarter runs, and half are complete; their JobSets exist. The new
TrainJob is created while the process starts, and is listed last. Each program starts once without being measured, so
that the changes that it makes to the objects of another program are not counted.
"""

from __future__ import annotations

import secrets
from functools import partial

from harness import contest, figures, objects
from harness.cluster import Cluster, empty
from harness.contest import Found, phase
from harness.manager import running
from harness.plan import Entrant, Plan
from harness.steps import populate, preload


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""
    made: list[figures.Figure] = []
    for existing in plan.sizes.existing:
        await empty(where)
        jobs = objects.names("old", existing or 1)
        await preload(plan, where, plan.managers, partial(populate, plan, jobs=jobs))
        if not existing:
            await empty(where)
        one = partial(_measure, plan, where, existing)
        made += contest.combine(
            f"cold_start.{existing}", await contest.contest(plan.rounds, plan.managers, one)
        )
    return made


async def _measure(plan: Plan, where: Cluster, existing: int, entrant: Entrant) -> Found:
    found, new = Found(), f"zz-{secrets.token_hex(6)}"
    async with (
        where.api.watching(objects.JOB_SETS, [new]) as watch,
        running(entrant, where) as manager,
        phase(found, "start", manager),
    ):
        await where.api.send("POST", objects.TRAIN_JOBS, objects.train_job(new))
        found.add("ready", await manager.ready(), "s")
        seen = await manager.within(plan.patience, watch.all())
        found.add("first_jobset", seen[new] - manager.began, "s")
        found.add("settled", await manager.settled(plan.quiet) - manager.began, "s")
    for path in (objects.TRAIN_JOBS, objects.JOB_SETS):
        await where.api.send("DELETE", f"{path}/{new}")
    return found
