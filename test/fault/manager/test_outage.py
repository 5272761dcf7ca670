# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager under load while the API server is down."""

import itertools
from collections import Counter
from typing import Any

import anyio
import pytest
from controller_runtime.envtest import Environment
from controller_runtime.rest import TransportError

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]


def applied(proxy: Any, namespace: str) -> Counter[str]:
    """Return how many writes to each JobSet the server accepted."""
    place = f"/namespaces/{namespace}/jobsets/"
    return Counter(
        seen.path
        for seen, status in proxy.answers
        if place in seen.path and seen.method in ("PATCH", "POST", "PUT") and status < 300
    )


async def test_f1_an_outage_loses_doubles_and_leaks_nothing(
    control_plane: Environment, world: Any, figure: Any, outage_seconds: float
) -> None:
    """Catches a manager that forgets work, applies a JobSet twice, grows or ends while the API server is down."""
    proxy, ours = world.proxy, world.ours
    numbers = itertools.count(1)

    async def load() -> None:
        while True:
            try:
                await world.train(f"job-{next(numbers)}")
            except TransportError:
                await anyio.sleep(0.2)
            await anyio.sleep(0.05)

    await world.begin("job-0")
    before = ours.memory()
    async with anyio.create_task_group() as loading:
        loading.start_soon(load)
        await anyio.sleep(2)
        proxy.cut()
        away = anyio.current_time()
        control_plane.control_plane.kill_api_server()
        await anyio.sleep(outage_seconds)
        await control_plane.control_plane.start_api_server()
        back = anyio.current_time()
        await anyio.sleep(2)
        loading.cancel_scope.cancel()
    await world.settled(timeout=90)
    figure(f"F1 API server away for {back - away:.0f} s: caught up", anyio.current_time() - back, at_most=20)
    await anyio.sleep(3)  # enough time for a repeated request
    writes = applied(proxy, world.namespace)
    assert len(writes) > 20
    figure(
        "F1 JobSets applied more than once", sum(n > 1 for n in writes.values()), at_most=0, unit="JobSets"
    )
    figure("F1 growth of memory", ours.memory() - before, at_most=24, unit="MiB")
    assert ours.running
