# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager under load while the API server is down, or answers 429."""

import itertools
from collections import Counter
from typing import Any

import anyio
import pytest
from aiohttp import web
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


def too_many() -> web.Response:
    status = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests"}
    return web.json_response(status, status=429, headers={"Retry-After": "3"})


async def test_f4_a_busy_server_is_asked_at_its_own_pace(
    world: Any, figure: Any, outage_seconds: float
) -> None:
    """Catches a manager that ignores Retry-After, blocks its event loop while it waits, or does not resume."""
    proxy, ours = world.proxy, world.ours
    await world.begin("before")
    await anyio.sleep(2)
    proxy.refuse = too_many
    busy = anyio.current_time()
    for number in range(10):
        await world.train(f"job-{number}")
    async with ours.lag() as latencies:
        await anyio.sleep(max(outage_seconds, 10))
    proxy.refuse = None
    free = anyio.current_time()
    await world.settled(timeout=60)
    figure(f"F4 429 for {free - busy:.0f} s: resumed", anyio.current_time() - free, at_most=8)
    refused = Counter(
        (seen.method, seen.path)
        for seen in proxy.seen
        if busy + 1 < seen.at < free and "/leases" not in seen.path
    )
    assert refused
    # Each caller waits 3 s after an answer: it sends one request at first, and one for each period that begins.
    most = (free - busy) / 3 + 2
    figure("F4 requests for one object", max(refused.values()), at_most=most, unit="requests")
    figure("F4 slowest health probe", max(latencies), at_most=0.2)
    assert ours.running
