# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Two operators that label ConfigMaps: one that works, and one that treats an error as a success."""

from __future__ import annotations

import random
from contextlib import suppress

import controller_runtime as ctrl
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import Client, ignore_not_found, merge_from
from controller_runtime.machinery.errors import AlreadyExistsError
from controller_runtime.manager import ControllerDefaults
from controller_runtime.simtest import Simulation

OPTIONS = simtest.options(controller=ControllerDefaults(skip_name_validation=True))


class Labeller:
    """Labels every ConfigMap."""

    def __init__(self, client: Client, forgiven: type[Exception] | None = None) -> None:
        self._client = client
        self._forgiven = forgiven

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        with suppress(*([self._forgiven] if self._forgiven else [])), ignore_not_found(ConfigMap, request):
            found = await self._client.get(ConfigMap, request)
            if "labelled" not in found.labels:
                wanted = found.deep_copy()
                wanted.metadata.labels = {**found.labels, "labelled": "yes"}
                await self._client.patch(wanted, merge_from(found))
        return ctrl.Result()


async def create(sim: Simulation, rng: random.Random) -> None:
    with suppress(AlreadyExistsError):
        await sim.client().create(config_map(rng))


async def delete(sim: Simulation, rng: random.Random) -> None:
    chosen = config_map(rng)
    with ignore_not_found(chosen):
        await sim.client().delete(chosen)


def config_map(rng: random.Random) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"namespace": "default", "name": f"c{rng.randrange(10)}"}})


async def all_labelled(sim: Simulation) -> None:
    for each in sim.server.objects(ConfigMap):
        assert "labelled" in each["metadata"].get("labels", {}), f"not labelled: {each['metadata']['name']}"


def scenario(sim: Simulation, forgiven: type[Exception] | None) -> None:
    async def setup(mgr: ctrl.Manager) -> None:
        ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(Labeller(mgr.client, forgiven))

    sim.serve(ConfigMap)
    sim.manager(setup, options=OPTIONS)
    sim.action(create, times=12)
    sim.action(delete, times=5)
    sim.finally_(all_labelled)


def labelled(sim: Simulation) -> None:
    """Run the operator that works."""
    scenario(sim, None)


def careless(sim: Simulation) -> None:
    """Run the operator that treats every error as a success."""
    scenario(sim, Exception)


test_careless = simtest.simulate(seeds=0)(careless)
test_short = simtest.simulate(seeds=0, minutes=1.0, faults=2.0, actions=0.5)(labelled)
