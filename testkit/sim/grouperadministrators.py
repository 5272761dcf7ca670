# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Administrators of a cluster with a pod grouper: they assign queues, change groups, and revoke permissions."""

from __future__ import annotations

import random
from typing import Any

import anyio
import msgspec
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.simtest import MANAGER, Event, Simulation

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from testkit.sim.objects import refusals_expected
from testkit.sim.workloads import OWNERS

Path = tuple[str, ...]
"""The names that lead to a field."""


class GrouperAdministrators:
    """The administrators, and the rule that a group keeps the queue and the other fields that others have set."""

    def __init__(self, sim: Simulation) -> None:
        self.assigned: dict[str, dict[Path, Any]] = {}
        """The fields that others wrote into groups, by the group's uid."""
        self.resized: set[str] = set()
        """Names of groups into which a person wrote another size."""
        sim.action(self.requeue, times=2)
        sim.action(self.resize, times=3)
        sim.action(self.mark, times=2)
        sim.action(self.disown, times=2)
        sim.action(self.revoke, times=1)
        sim.action(self.drop, times=2)
        sim.on_change(self.see)

    async def requeue(self, sim: Simulation, rng: random.Random) -> None:
        """Move a group to another queue, as an assigner of queues does."""
        await self._assign(sim, rng, ("spec", "queue"), rng.choice(["a", "b", "c"]))

    async def mark(self, sim: Simulation, rng: random.Random) -> None:
        """Set a field that a scheduler sets in a group, or a label or an annotation, as a person does."""
        marks: list[tuple[Path, Any]] = [
            (("spec", "markUnschedulable"), True),
            (("spec", "schedulingBackoff"), 7),
            (("metadata", "labels", "example.com/team"), "a"),
            (("metadata", "annotations", "example.com/note"), "a"),
        ]
        await self._assign(sim, rng, *rng.choice(marks))

    async def _assign(self, sim: Simulation, rng: random.Random, path: Path, value: Any) -> None:
        """Write a field that the pod grouper does not own into a group."""
        if found := sim.server.objects(PodGroup):
            group = rng.choice(found)
            self.assigned.setdefault(group["metadata"]["uid"], {})[path] = value
            for name in reversed(path):
                value = {name: value}
            with refusals_expected():
                await sim.client().patch(
                    PodGroup.from_dict(group), raw_patch(MERGE, msgspec.json.encode(value))
                )

    async def disown(self, sim: Simulation, rng: random.Random) -> None:
        """Remove a group's owner, and move a pod to another subgroup; later changes of the pods correct both."""
        groups, pods = sim.server.objects(PodGroup), sim.server.objects(Pod)
        if groups:
            with refusals_expected():
                body = b'{"metadata":{"ownerReferences":null}}'
                await sim.client().patch(PodGroup.from_dict(rng.choice(groups)), raw_patch(MERGE, body))
        marked = [each for each in pods if kai.SUB_GROUP_LABEL_KEY in (each["metadata"].get("labels") or {})]
        if marked:
            with refusals_expected():
                body = msgspec.json.encode({"metadata": {"labels": {kai.SUB_GROUP_LABEL_KEY: "other"}}})
                await sim.client().patch(Pod.from_dict(rng.choice(marked)), raw_patch(MERGE, body))

    async def resize(self, sim: Simulation, rng: random.Random) -> None:
        """Write another size into a group, as a person does. The next change of one of its pods corrects the size."""
        if found := sim.server.objects(PodGroup):
            group = rng.choice(found)
            self.resized.add(group["metadata"]["name"])
            field = "minSubGroup" if "minSubGroup" in group["spec"] else "minMember"
            with refusals_expected():
                body = msgspec.json.encode({"spec": {field: rng.randint(11, 19)}})
                await sim.client().patch(PodGroup.from_dict(group), raw_patch(MERGE, body))

    async def drop(self, sim: Simulation, rng: random.Random) -> None:
        """Delete a group, as a person does; the pods in it do not change."""
        if found := sim.server.objects(PodGroup):
            with refusals_expected():
                await sim.client().delete(PodGroup.from_dict(rng.choice(found)))

    def see(self, event: Event) -> None:
        """Check that a group keeps the assigned fields."""
        assigned = self.assigned.get(event.document["metadata"]["uid"], {})
        for path, value in assigned.items() if event.before and event.type != "DELETED" else ():
            if _at(event.before or {}, path) == value:
                assert _at(event.document, path) == value, (
                    f"a group loses values that others set: {event.key.name}: {path[-1]}"
                )

    async def revoke(self, sim: Simulation, rng: random.Random) -> None:
        """Revoke the permission to read a kind of owners for a while, in which the pods change."""
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


def _at(document: dict[str, Any], path: Path) -> Any:
    found: Any = document
    for name in path:
        found = (found or {}).get(name)
    return found
