# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import anyio
import pytest

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.client import LiveClient
from controller_runtime.leaderelection import LeaderElector, Timing
from controller_runtime.machinery import NamespacedName

pytestmark = pytest.mark.integration
BRIEF = Timing(lease_duration=2, renew_deadline=1.5, retry_period=0.2)
RENEWED = Timing(lease_duration=6, renew_deadline=5, retry_period=0.2)
"""For a holder that must keep the lease: the lease outlasts a short pause of the machine."""


async def test_the_lease_passes_on_by_release_and_by_lapse(live_client: LiveClient, namespace: str) -> None:
    key = NamespacedName(namespace, "lock")
    one = LeaderElector(live_client, key, "one", RENEWED)
    two, three = (LeaderElector(live_client, key, name, BRIEF) for name in ("two", "three"))
    await one.acquire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.renew)
        with anyio.move_on_after(RENEWED.lease_duration + 1) as waited:
            await two.acquire()
        assert waited.cancelled_caught
        tasks.cancel_scope.cancel()
    await one.release()
    assert (await live_client.get(Lease, key)).spec.holder_identity == ""
    await two.acquire()
    began = anyio.current_time()
    await three.acquire()
    assert anyio.current_time() - began >= 2
    spec = (await live_client.get(Lease, key)).spec
    assert (spec.holder_identity, spec.lease_transitions, spec.lease_duration_seconds) == ("three", 2, 2)
