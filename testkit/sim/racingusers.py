# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Users who act within milliseconds of the pod grouper's requests, mostly while the answers are on their way."""

from __future__ import annotations

import random
from typing import Any, Final

import anyio
import msgspec
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.rest import Request
from controller_runtime.simtest import Event, Observer, Process, Simulation, kind_of

from pkg.constants import kai
from testkit.sim.objects import is_busy, refusals_expected
from testkit.sim.workloads import OWNERS, Workloads

_OF_READS: Final = 0.05
"""After this fraction of the reads of owners, a user changes the owner."""
_OF_SLOW_READS: Final = 0.2
"""For this fraction of the reads of owners, the answer is delayed, and the owner changes meanwhile."""
_OF_MARKS: Final = 0.05
"""After this fraction of the writes of a pod's group annotation, a user removes the annotation at once."""
_OF_DELETIONS: Final = 0.3
"""In this fraction of the latter cases, the user deletes the pod instead."""
_UNMARKED: Final = msgspec.json.encode(
    {
        "metadata": {
            "annotations": {kai.POD_GROUP_ANNOTATION_FOR_POD: None},
            "labels": {kai.SUB_GROUP_LABEL_KEY: None},
        }
    }
)


class RacingUsers(Observer):
    """Users who replace or change an owner while it is read, and remove a pod's group annotation after its write."""

    def __init__(self, sim: Simulation, workloads: Workloads) -> None:
        self._sim = sim
        self._workloads = workloads
        self._rng = random.Random(f"{sim.seed}/rivals")
        self._due: list[tuple[type[Any], str]] = []
        self._called = anyio.Event()
        sim.network.observers.append(self)
        sim.network.slow.append(self._lateness)
        sim.on_change(self.see)
        sim.actor(self.run, "rivals")

    def arrives(self, process: Process, request: Request) -> None:
        """Let a user act after some of the reads of owners."""
        if (kind := self._owner(request)) is not None:
            self._note(kind, request.path.rpartition("/")[2], _OF_READS)

    def _lateness(self, request: Request) -> float:
        """Return the seconds by which an answer is delayed.

        During the delay, watch events may report a newer state of the owner than the answer contains.
        """
        if (
            (kind := self._owner(request)) is None
            or not is_busy(self._sim)
            or self._rng.random() > _OF_SLOW_READS
        ):
            return 0.0
        self._note(kind, request.path.rpartition("/")[2], 1.0)
        return self._rng.uniform(0.1, 2.0)

    def _owner(self, request: Request) -> type[Any] | None:
        """Return the kind of the owner that a request reads, or None."""
        if request.method != "GET" or "/namespaces/" not in request.path:
            return None
        gvk = kind_of(request.path, self._sim.server.tables)
        return next((each for each in OWNERS if each.gvk == gvk), None)

    def see(self, event: Event) -> None:
        """Let a user act after some of the writes of a pod's group annotation."""
        before, now = _annotations(event.before), _annotations(event.document)
        if event.table.properties.gvk == Pod.gvk and event.type != "DELETED" and before != now:
            self._note(Pod, event.key.name, _OF_MARKS if kai.POD_GROUP_ANNOTATION_FOR_POD in now else 0.0)

    def _note(self, kind: type[Any], name: str, part: float) -> None:
        if is_busy(self._sim) and self._rng.random() < part:
            self._due.append((kind, name))
            self._called.set()

    async def run(self, sim: Simulation) -> None:
        """Act on the objects that were chosen, a few milliseconds later."""
        while True:
            await self._called.wait()
            await anyio.sleep(self._rng.random() * 0.01)
            due, self._due, self._called = self._due, [], anyio.Event()
            for kind, name in due:
                with refusals_expected():
                    await self._act(sim, kind, name)

    async def _act(self, sim: Simulation, kind: type[Any], name: str) -> None:
        if kind is not Pod:
            await anyio.sleep(0.01)  # the answer to the read still has the earlier state
            await self._workloads.replace(sim, self._rng, kind, name)
            return
        pod = Pod.from_dict({"metadata": {"namespace": "default", "name": name}})
        if self._rng.random() < _OF_DELETIONS:
            await sim.client().delete(pod, grace_period_seconds=0)
        else:
            await sim.client().patch(pod, raw_patch(MERGE, _UNMARKED))


def _annotations(document: dict[str, Any] | None) -> dict[str, str]:
    found: dict[str, str] = ((document or {}).get("metadata") or {}).get("annotations") or {}
    return found
