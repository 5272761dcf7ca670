# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Other controllers, which hold runtimes with finalizers of their own while the manager writes its finalizer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.rest import Request
from controller_runtime.simtest import Event, Observer, Process, Simulation

from testkit.sim import runtimes
from testkit.sim.objects import by_name, is_busy, is_deleted, refusals_expected

Document = dict[str, Any]
FINALIZER: Final = "example.com/audit"
_OF_WRITES: Final = 0.4
"""Another controller adds its finalizer before this fraction of the manager's writes to runtimes."""
_FORCE: Final = 2.0
"""For this many seconds after an administrator has removed all finalizers by force, the rule does not apply."""


class FinalizerControllers(Observer):
    """Other controllers, and the rule that the finalizer of such a controller stays until the controller removes it."""

    def __init__(self, sim: Simulation, lost: Mapping[str, float]) -> None:
        """``lost`` has the times at which runtimes were last deleted by force, by name."""
        self._sim = sim
        self._lost = lost
        self._rng = random.Random(f"{sim.seed}/holders")
        self._name = ""
        self._lets_go = ""
        self._called = anyio.Event()
        sim.network.observers.append(self)
        sim.on_change(self.see)
        sim.actor(self.run, "holders")

    def sends(self, process: Process, request: Request) -> None:
        """Let another controller act before some of the writes of runtimes."""
        place, _, name = request.path.rpartition("/")
        is_runtime = request.method == "PATCH" and place.endswith("trainingruntimes")
        if is_runtime and is_busy(self._sim) and self._rng.random() < _OF_WRITES:
            self._name = name
            self._called.set()

    def see(self, event: Event) -> None:
        """Check that the finalizer of another controller stays."""
        name = event.key.name
        if event.before is None or FINALIZER not in (event.before["metadata"].get("finalizers") or ()):
            return
        by_force = self._sim.loop.time() - self._lost.get(name, -_FORCE) < _FORCE
        kept = FINALIZER in (event.document["metadata"].get("finalizers") or ())
        assert kept or by_force or self._lets_go == name, (
            f"the finalizer of another controller is removed: {name}"
        )

    async def run(self, sim: Simulation) -> None:
        """Keep a finalizer for a while on each runtime that ``sends`` has chosen."""
        while True:
            await self._called.wait()
            name, self._called = self._name, anyio.Event()
            await self._set(sim, name, held=True)
            await anyio.sleep(self._rng.uniform(0.5, 5.0))
            self._lets_go = name
            await self._set(sim, name, held=False)
            self._lets_go = ""

    async def _set(self, sim: Simulation, name: str, *, held: bool) -> None:
        """Add or remove the finalizer; try again if the runtime has changed meanwhile."""
        key = runtimes.runtime(name)
        while (found := by_name(sim, type(key), key.to_dict())) is not None:
            now = found["metadata"].get("finalizers") or []
            if (FINALIZER in now) == held or (held and is_deleted(found)):
                return
            wanted = [*now, FINALIZER] if held else [each for each in now if each != FINALIZER]
            metadata = {"finalizers": wanted, "resourceVersion": found["metadata"]["resourceVersion"]}
            with refusals_expected():
                body = msgspec.json.encode({"metadata": metadata})
                await sim.client("auditor").patch(key, raw_patch(MERGE, body))
            await anyio.sleep(0.0 if held else 0.5)
