# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of runtimes: people who delete and edit them, and the rules for the manager, which writes them."""

from __future__ import annotations

import random
from typing import Any

import anyio
import yaml
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.simtest import Event, Simulation

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.objects import by_name, by_uid, controller, is_deleted, is_true, refusals_expected
from testkit.sim.renders import without_empty
from testkit.sim.spechistory import SpecHistory

Document = dict[str, Any]
_SUFFIX = "-runtime-snapshot"
_STALEST = 90.0
"""Seconds for which a manager may not know of a change: no fault lasts longer."""
_SPOILED = "["
_SOON = 30.0
"""Seconds after which a deleted snapshot must exist again."""


class Snapshots:
    """The snapshots of one life: the people's actions, and the rules."""

    def __init__(self, sim: Simulation, past: SpecHistory) -> None:
        self._sim = sim
        self._past = past
        self._runtimes: dict[str, list[Document]] = {}
        """The runtimes that each TrainJob's snapshot has contained, by the TrainJob's uid."""
        self._version = 0

    def register(self) -> None:
        """Register the people's actions with the simulation."""
        self._sim.action(self.delete_snapshot, times=4)
        self._sim.action(self.edit_snapshot, times=4)
        self._sim.action(self.spoil_snapshot, times=1)

    def see(self, event: Event) -> None:
        """Check that a new snapshot has a runtime that an earlier snapshot had, or that was current recently."""
        found = _runtime(event.document)
        if found is None or event.type == "DELETED":
            return
        uid, spec = (controller(event.document) or {}).get("uid", ""), without_empty(found["spec"])
        before = self._runtimes.setdefault(uid, [])
        job = by_uid(self._sim, TrainJob, uid)
        if event.before is None and job is not None:
            wanted = [*before, *self._past.runtime(job, within=_STALEST)]
            assert spec in [without_empty(each["spec"]) for each in wanted], (
                f"a snapshot contains another runtime: {event.document['metadata']['name']}"
            )
        before.append(found)

    def runtimes(self, job: Document) -> list[Document]:
        """Return the runtimes that a TrainJob's snapshot contained, newest first."""
        return self._runtimes.get(job["metadata"]["uid"], [])[::-1]

    def check(self, sim: Simulation, job: Document) -> None:
        """Check that a TrainJob has a snapshot and controls it."""
        metadata = {**job["metadata"], "name": job["metadata"]["name"] + _SUFFIX}
        found = by_name(sim, ConfigMap, {"metadata": metadata})
        assert found is not None, f"a TrainJob has no snapshot: {job['metadata']['name']}"
        assert (controller(found) or {}).get("uid") == job["metadata"]["uid"]

    async def check_return(self, sim: Simulation) -> None:
        """Check that snapshots that are deleted while the manager runs come back with the same content."""
        for before in self._found():
            uid = (controller(before) or {}).get("uid", "")
            if (job := by_uid(sim, TrainJob, uid)) is None or _has_ended(job):
                continue
            await sim.client().delete(ConfigMap.from_dict(before))
            await anyio.sleep(_SOON)
            if (job := by_uid(sim, TrainJob, uid)) is None or _has_ended(job):
                continue
            self.check(sim, job)
            now = _runtime(by_name(sim, ConfigMap, before) or {})
            assert without_empty(now) == without_empty(_runtime(before)), (
                f"a snapshot comes back with another runtime: {job['metadata']['name']}"
            )

    async def delete_snapshot(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a snapshot."""
        if (found := self._pick(rng)) is not None:
            with refusals_expected():
                await sim.client().delete(ConfigMap.from_dict(found))

    async def edit_snapshot(self, sim: Simulation, rng: random.Random) -> None:
        """Set the environment of the last job's container in a snapshot."""
        if (found := self._pick(rng)) is None or (runtime := _runtime(found)) is None:
            return
        self._version += 1
        job = runtime["spec"]["template"]["spec"]["replicatedJobs"][-1]
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "EDITED", "value": str(self._version)}]
        await self._write(sim, found, yaml.safe_dump(runtime))

    async def spoil_snapshot(self, sim: Simulation, rng: random.Random) -> None:
        """Write a text that is not a runtime into a snapshot, and delete the snapshot later."""
        if (found := self._pick(rng)) is not None:
            await self._write(sim, found, _SPOILED)
            await anyio.sleep(rng.uniform(0.0, 20.0))
            await self.mend(sim)

    async def mend(self, sim: Simulation) -> None:
        """Delete the snapshots that contain no runtime."""
        for each in self._found():
            if each["data"]["runtime"] == _SPOILED:
                with refusals_expected():
                    await sim.client().delete(ConfigMap.from_dict(each))

    @staticmethod
    async def _write(sim: Simulation, found: Document, text: str) -> None:
        with refusals_expected():
            await sim.client().update(ConfigMap.from_dict({**found, "data": {"runtime": text}}))

    def _found(self) -> list[Document]:
        found = self._sim.server.objects(ConfigMap)
        return [each for each in found if each["metadata"]["name"].endswith(_SUFFIX)]

    def _pick(self, rng: random.Random) -> Document | None:
        found = [each for each in self._found() if not is_deleted(each)]
        return rng.choice(found) if found else None


def _runtime(config_map: Document) -> Document | None:
    """Return the runtime that a snapshot contains; None for a spoiled snapshot and for another object."""
    name, data = config_map.get("metadata", {}).get("name", ""), config_map.get("data") or {}
    if not name.endswith(_SUFFIX) or data.get("runtime", _SPOILED) == _SPOILED:
        return None
    found: Document = yaml.safe_load(data["runtime"])
    return found


def _has_ended(job: Document) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed") or is_deleted(job)
