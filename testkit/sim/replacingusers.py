# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Users who replace a TrainJob while a request that writes its status is on its way."""

from __future__ import annotations

import random
from typing import Final

import anyio
from controller_runtime.rest import Request
from controller_runtime.simtest import Observer, Process, Simulation

from testkit.sim.objects import is_busy
from testkit.sim.users import Users

_STATUS: Final = "/status"
_OF_WRITES: Final = 0.03
"""During this fraction of the status writes, a user replaces the TrainJob."""


class ReplacingUsers(Observer):
    """The users, as an observer of the managers' requests."""

    def __init__(self, sim: Simulation, users: Users) -> None:
        self._sim = sim
        self._users = users
        self._rng = random.Random(f"{sim.seed}/overtakers")
        self._name = ""
        self._called = anyio.Event()
        sim.network.observers.append(self)
        sim.actor(self.run, "overtakers")

    def sends(self, process: Process, request: Request) -> None:
        """Let a user act during some of the writes of a status."""
        path = request.path.removesuffix(_STATUS)
        if (
            is_busy(self._sim)
            and request.method == "PATCH"
            and path != request.path
            and self._rng.random() < _OF_WRITES
        ):
            self._name = path.rpartition("/")[2]
            self._called.set()

    async def run(self, sim: Simulation) -> None:
        """Replace the TrainJob of each write that ``sends`` has chosen."""
        while True:
            await self._called.wait()
            self._called = anyio.Event()
            await self._users.replace(sim, self._rng, self._name)
