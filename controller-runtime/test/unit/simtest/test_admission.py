# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhooks of simulated managers: reviews in bytes, defaults that are stored, denials, and replicas that do not answer."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.machinery.errors import ForbiddenError, StatusError
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.manager import ControllerOptions
from controller_runtime.simtest import Simulation
from controller_runtime.webhook import CustomDefaulter, CustomValidator

pytestmark = pytest.mark.real_time
OPTIONS = simtest.options(controller=ControllerOptions(skip_name_validation=True))
RULE = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
}


class Odd(CustomValidator[ConfigMap]):
    """Allows odd numbers only."""

    async def validate_create(self, obj: ConfigMap) -> list[str]:
        if int((obj.data or {}).get("number", "1")) % 2 == 0:
            raise ForbiddenError("the number is even", code=403, reason="Forbidden")
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return await self.validate_create(new)

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


class Counted(CustomDefaulter[ConfigMap]):
    """Adds one to the data."""

    async def default(self, obj: ConfigMap) -> None:
        obj.data = {**(obj.data or {}), "seen": str(int((obj.data or {}).get("seen", "0")) + 1)}


async def setup(mgr: ctrl.Manager) -> None:
    ctrl.new_webhook_managed_by(mgr, ConfigMap).with_validator(Odd()).with_defaulter(Counted()).complete()


def configuration(kind: str, path: str, policy: str = "Fail") -> dict[str, Any]:
    service = {"clientConfig": {"service": {"path": path}}, "failurePolicy": policy, "timeoutSeconds": 5}
    return {"kind": kind, "webhooks": [{"name": f"{path[1:7]}.example.com", "rules": [RULE], **service}]}


def lived(work: Callable[[Simulation], Awaitable[None]], policy: str = "Fail", seed: int = 1) -> None:
    """Do something in a cluster whose managers' webhooks are configured, ten seconds after its beginning."""

    def scenario(sim: Simulation) -> None:
        sim.serve(ConfigMap)
        sim.manager(setup, options=OPTIONS)
        sim.admission(
            configuration("ValidatingWebhookConfiguration", "/validate--v1-configmap", policy),
            configuration("MutatingWebhookConfiguration", "/mutate--v1-configmap", policy),
        )

        async def after_ten_seconds(sim: Simulation) -> None:
            await anyio.sleep(10)
            await work(sim)

        sim.finally_(after_ten_seconds)

    outcome = simtest.run(scenario, seed, minutes=0.1, faults=0)
    if outcome.failure is not None:
        raise outcome.failure


def config_map(**data: str) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"namespace": "default", "name": "c"}, "data": data})


def test_a_defaulter_changes_what_is_stored_at_creates_and_updates() -> None:
    async def work(sim: Simulation) -> None:
        created = await sim.client().create(config_map(number="1"))
        assert created.data == {"number": "1", "seen": "1"}
        created.data = {"number": "3", "seen": "6"}
        assert (await sim.client().update(created)).data == {"number": "3", "seen": "7"}
        patched = await sim.client().patch(created, raw_patch(MERGE, b'{"data":{"number":"5"}}'))
        assert patched.data == {"number": "5", "seen": "8"}
        assert sim.server.objects(ConfigMap)[0]["data"] == {"number": "5", "seen": "8"}

    lived(work)


def test_a_validator_denies_with_the_servers_text() -> None:
    async def work(sim: Simulation) -> None:
        with pytest.raises(StatusError, match=r'"valida\.example\.com" denied the request: the number'):
            await sim.client().create(config_map(number="2"))
        assert sim.server.objects(ConfigMap) == []

    lived(work)


@pytest.mark.parametrize(("policy", "stored"), [("Fail", 0), ("Ignore", 1)])
def test_without_replicas_the_failure_policy_decides(policy: str, stored: int) -> None:
    async def work(sim: Simulation) -> None:
        for name in ("manager-0", "manager-1"):
            sim.kill(name)
        fails = (
            pytest.raises(StatusError, match="failed calling webhook") if policy == "Fail" else nullcontext()
        )
        with fails:
            await sim.client().create(config_map(number="1"))
        assert len(sim.server.objects(ConfigMap)) == stored

    lived(work, policy)


def test_a_paused_replica_lets_a_call_time_out() -> None:
    async def work(sim: Simulation) -> None:
        for process in sim.processes.values():
            process.paused = True
        before = sim.loop.time()
        with pytest.raises(StatusError, match="context deadline exceeded"):
            await sim.client().create(config_map(number="1"))
        assert sim.loop.time() - before > 5
        for process in sim.processes.values():
            sim.loop.resume(process)

    lived(work)
