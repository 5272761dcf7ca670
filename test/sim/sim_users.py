# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Users, who change TrainJobs and their children, and administrators, who change runtimes and nodes."""

from __future__ import annotations

import random
from typing import Any

import anyio
import msgspec
import sim_runtimes as runtimes
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.simtest import Simulation
from sim_kueue import QUEUE_LABEL, is_queued
from sim_objects import PROPAGATIONS, by_name, controller, refusals_expected
from sim_world import Cluster

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob

Document = dict[str, Any]
OURS = "trainer.kubeflow.org/trainjob-controller"
OTHERS = "kueue.x-k8s.io/multikueue"
_RUNTIMES = ("plain", "local", "gang", "gang", "mpi", "mpi", "initialized")
_FOREIGN: Document = {
    "replicatedJobs": [
        {
            "name": "other",
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
        }
    ],
    "suspend": True,
}


class Users:
    """Users of TrainJobs. Names are few, so that they are used again."""

    def __init__(self, names: int = 6) -> None:
        self._names = [*(f"job-{number}" for number in range(names)), "queued-0", "queued-1"]
        self._version = 0

    def register(self, sim: Simulation) -> None:
        """Have them work."""
        sim.action(self.create, times=12)
        sim.action(self.edit, times=8)
        sim.action(self.suspend, times=6)
        sim.action(self.resume, times=10)
        sim.action(self.delete, times=4)
        sim.action(self.delete_child, times=3)
        sim.action(self.delete_pod, times=2)
        sim.action(self.obstruct, times=1)
        sim.action(self.clear, times=1)

    def _image(self) -> str:
        self._version += 1
        return f"image:{self._version}"

    async def create(self, sim: Simulation, rng: random.Random) -> None:
        """Create a TrainJob; those of the queue are suspended by Kueue's webhook."""
        name = rng.choice(self._names)
        queued = name.startswith("queued-")
        trainer: Document = {"image": self._image(), "numNodes": rng.choice([1, 1, 2])}
        spec: Document = {
            "runtimeRef": runtimes.reference_to(rng.choice(_RUNTIMES)),
            "trainer": trainer,
            "suspend": queued or rng.random() < 0.4,
            "managedBy": OTHERS if rng.random() < 0.05 else OURS,
        }
        labels = {QUEUE_LABEL: "main"} if queued else {}
        metadata: Document = {"namespace": "default", "name": name, "labels": labels}
        with refusals_expected():
            await sim.client().create(TrainJob.from_dict({"metadata": metadata, "spec": spec}))

    def _pick(self, sim: Simulation, rng: random.Random) -> TrainJob | None:
        """Return one of the users' TrainJobs, as far as they are theirs to change."""
        found = [each for each in sim.server.objects(TrainJob) if not is_queued(each)]
        return TrainJob.from_dict(rng.choice(found)) if found else None

    async def _patch(self, sim: Simulation, rng: random.Random, spec: Document) -> None:
        job = self._pick(sim, rng)
        if job is not None:
            with refusals_expected():
                await sim.client().patch(job, raw_patch(MERGE, msgspec.json.encode({"spec": spec})))

    async def edit(self, sim: Simulation, rng: random.Random) -> None:
        """Change the trainer, or set or remove labels."""
        if rng.random() < 0.2:
            await self._patch(sim, rng, {"labels": rng.choice([None, {"team": "a"}, {"team": "b"}])})
        else:
            await self._patch(sim, rng, self._trainer(rng))

    def _trainer(self, rng: random.Random) -> Document:
        nodes = {"numNodes": rng.choice([1, 2, 3])} if rng.random() < 0.5 else {}
        return {"trainer": {"image": self._image(), **nodes}}

    async def suspend(self, sim: Simulation, rng: random.Random) -> None:
        """Suspend, some with another trainer."""
        trainer = self._trainer(rng) if rng.random() < 0.4 else {}
        await self._patch(sim, rng, {"suspend": True, **trainer})

    async def resume(self, sim: Simulation, rng: random.Random) -> None:
        """Resume, some with another trainer."""
        trainer = self._trainer(rng) if rng.random() < 0.3 else {}
        await self._patch(sim, rng, {"suspend": False, **trainer})

    async def delete(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a TrainJob; some create it again at once."""
        names = [each["metadata"]["name"] for each in sim.server.objects(TrainJob)] or self._names
        key = {"metadata": {"namespace": "default", "name": rng.choice(names)}}
        propagation = rng.choice([None, *PROPAGATIONS])
        with refusals_expected():
            grace = rng.choice([None, 0])
            await sim.client().delete(
                TrainJob.from_dict(key), propagation=propagation, grace_period_seconds=grace
            )
            if rng.random() < 0.5:
                await self.create(sim, rng)

    async def delete_child(self, sim: Simulation, rng: random.Random) -> None:
        """Delete something that the manager made."""
        kinds: list[type[Object]] = [JobSet, ConfigMap, Secret, PodGroup]
        kind = rng.choice(kinds)
        found = [each for each in sim.server.objects(kind) if controller(each)]
        if found:
            with refusals_expected():
                await sim.client().delete(kind.from_dict(rng.choice(found)), propagation="Foreground")

    async def delete_pod(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a pod by force."""
        if found := sim.server.objects(Pod):
            with refusals_expected():
                await sim.client().delete(Pod.from_dict(rng.choice(found)), grace_period_seconds=0)

    async def obstruct(self, sim: Simulation, rng: random.Random) -> None:
        """Create a JobSet of another purpose under a TrainJob's name."""
        metadata = {"namespace": "default", "name": rng.choice(self._names)}
        with refusals_expected():
            await sim.client().create(JobSet.from_dict({"metadata": metadata, "spec": _FOREIGN}))

    async def clear(self, sim: Simulation, _: random.Random) -> None:
        """Delete JobSets that no TrainJob controls."""
        for job_set in sim.server.objects(JobSet):
            if controller(job_set) is None:
                with refusals_expected():
                    await sim.client().delete(JobSet.from_dict(job_set), propagation="Foreground")


class Administrators:
    """Administrators of runtimes and nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = 0

    def register(self, sim: Simulation) -> None:
        """Have them work."""
        sim.actor(self._begin, "begin")
        sim.action(lambda sim, _: self.install(sim), times=4, name="install")
        sim.action(self.edit_runtime, times=4)
        sim.action(self.delete_runtime, times=2)
        sim.action(self._cluster.nodes.lose, times=1.5, name="lose_node")
        sim.action(self._cluster.kueue.evict, times=2, name="evict")

    async def _begin(self, sim: Simulation) -> None:
        """Install all runtimes, as soon as a webhook answers."""
        kinds = {runtimes.kind_of(name) for name in runtimes.NAMES}
        while sum(len(sim.server.objects(kind)) for kind in kinds) < len(runtimes.NAMES):
            await self.install(sim)
            await anyio.sleep(1.0)

    async def install(self, sim: Simulation) -> None:
        """Create the runtimes that are missing."""
        for name in runtimes.NAMES:
            found = runtimes.runtime(name)
            if by_name(sim, type(found), found.to_dict()) is None:
                with refusals_expected(errors.ForbiddenError):
                    await sim.client("admin").create(found)

    async def edit_runtime(self, sim: Simulation, rng: random.Random) -> None:
        """Set or remove the environment of the last job's container."""
        self._version += 1
        found = runtimes.runtime(rng.choice(runtimes.NAMES))
        with refusals_expected():
            document = (await sim.client("admin").get(type(found), found.key)).to_dict()
            job = document["spec"]["template"]["spec"]["replicatedJobs"][-1]
            container = job["template"]["spec"]["template"]["spec"]["containers"][0]
            container["env"] = [{"name": "VERSION", "value": str(self._version)}]
            if rng.random() < 0.4:
                del container["env"]
            await sim.client("admin").update(type(found).from_dict(document))

    async def delete_runtime(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a runtime; it stays as long as TrainJobs refer to it."""
        found = runtimes.runtime(rng.choice(runtimes.NAMES))
        with refusals_expected():
            await sim.client("admin").delete(found)
