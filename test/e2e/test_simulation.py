# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scripts of user actions lead the simulated cluster and a real one to the same states."""

from typing import Any

import anyio
import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually

from testkit.sim import script
from testkit.sim.cluster import world

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SEEDS = (1, 2, 3)
States = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def simulated() -> States:
    """Return the states after each action, by seed."""
    return {seed: script.simulated(lambda sim: world(sim, pods_fail=0.0), seed) for seed in SEEDS}


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_script_of_user_actions_ends_in_the_same_states(
    simulated: States, cluster_client: LiveClient, cluster_namespace: str, seed: int
) -> None:
    async def present() -> dict[str, Any]:
        lists = {
            kind: [each.to_dict() for each in await cluster_client.list(kind, namespace=cluster_namespace)]
            for kind in script.KINDS
        }
        return script.state(lists)

    for runtime in script.runtimes(cluster_namespace):
        await cluster_client.create(runtime)
    for number, (action, wanted) in enumerate(
        zip(script.script(seed), simulated[seed], strict=True), start=1
    ):
        await script.perform(cluster_client, cluster_namespace, action)
        found: dict[str, Any] = {}

        async def settled(wanted: dict[str, Any] = wanted) -> bool:
            """Require two equal observations: the first one may precede the action's effects, or be intermediate."""
            nonlocal found
            found = await present()
            if found == wanted:
                await anyio.sleep(0.5)
                found = await present()
            return found == wanted

        try:
            await eventually(settled, timeout=60, reason="the states are equal, and stay so")
        except AssertionError:
            differences = {key: (found[key], wanted[key]) for key in wanted if found[key] != wanted[key]}
            pytest.fail(f"after action {number}, {action}: {differences}")
