# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Users, who change TrainJobs and their children."""

from __future__ import annotations

import random
from typing import Any

import anyio
import msgspec
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim import runtimes
from testkit.sim.kueue import QUEUE_LABEL, is_queued, queued_spec
from testkit.sim.objects import PROPAGATIONS, by_name, controller, is_deleted, is_true, refusals_expected
from testkit.sim.webhook import FOREIGN, PURPOSE

Document = dict[str, Any]
OURS = "trainer.kubeflow.org/trainjob-controller"
OTHERS = "kueue.x-k8s.io/multikueue"
_RUNTIMES = ("plain", "local", "gang", "gang", "mpi", "mpi", "initialized")
AUDITED = "example.com/Audited"
"""A condition of another writer."""
UNKNOWN = "unknown"
"""The name of a replicated job that no runtime has."""
_HOLD = "example.com/hold"


class Users:
    """Users of TrainJobs. There are only a few names, so that they are reused."""

    def __init__(self, names: int = 6) -> None:
        self._names = [*(f"job-{number}" for number in range(names)), "queued-0", "queued-1"]
        self._version = 0

    def register(self, sim: Simulation) -> None:
        """Register the users' actions with the simulation."""
        sim.action(self.create, times=12)
        sim.action(self.edit, times=8)
        sim.action(self.spoil, times=2)
        sim.action(self.suspend, times=6)
        sim.action(self.resume, times=10)
        sim.action(self.delete, times=4)
        sim.action(self.delete_child, times=3)
        sim.action(self.delete_pod, times=2)
        sim.action(self.obstruct, times=1.5)
        sim.action(self.hold_child, times=2)
        sim.action(self.annotate_status, times=2)
        sim.action(self.clear, times=1)

    def _image(self) -> str:
        self._version += 1
        return f"image:{self._version}"

    def pick_names(self, rng: random.Random, count: int) -> list[str]:
        """Return names of TrainJobs that Kueue does not manage."""
        return rng.sample([name for name in self._names if not name.startswith("queued-")], count)

    async def create(
        self, sim: Simulation, rng: random.Random, name: str = "", runtime: str = "", **fixed: Any
    ) -> None:
        """Create a TrainJob with random fields and the ``fixed`` ones; TrainJobs of Kueue's queue start suspended."""
        name = name or rng.choice(self._names)
        queued = name.startswith("queued-")
        trainer: Document = {"image": self._image()}
        if rng.random() < 0.8:
            trainer["numNodes"] = rng.choice([1, 1, 2])
        spec: Document = {
            "runtimeRef": runtimes.reference_to(runtime or rng.choice(_RUNTIMES)),
            "trainer": trainer,
            "suspend": rng.random() < 0.4,
            "managedBy": OTHERS if rng.random() < 0.05 else OURS,
            **(queued_spec(rng) if queued else {}),
        }
        if rng.random() < 0.2:
            spec["activeDeadlineSeconds"] = rng.choice([20, 90, 240])
        if fixed:
            spec = {**spec, "managedBy": OURS, "activeDeadlineSeconds": None, **fixed}
        labels = {QUEUE_LABEL: "main"} if queued else {}
        metadata: Document = {"namespace": "default", "name": name, "labels": labels}
        with refusals_expected():
            await sim.client().create(TrainJob.from_dict({"metadata": metadata, "spec": spec}))

    def _pick(self, sim: Simulation, rng: random.Random, name: str) -> TrainJob | None:
        """Return a random TrainJob that Kueue does not manage, or the one of that name; None if there is none.

        In most cases, finished TrainJobs are not considered.
        """
        jobs = [each for each in sim.server.objects(TrainJob) if each["metadata"]["namespace"] == "default"]
        found = [each for each in jobs if not is_queued(each)]
        if name:
            found = [each for each in found if each["metadata"]["name"] == name]
        if rng.random() < 0.8:
            found = [each for each in found if not (is_true(each, "Complete") or is_true(each, "Failed"))]
        return TrainJob.from_dict(rng.choice(found)) if found else None

    async def change(self, sim: Simulation, rng: random.Random, name: str, spec: Document) -> None:
        """Patch the spec of a TrainJob."""
        job = self._pick(sim, rng, name)
        if job is not None:
            with refusals_expected():
                await sim.client().patch(job, raw_patch(MERGE, msgspec.json.encode({"spec": spec})))

    async def edit(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Change the trainer, or set or remove labels."""
        if rng.random() < 0.3:
            await self.change(sim, rng, name, {"labels": rng.choice([None, {"team": "a"}, {"team": "b"}])})
        else:
            await self.change(sim, rng, name, self.trainer(rng))

    async def spoil(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Try to set an override for a job that no runtime has; the webhook must deny it."""
        await self.change(sim, rng, name, {"podTemplateOverrides": [{"targetJobs": [{"name": UNKNOWN}]}]})

    def trainer(self, rng: random.Random) -> Document:
        """Return a change of the trainer: another image, and sometimes another number of nodes."""
        nodes = {"numNodes": rng.choice([1, 2, 3])} if rng.random() < 0.5 else {}
        return {"trainer": {"image": self._image(), **nodes}}

    async def suspend(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Suspend a TrainJob, and sometimes change its trainer in the same write."""
        trainer = self.trainer(rng) if rng.random() < 0.4 else {}
        await self.change(sim, rng, name, {"suspend": True, **trainer})

    async def resume(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Resume a TrainJob, and sometimes change its trainer in the same write."""
        trainer = self.trainer(rng) if rng.random() < 0.3 else {}
        await self.change(sim, rng, name, {"suspend": False, **trainer})

    async def delete(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Delete a TrainJob, and sometimes create another one at once."""
        names = [each["metadata"]["name"] for each in sim.server.objects(TrainJob)] or self._names
        key = {"metadata": {"namespace": "default", "name": name or rng.choice(names)}}
        propagation = rng.choice([None, *PROPAGATIONS])
        with refusals_expected():
            grace = rng.choice([None, 0])
            await sim.client().delete(
                TrainJob.from_dict(key), propagation=propagation, grace_period_seconds=grace
            )
            if rng.random() < 0.5:
                await self.create(sim, rng)

    async def replace(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete a TrainJob, and create it again at once or later."""
        key = TrainJob.from_dict({"metadata": {"namespace": "default", "name": name}})
        with refusals_expected():
            await sim.client().delete(key, propagation=rng.choice([None, *PROPAGATIONS]))
        await anyio.sleep(rng.choice([0.0, 1.0, 10.0]) * rng.random())
        await self.create(sim, rng, name)

    async def annotate_status(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Add a condition, as another controller does."""
        job = self._pick(sim, rng, name)
        if job is None or job.spec.managed_by == OTHERS:
            return
        status = job.to_dict().get("status", {})
        status["conditions"] = [each for each in status.get("conditions") or [] if each["type"] != AUDITED]
        changed = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Audit", "message": self._image()}
        status["conditions"].append({"type": AUDITED, "status": "True", **changed})
        with refusals_expected():
            await sim.client("auditor").status.update(TrainJob.from_dict({**job.to_dict(), "status": status}))

    async def hold_child(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a child of a TrainJob, with a finalizer that keeps it for a while."""
        kinds: list[type[Object]] = [JobSet, ConfigMap, Secret, PodGroup]
        kind = rng.choice(kinds)
        found = [each for each in sim.server.objects(kind) if controller(each) and not is_deleted(each)]
        if not found:
            return
        child = kind.from_dict(rng.choice(found))
        with refusals_expected():
            await self._hold(sim, child, [_HOLD])
            # JobSet's controller finds its Jobs by the name of their owner: they must be deleted before the next JobSet
            # is created.
            await sim.client().delete(child, propagation="Foreground")
            await anyio.sleep(rng.uniform(0.0, 10.0))
            await self._hold(sim, child, [])

    async def _hold(self, sim: Simulation, child: Object, hold: list[str]) -> None:
        """Set our finalizer beside those of others, or remove it if ``hold`` is empty."""
        found = await sim.client().get(type(child), child.key)
        others = [each for each in found.metadata.finalizers or () if each != _HOLD]
        body = msgspec.json.encode({"metadata": {"finalizers": [*others, *hold]}})
        await sim.client().patch(child, raw_patch(MERGE, body))

    async def delete_child(self, sim: Simulation, rng: random.Random) -> None:
        """Delete an object that the manager created."""
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

    async def obstruct(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Create an object of another purpose that has the name of an existing or future child of a TrainJob."""
        name = name or rng.choice(self._names)
        job = by_name(sim, TrainJob, {"metadata": {"namespace": "default", "name": name}})
        runtime = rng.choice(_RUNTIMES) if job is None else job["spec"]["runtimeRef"]["name"]
        await self._block(sim, rng, name, runtime)

    async def create_obstructed(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete a TrainJob, and create it again together with an object of another purpose that has a child's name."""
        key = TrainJob.from_dict({"metadata": {"namespace": "default", "name": name}})
        with refusals_expected():
            await sim.client().delete(key, propagation="Background")
        await anyio.sleep(rng.choice([0.0, 10.0]) * rng.random())
        runtime = rng.choice(_RUNTIMES)
        async with anyio.create_task_group() as group:
            group.start_soon(self._block, sim, rng, name, runtime)
            await anyio.sleep(rng.choice([0.0, 0.05]) * rng.random())
            await self.create(sim, rng, name, runtime)

    async def _block(self, sim: Simulation, rng: random.Random, name: str, runtime: str) -> None:
        kinds = runtimes.children_of(runtime)
        kind = rng.choice([each for each in FOREIGN if each.gvk.kind in kinds])
        suffix, content = FOREIGN[kind]
        metadata = {"namespace": "default", "name": name + suffix, "labels": {PURPOSE: "other"}}
        with refusals_expected():
            await sim.client().create(kind.from_dict({"metadata": metadata, **content}))

    async def clear(self, sim: Simulation, rng: random.Random) -> None:
        """Delete JobSets that no TrainJob controls, and most of the other obstacles."""
        for kind in FOREIGN:
            for each in sim.server.objects(kind):
                if controller(each) is None and (kind is JobSet or rng.random() < 0.7):
                    with refusals_expected():
                        await sim.client().delete(kind.from_dict(each), propagation="Foreground")
