# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Administrators of a cluster with a pod grouper: they assign queues to groups, and take permissions away."""

from __future__ import annotations

import random

import anyio
import msgspec
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.history import Event
from controller_runtime.simtest.server import MANAGER
from sim_objects import refusals_expected
from sim_workloads import OWNERS

from pkg.apis.kai.v2alpha2 import PodGroup


class Stewards:
    """The administrators, and the rule that a group stays in the queue that was assigned to it."""

    def __init__(self, sim: Simulation) -> None:
        self.queues: dict[str, str] = {}
        """By uid, the queues that were assigned to groups."""
        sim.action(self.requeue, times=2)
        sim.action(self.revoke, times=1)
        sim.on_change(self.see)

    async def requeue(self, sim: Simulation, rng: random.Random) -> None:
        """Move a group to another queue, as an assigner of queues does."""
        if found := sim.server.objects(PodGroup):
            group = rng.choice(found)
            self.queues[group["metadata"]["uid"]] = queue = rng.choice(["a", "b", "c"])
            with refusals_expected():
                body = msgspec.json.encode({"spec": {"queue": queue}})
                await sim.client().patch(PodGroup.from_dict(group), raw_patch(MERGE, body))

    def see(self, event: Event) -> None:
        """Check that a group stays in the queue that was assigned to it."""
        assigned = self.queues.get(event.document["metadata"]["uid"])
        before = event.before["spec"].get("queue") if event.before and assigned else None
        if before == assigned is not None:
            assert event.document["spec"].get("queue") == assigned, (
                f"a group was moved back: {event.key.name}"
            )

    async def revoke(self, sim: Simulation, rng: random.Random) -> None:
        """Take the permission to read a kind of owners away, while the states of pods change."""
        table = sim.server.table(rng.choice(OWNERS))
        entry = (MANAGER, "*", str(table.resource.group_resource))
        sim.server.denied.add(entry)
        sim.server.watches.cut(lambda watch: watch.table is table)
        for _ in range(3):
            await anyio.sleep(rng.uniform(1.0, 5.0))
            body = msgspec.json.encode({"metadata": {"annotations": {"example.com/seen": str(rng.random())}}})
            for pod in sim.server.objects(Pod):
                with refusals_expected():
                    await sim.client().patch(Pod.from_dict(pod), raw_patch(MERGE, body))
        sim.server.denied.discard(entry)
