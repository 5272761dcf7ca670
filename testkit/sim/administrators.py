# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Administrators, who change runtimes and nodes."""

from __future__ import annotations

import random
from typing import Any

import anyio
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import errors
from controller_runtime.simtest import Simulation

from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.sim import runtimes
from testkit.sim.cluster import Cluster
from testkit.sim.objects import by_name, is_deleted, refusals_expected

Document = dict[str, Any]


class Administrators:
    """Administrators of runtimes and nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = 0
        self.lost: dict[str, float] = {}
        """The times at which runtimes were last deleted by force, by name."""

    def register(self, sim: Simulation) -> None:
        """Register the administrators' actions with the simulation."""
        sim.actor(self._begin, "begin")
        sim.action(lambda sim, _: self.install(sim), times=4, name="install")
        sim.action(self.edit_runtime, times=4)
        sim.action(self.delete_runtime, times=2)
        sim.action(self.lose_runtime, times=0.5)
        sim.action(self._cluster.nodes.lose, times=1.5, name="lose_node")
        sim.action(self._cluster.kueue.evict, times=2, name="evict")

    async def _begin(self, sim: Simulation) -> None:
        """Install all runtimes, as soon as a webhook answers."""
        await self._settle_elsewhere(sim)
        kinds = {runtimes.kind_of(name) for name in runtimes.NAMES}
        while sum(len(sim.server.objects(kind)) for kind in kinds) < len(runtimes.NAMES) + 1:
            await self.install(sim)
            await anyio.sleep(1.0)

    @staticmethod
    async def _settle_elsewhere(sim: Simulation) -> None:
        """Give another namespace a runtime of a known name, and a suspended TrainJob that refers to it."""
        admin, spec = sim.client("admin"), {"runtimeRef": runtimes.reference_to("local"), "suspend": True}
        spec |= {"trainer": {"image": "image:0"}, "managedBy": "trainer.kubeflow.org/trainjob-controller"}
        runtime = runtimes.runtime("local").to_dict()
        runtime["metadata"]["namespace"] = "other"
        job = {"metadata": {"namespace": "other", "name": "far"}, "spec": spec}
        await admin.create(Namespace.from_dict({"metadata": {"name": "other"}}))
        for made in (TrainingRuntime.from_dict(runtime), TrainJob.from_dict(job)):
            while by_name(sim, type(made), made.to_dict()) is None:
                with refusals_expected():
                    await admin.create(made)
                await anyio.sleep(1.0)

    async def strip_runtime(self, sim: Simulation, rng: random.Random) -> None:
        """Remove the finalizers of a runtime, as a person does.

        If the runtime is in use, the manager adds its own finalizer again.
        """
        found = runtimes.runtime(rng.choice(runtimes.NAMES))
        stored = by_name(sim, type(found), found.to_dict())
        if stored is None or is_deleted(stored):
            return
        self.lost[found.name] = sim.loop.time()
        with refusals_expected():
            none = raw_patch(MERGE, b'{"metadata":{"finalizers":null}}')
            await sim.client("admin").patch(found, none)

    async def install(self, sim: Simulation) -> None:
        """Create the runtimes that are missing."""
        for name in runtimes.NAMES:
            found = runtimes.runtime(name)
            if by_name(sim, type(found), found.to_dict()) is None:
                with refusals_expected(errors.ForbiddenError):
                    await sim.client("admin").create(found)

    async def edit_runtime(self, sim: Simulation, rng: random.Random) -> None:
        """Set or remove the environment of the last job's container, and sometimes change the number of nodes."""
        self._version += 1
        found = runtimes.runtime(rng.choice(runtimes.NAMES))
        with refusals_expected():
            document = (await sim.client("admin").get(type(found), found.key)).to_dict()
            job = document["spec"]["template"]["spec"]["replicatedJobs"][-1]
            container = job["template"]["spec"]["template"]["spec"]["containers"][0]
            container["env"] = [{"name": "VERSION", "value": str(self._version)}]
            if rng.random() < 0.4:
                del container["env"]
            if rng.random() < 0.3:
                document["spec"]["mlPolicy"]["numNodes"] = rng.choice([1, 2])
            await sim.client("admin").update(type(found).from_dict(document))

    async def delete_runtime(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a runtime. It continues to exist as long as TrainJobs refer to it."""
        found = runtimes.runtime(rng.choice(runtimes.NAMES))
        with refusals_expected():
            await sim.client("admin").delete(found)

    async def lose_runtime(
        self, sim: Simulation, rng: random.Random, name: str = "", seconds: float = 0.0
    ) -> None:
        """Delete a runtime by force, even if TrainJobs refer to it, and install it again later."""
        found = runtimes.runtime(name or rng.choice(runtimes.NAMES))
        self.lost[found.name] = sim.loop.time()
        with refusals_expected():
            none = raw_patch(MERGE, b'{"metadata":{"finalizers":null}}')
            await sim.client("admin").patch(found, none)
            await sim.client("admin").delete(found)
        await anyio.sleep(seconds or rng.uniform(1, 20))
        await self.install(sim)
        self.lost[found.name] = sim.loop.time()

    async def retire_runtime(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a runtime, and then all TrainJobs that refer to it."""
        found = runtimes.runtime(rng.choice(runtimes.NAMES))
        with refusals_expected():
            await sim.client("admin").delete(found)
        for job in sim.server.objects(TrainJob):
            if job["spec"]["runtimeRef"]["name"] == found.name and job["metadata"]["namespace"] == "default":
                await anyio.sleep(rng.random())
                with refusals_expected():
                    await sim.client().delete(TrainJob.from_dict(job), propagation="Background")
