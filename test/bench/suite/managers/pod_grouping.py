# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pod grouping: a burst, pods one after another, changes of their status, a restart, and a start without groups.

Each workload has twenty pods: of a Deployment, a Job, a TrainJob or a StatefulSet, or pods without owners. ``podgroups``
must be equal for all programs. Otherwise one of them groups differently, and the other figures cannot be compared.
"""

from __future__ import annotations

import dataclasses

import anyio
from harness import api, contest, figures, groups, objects
from harness.cluster import Cluster, empty
from harness.contest import Found, phase
from harness.manager import Manager, running
from harness.plan import Entrant, Plan

_RATE = 20.0


async def run(plan: Plan, where: Cluster) -> list[figures.Figure]:
    """Measure on a dedicated API server."""
    patient = dataclasses.replace(plan, patience=plan.patience + plan.sizes.pods / 20)

    async def one(entrant: Entrant) -> Found:
        await empty(where)
        return await _Run(patient, where, entrant).measure()

    return contest.combine("pod_grouping", await contest.contest(plan.rounds, plan.groupers, one))


class _Run:
    """The measurement of one program; at first, no pod has a group."""

    def __init__(self, plan: Plan, where: Cluster, entrant: Entrant) -> None:
        self._plan = plan
        self._where = where
        self._entrant = entrant
        self._found = Found()

    async def measure(self) -> Found:
        """Measure, and return the figures."""
        count = self._plan.sizes.pods
        make = self._where.api
        burst = await groups.make_workloads(make, "burst", count)
        some = min(groups.PER_WORKLOAD * 10, count)
        paced = await groups.make_workloads(make, "paced", some)
        warm = await groups.make_workloads(make, "warm", min(groups.PER_WORKLOAD * 5, count))
        late = await groups.make_workloads(make, "zz", 3 * groups.PER_WORKLOAD)
        async with running(self._entrant, self._where, grouper=True) as grouper:
            self._found.add("idle.ready", await grouper.ready(), "s")
            await anyio.sleep(self._plan.quiet)
            self._found.memory("idle", grouper)
            await groups.create(self._plan, grouper, warm)
            await self._settled(grouper)
            _, latencies = await groups.create(self._plan, grouper, paced, rate=_RATE)
            self._found.latencies("paced", latencies)
            await self._settled(grouper)
            await self._burst(grouper, burst)
            await self._churn(grouper, burst)
        every = {**warm, **paced, **burst}
        await self._restart(every, *late.popitem())
        await self._cold(every)
        return self._found

    async def _settled(self, grouper: Manager) -> float:
        return await grouper.within(self._plan.patience, grouper.settled(self._plan.quiet))

    async def _burst(self, grouper: Manager, pods: groups.Pods) -> None:
        count = len(pods)
        async with phase(self._found, "burst", grouper, count, "pod"):
            took, latencies = await groups.create(self._plan, grouper, pods)
            await self._settled(grouper)
        self._found.add("burst.rate", count / took, "pods/s")
        self._found.latencies("burst", latencies)
        self._found.add("podgroups", await self._where.api.count(objects.POD_GROUPS), "in all")

    async def _churn(self, grouper: Manager, pods: groups.Pods) -> None:
        async with phase(self._found, "churn", grouper, len(pods), "pod"):
            await api.each(pods, self._where.api.patching(objects.PODS + "/{}/status", groups.RUNNING))
            await self._settled(grouper)

    async def _restart(self, every: groups.Pods, last: str, newcomer: bytes) -> None:
        """Measure a start when all pods have groups, except a new pod, which is listed last."""
        async with (
            groups.watching(self._where.api, [last]) as watch,
            running(self._entrant, self._where, grouper=True) as grouper,
            phase(self._found, "restart", grouper, len(every), "pod"),
        ):
            await self._where.api.send("POST", objects.PODS, newcomer)
            self._found.add("restart.ready", await grouper.ready(), "s")
            seen = await grouper.within(self._plan.patience, watch.all())
            self._found.add("restart.new_pod", seen[last] - grouper.began, "s")
            self._found.add("restart.settled", await self._settled(grouper) - grouper.began, "s")

    async def _cold(self, every: groups.Pods) -> None:
        """Measure a start when no pod has a group and no group exists."""
        await self._where.api.wipe(objects.POD_GROUPS)
        await api.each(every, self._where.api.patching(objects.PODS + "/{}", groups.STRIPPED))
        async with (
            groups.watching(self._where.api, every) as watch,
            running(self._entrant, self._where, grouper=True) as grouper,
            phase(self._found, "cold_start", grouper, len(every), "pod"),
        ):
            seen = await grouper.within(self._plan.patience, watch.all())
            took = max(seen.values()) - grouper.began
            self._found.add("cold_start.rate", len(every) / took, "pods/s")
            self._found.add("cold_start.first", min(seen.values()) - grouper.began, "s")
            self._found.add("cold_start.settled", await self._settled(grouper) - grouper.began, "s")
