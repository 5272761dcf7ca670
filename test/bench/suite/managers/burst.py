# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bursts of TrainJobs of three runtimes: from the answer to the create until the JobSet exists.

``rate`` is measured until the last JobSet exists. The API server also calls the manager's webhook for each TrainJob.
"""

from __future__ import annotations

from harness import contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found, phase
from harness.manager import Manager, started
from harness.plan import Entrant, Plan
from harness.steps import create


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found = Found()
        async with started(entrant, where) as manager, manager.asked():
            await manager.settled(plan.quiet)
            found.memory("idle", manager)
            await _warm(plan, manager, objects.TORCH, min(plan.sizes.few, 50))
            for count in plan.sizes.jobs:
                await measure(plan, manager, found, objects.TORCH, count)
            for runtime in (objects.COSCHEDULING, objects.MPI):
                await _warm(plan, manager, runtime, 2)
                await measure(plan, manager, found, runtime, plan.sizes.few)
        return found

    return contest.combine("burst", await contest.contest(plan.rounds, plan.managers, one))


async def _warm(plan: Plan, manager: Manager, runtime: str, count: int) -> None:
    await create(plan, manager, objects.names(f"{runtime}-warm", count), runtime)
    await manager.settled(plan.quiet)


async def measure(plan: Plan, manager: Manager, found: Found, runtime: str, count: int) -> None:
    """Create ``count`` TrainJobs of a runtime; record the cost, the rate and the latencies."""
    name = f"{runtime}.{count}"
    jobs = objects.names(f"{runtime}-{count}", count)
    async with phase(found, name, manager, count):
        took, latencies = await create(plan, manager, jobs, runtime)
        await manager.settled(plan.quiet)
    found.add(f"{name}.rate", count / took, "TrainJobs/s")
    found.latencies(name, latencies)
