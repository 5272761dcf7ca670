# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A start with existing TrainJobs: until a new TrainJob has its JobSet, and until nothing is left to do.

A quarter of the existing TrainJobs is suspended, a quarter runs, and half are complete; their JobSets exist. The new
TrainJob is created while the process starts, and is listed last. Each program starts once without being measured, so
that the changes that it makes to the objects of another program are not counted.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial

from harness import api, contest, figures, objects
from harness.cluster import Cluster, empty
from harness.contest import Found, phase
from harness.manager import Manager, running
from harness.plan import Entrant, Plan
from managers.burst import create


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""
    made: list[figures.Figure] = []
    for existing in plan.sizes.existing:
        await empty(where)
        jobs = objects.names("old", existing or 1)
        async with running(plan.managers[0], where) as manager:
            await manager.ready()
            await _populate(plan, manager, jobs)
        for entrant in plan.managers:
            async with running(entrant, where) as manager:
                await manager.ready()
                await manager.within(plan.patience, manager.settled(plan.quiet))
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


async def _populate(plan: Plan, manager: Manager, jobs: Sequence[str]) -> None:
    """Create TrainJobs in states as in a used cluster: a quarter suspended, a quarter running, and half complete."""
    where = manager.cluster
    await create(plan, manager, jobs[::4], suspend=True)
    if others := [job for at, job in enumerate(jobs) if at % 4]:
        await create(plan, manager, others)
    through = [job for at, job in enumerate(jobs) if at % 4 > 1]
    await api.each(through, where.api.patching(objects.JOB_SETS + "/{}/status", objects.completed()))
    await manager.within(plan.patience, manager.settled(plan.quiet))
