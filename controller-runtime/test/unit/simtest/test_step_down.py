# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager that is stopped while a write is on its way: the write arrives before another replica leads."""

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import MERGE, Client, raw_patch
from controller_runtime.manager import ControllerDefaults
from controller_runtime.rest import Request
from controller_runtime.simtest import Observer, Outcome, Process, Simulation

pytestmark = pytest.mark.real_time
NAME = {"namespace": "default", "name": "c"}
PATH = "/api/v1/namespaces/default/configmaps/c"


class Labeller:
    """Labels a ConfigMap once."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        found = await self._client.get(ConfigMap, request)
        if "seen" not in found.labels:
            await self._client.patch(found, raw_patch(MERGE, b'{"metadata":{"labels":{"seen":"yes"}}}'))
        return ctrl.Result()


class Stuck(Observer):
    """Delays the first patch of the ConfigMap by many seconds on its way to the server."""

    def __init__(self, sim: Simulation) -> None:
        self._faults = sim.network.faults
        self.sender = ""
        self.sent = anyio.Event()

    def sends(self, process: Process, request: Request) -> None:
        stuck = request.path == PATH and request.method == "PATCH" and not self.sent.is_set()
        self._faults.stuck = 1.0 if stuck else 0.0
        if stuck:
            self.sender = process.name
            self.sent.set()


def lived(grace: float) -> Outcome:
    """Stop the leader as soon as it has sent a write, which arrives many seconds later; return the outcome."""

    async def setup(mgr: ctrl.Manager) -> None:
        ctrl.new_controller_managed_by(mgr).for_(ConfigMap).complete(Labeller(mgr.client))

    def scenario(sim: Simulation) -> None:
        only = ControllerDefaults(skip_name_validation=True)
        sim.serve(ConfigMap)
        sim.manager(setup, options=simtest.options(controller=only, graceful_shutdown_timeout=grace))
        stuck = Stuck(sim)
        sim.network.observers.append(stuck)

        async def stop_the_writer(sim: Simulation) -> None:
            await anyio.sleep(10)
            await sim.client().create(ConfigMap.from_dict({"metadata": NAME}))
            await stuck.sent.wait()
            sim.stop(stuck.sender)
            await anyio.sleep(60)
            assert sim.server.objects(ConfigMap)[0]["metadata"]["labels"] == {"seen": "yes"}

        sim.finally_(stop_the_writer)

    return simtest.run(scenario, 1, minutes=0.1, faults=0)


@pytest.mark.parametrize("grace", [1.0, 60.0], ids=["cancelled", "awaited"])
def test_no_write_arrives_after_the_lease_was_given_up(grace: float) -> None:
    outcome = lived(grace)
    if outcome.failure is not None:
        raise outcome.failure
