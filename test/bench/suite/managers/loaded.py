# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Memory of a start in a full cluster: unrelated Secrets of 32 KiB, and pods that have their groups.

``cold_start`` measures a start with TrainJobs. A few MPI TrainJobs exist, so that a manager that reads Secrets for them
does so.
"""

from __future__ import annotations

from functools import partial

from harness import api, contest, figures, groups, objects
from harness.cluster import Cluster, empty
from harness.contest import Found, phase
from harness.manager import running
from harness.plan import Entrant, Plan
from harness.steps import create, preload


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""
    await empty(where)
    made = await _secrets(plan, where)
    await empty(where)
    return [*made, *await _pods(plan, where)]


async def _secrets(plan: Plan, where: Cluster) -> list[figures.Figure]:
    count = plan.sizes.secrets
    await preload(
        plan,
        where,
        plan.managers,
        lambda manager: create(plan, manager, objects.names("mpi", 2), objects.MPI),
    )
    await api.each(objects.names("secret", count), where.api.posting(objects.OTHER_SECRETS, objects.secret))
    one = partial(_start, plan, where, grouper=False)
    return contest.combine(f"loaded.secrets.{count}", await contest.contest(plan.rounds, plan.managers, one))


async def _pods(plan: Plan, where: Cluster) -> list[figures.Figure]:
    count = plan.sizes.loaded_pods
    pods = await groups.make_workloads(where.api, "pod", count)
    for number, entrant in enumerate(plan.groupers):
        async with running(entrant, where, grouper=True) as grouper:
            await grouper.ready()
            if number == 0:
                await groups.create(plan, grouper, pods)
            await grouper.within(plan.patience, grouper.settled(plan.quiet))
    one = partial(_start, plan, where, grouper=True)
    return contest.combine(f"loaded.pods.{count}", await contest.contest(plan.rounds, plan.groupers, one))


async def _start(plan: Plan, where: Cluster, entrant: Entrant, *, grouper: bool) -> Found:
    found = Found()
    async with running(entrant, where, grouper=grouper) as manager, phase(found, "start", manager):
        found.add("ready", await manager.ready(), "s")
        last = await manager.within(plan.patience, manager.settled(plan.quiet))
        found.add("settled", last - manager.began, "s")
    return found
