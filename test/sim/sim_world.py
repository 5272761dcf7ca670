# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The other controllers of the cluster; the seed determines their speed."""

from __future__ import annotations

import random

import anyio
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.history import Event
from sim_jobs import Jobs, Nodes
from sim_jobset import JobSets
from sim_kueue import Kueue


class Cluster:
    """The controllers beside ours."""

    def __init__(self, pods_fail: float = 0.1) -> None:
        self.nodes = Nodes(pods_fail)
        self.kueue = Kueue()

    async def run(self, sim: Simulation) -> None:
        """Run the controllers in random order whenever an object has changed."""
        rng = random.Random(f"{sim.seed}/cluster")
        sim.server.history.listeners.append(self._note)
        nodes = self.nodes
        steps = [JobSets().step, Jobs().step, nodes.schedule, nodes.run_pods, self.kueue.step, _garbage]
        while True:
            with anyio.move_on_at(nodes.next_due()):
                await nodes.changed.wait()
            await anyio.sleep(rng.uniform(0.1, 1.6))
            nodes.changed.clear()
            for step in rng.sample(steps, len(steps)):
                await step(sim, rng)
            if self.kueue.waits:
                nodes.changed.set()

    def _note(self, event: Event) -> None:
        if event.table.facts.gvk.kind not in ("Lease", "Event"):
            self.nodes.changed.set()


async def _garbage(sim: Simulation, _: random.Random) -> None:
    sim.server.collect_garbage()
