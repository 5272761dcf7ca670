# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example with leader election, on a real API server."""

from collections.abc import Callable
from subprocess import Popen

import pytest

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap, Namespace
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.envtest import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
LEASE = "team-namespaces.example.com"


async def test_the_config_map_is_kept_and_another_replica_takes_over(
    live_client: LiveClient, namespace: str, start_example: Callable[..., Popen[bytes]]
) -> None:
    async def leader() -> str | None:
        return (await live_client.get(Lease, (namespace, LEASE))).spec.holder_identity

    async def says(team: str) -> bool:
        return (await live_client.get(ConfigMap, (namespace, "team"))).data == {"team": team}

    async def label(team: str) -> None:
        before = await live_client.get(Namespace, ("", namespace))
        after = before.deep_copy()
        after.metadata.labels = {**before.labels, "example.com/team": team}
        await live_client.patch(after, merge_from(before))

    arguments = ("team_namespaces", f"--lease-namespace={namespace}")
    first = start_example(*arguments)
    first_identity = await eventually(leader, timeout=20, reason="a replica leads")
    second = start_example(*arguments)
    await label("blue")
    await eventually(lambda: says("blue"), reason="the ConfigMap exists")
    kept = await live_client.get(ConfigMap, (namespace, "team"))
    assert [(owner.kind, owner.controller) for owner in kept.metadata.owner_references or []] == [
        ("Namespace", True)
    ]
    await live_client.delete(kept)
    await eventually(lambda: says("blue"), reason="the ConfigMap was created again")

    first.terminate()
    await eventually(lambda: first.poll() is not None, reason="the leader has ended")
    assert first.returncode == 0
    await label("green")
    await eventually(lambda: says("green"), timeout=20, reason="the second replica has taken over")
    assert await leader() not in {"", first_identity}
    assert second.poll() is None
