# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The leader is killed, or stopped with SIGTERM, while another manager waits for the lease."""

import itertools
import time
from typing import Any

import pytest

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually

pytestmark = pytest.mark.fault


async def test_the_standby_takes_over_and_no_two_write_at_a_time(
    client: LiveClient, namespace: str, start: Any, contends: Any, work: Any, figure: Any
) -> None:
    async def works(name: str) -> float:
        """Return when the manager ``name`` wrote for the first time."""
        return await eventually(
            lambda: next((at for agent, at in work() if agent == name), None),
            timeout=30,
            reason=f"{name} works",
        )

    first = start("first")
    await works("first")
    second = start("second")
    await contends("second")
    killed = time.time()
    first.kill()
    figure("leader killed: standby works after", await works("second") - killed, at_most=17.4)

    start("third")
    await contends("third")
    asked = time.time()
    second.terminate()
    figure("leader stopped: standby works after", await works("third") - asked, at_most=3)
    assert second.wait(timeout=30) == 0
    assert [agent for agent, _ in itertools.groupby(agent for agent, _ in work())] == [
        "first",
        "second",
        "third",
    ]
    lease = await client.get(Lease, (namespace, "lock"))
    assert lease.spec.lease_transitions == 2
