# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Drift: a label of the manager is overwritten on all JobSets of suspended TrainJobs, until all are restored."""

from __future__ import annotations

import time

from harness import api, contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found, phase
from harness.manager import started
from harness.plan import Entrant, Plan
from harness.steps import create

_MARK = "bench/overwritten"


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found, jobs = Found(), objects.names("drift", plan.sizes.few)
        overwritten = {
            "metadata": {"labels": {objects.OWNED_LABEL: "somebody-else"}, "annotations": {_MARK: "1"}}
        }

        overwrite = where.api.patching(objects.JOB_SETS + "/{}", overwritten, fieldManager="somebody-else")
        async with started(entrant, where) as manager:
            await create(plan, manager, jobs, suspend=True)
            await manager.settled(plan.quiet)
            async with (
                phase(found, "torch", manager, len(jobs)),
                where.api.watching(
                    objects.JOB_SETS,
                    jobs,
                    lambda job: _MARK in job.metadata.annotations and objects.restored(job.metadata.labels),
                ) as watch,
            ):
                begin = time.perf_counter()
                done = await api.each(jobs, overwrite)
                seen = await manager.within(plan.patience, watch.all())
                await manager.settled(plan.quiet)
        found.add("torch.rate", len(jobs) / (max(seen.values()) - begin), "TrainJobs/s")
        found.latencies("torch", (seen[job] - done[job].at for job in jobs))
        return found

    return contest.combine("drift", await contest.contest(plan.rounds, plan.managers, one))
