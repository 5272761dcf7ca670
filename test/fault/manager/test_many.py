# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager starts in a cluster with many TrainJobs: ``FAULT_TRAINJOBS``, 300 by default."""

import os
from typing import Any

import anyio
import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually

from testkit.clusters import job_set_at

MANY = int(os.environ.get("FAULT_TRAINJOBS", "300"))
pytestmark = [pytest.mark.fault, pytest.mark.timeout(300 + MANY // 4)]


async def test_f20_a_new_trainjob_does_not_wait_for_those_there_were_at_the_start(
    client: LiveClient, namespace: str, new_manager: Any, new_proxy: Any, train: Any, served: Any, figure: Any
) -> None:
    """Catches a queue without priorities, and a start that sends requests for settled TrainJobs."""
    proxy = await new_proxy()
    ours = new_manager(proxy.url)
    ours.start()
    await ours.ready()
    await train("job-0")
    async with anyio.create_task_group() as tasks:
        limit = anyio.CapacityLimiter(16)

        async def one(number: int) -> None:
            async with limit:
                await train(f"job-{number}")

        for number in range(1, MANY):
            tasks.start_soon(one, number)
    await eventually(served, timeout=120 + MANY / 20, interval=1, reason="every TrainJob has its JobSet")
    await anyio.sleep(2)
    ours.kill()
    begin = len(proxy.answers)
    ours.start()
    started = anyio.current_time()

    async def watched() -> bool:
        # The manager has listed the existing TrainJobs by now, so a new one is enqueued after them.
        return any(
            seen.path.endswith("/trainjobs") and "watch" in seen.query for seen, _ in proxy.answers[begin:]
        )

    await eventually(watched, timeout=60, reason="the manager watches TrainJobs")
    await train("late")
    created = anyio.current_time()
    await job_set_at(client, (namespace, "late"), timeout=120)
    figure(
        f"F20 start among {MANY}: the next TrainJob's JobSet after",
        anyio.current_time() - created,
        at_most=10,
    )
    await anyio.sleep(max(5.0, MANY / 200))
    place = f"/namespaces/{namespace}/"
    answers = [seen for seen, _ in proxy.answers[begin:] if place in seen.path and "/late" not in seen.path]
    writes = sum(seen.method != "GET" for seen in answers)
    figure("F20 writes to settled TrainJobs and their children", writes, at_most=0, unit="writes")
    figure("F20 reads for each of them", len(answers) / MANY, at_most=0.1, unit="reads")
    figure(f"F20 memory {anyio.current_time() - started:.0f} s after the start", ours.memory(), at_most=150 + MANY / 50, unit="MiB")  # fmt: skip
