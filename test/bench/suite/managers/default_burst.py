# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A burst of TrainJobs with a Configuration without ``clientConnection``: each manager limits its requests by default.

The other workloads set limits that no manager reaches.
"""

from __future__ import annotations

from harness import contest, figures, objects
from harness.cluster import Cluster
from harness.contest import Found
from harness.manager import started
from harness.plan import Entrant, Plan
from managers import burst


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""

    async def one(entrant: Entrant) -> Found:
        found, count = Found(), max(plan.sizes.jobs)
        async with started(entrant, where, limits=None) as manager, manager.asked():
            await manager.settled(plan.quiet)
            await burst.measure(plan, manager, found, objects.TORCH, count)
        return found

    return contest.combine("default_burst", await contest.contest(plan.rounds, plan.managers, one))
