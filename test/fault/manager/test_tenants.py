# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager while one tenant makes it work as much as a tenant can, and another tenant creates TrainJobs."""

import secrets
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, unstructured

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
NAMESPACE = unstructured(GVK("", "v1", "Namespace"))
GREEDY = 100
"""The number of TrainJobs of the greedy tenant."""
TOUCHES = 50
"""How many of them it changes in a second."""
SAMPLES = 40
ANCHORS = "a: [" + ",".join(f"&a{number} 1" for number in range(36_000)) + "]"
"""A snapshot of a runtime that takes long to refuse."""


@pytest.fixture
async def greedy(client: LiveClient) -> AsyncIterator[str]:
    name = f"greedy-{secrets.token_hex(4)}"
    await client.create(NAMESPACE.from_dict({"metadata": {"name": name}}))
    yield name
    await client.delete_all_of(TrainJob, namespace=name)
    await client.delete_all_of(ConfigMap, namespace=name)


async def waits(world: Any) -> list[float]:
    """Create TrainJobs of the quiet tenant; return the seconds from each creation to its JobSet."""
    found: list[float] = []

    async def one() -> None:
        delay = world.ours.delay()
        job = await world.train(f"quiet-{secrets.token_hex(4)}")
        await eventually(
            lambda: world.client.get(JobSet, job.key),
            timeout=60,
            interval=0.01,
            reason="the job has its JobSet",
        )
        found.append(delay())

    async with anyio.create_task_group() as tasks:
        for _ in range(SAMPLES):
            tasks.start_soon(one)
            await anyio.sleep(0.15)
    return found


def runtime_of(world: Any) -> dict[str, str]:
    return {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": f"torch-{world.namespace}",
    }


def compare(figure: Callable[..., None], name: str, quiet: list[float], busy: list[float]) -> None:
    before, now = (statistics.quantiles(each, n=100)[98] for each in (quiet, busy))
    figure(f"F23 {name}: another's JobSet, p99", now, at_most=2 * before + 0.05)


@asynccontextmanager
async def touched(client: LiveClient, jobs: list[TrainJob]) -> AsyncIterator[None]:
    """Change TOUCHES of the TrainJobs in each second during the block."""

    async def touch() -> None:
        began = time.monotonic()
        for number in range(1_000_000):
            job = jobs[number % len(jobs)]
            changed = job.deep_copy()
            changed.metadata.labels = {"touch": str(number)}
            await client.patch(changed, merge_from(job))
            await anyio.sleep(max(0.0, began + number / TOUCHES - time.monotonic()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(touch)
        yield
        tasks.cancel_scope.cancel()


async def test_f23_invalid_snapshots_delay_only_their_tenant(world: Any, greedy: str, figure: Any) -> None:
    """Catches a manager that decodes snapshots again and again, or in the order in which they came."""
    client = world.client
    await world.begin("before")
    quiet = await waits(world)
    jobs = []
    for number in range(GREEDY):
        spec = {"runtimeRef": runtime_of(world), "suspend": True}
        body = {"metadata": {"namespace": greedy, "name": f"job-{number}"}, "spec": spec}
        job = await client.create(TrainJob.from_dict(body))
        metadata = trainjob.child_metadata(job, "-runtime-snapshot")
        await client.create(ConfigMap(metadata=metadata, data={"runtime": f"{ANCHORS}\n# {number}"}))
        jobs.append(job)
    async with touched(client, jobs):
        compare(figure, f"{GREEDY} invalid snapshots", quiet, await waits(world))
    world.ours.kill()
    world.ours.start()
    await world.ours.ready()
    compare(figure, f"{GREEDY} invalid snapshots, after a restart", quiet, await waits(world))
    assert world.ours.running


async def test_f23_a_burst_of_train_jobs_delays_only_its_tenant(
    new_manager: Callable[..., Any], world: Any, greedy: str, figure: Any
) -> None:
    """Catches one rate limit for all requests, and a queue in the order of arrival."""
    client, proxy = world.client, world.proxy
    world.ours.kill()
    slow = new_manager(proxy.url, clientConnection={"qps": 50, "burst": 100})
    slow.start()
    await slow.ready()
    object.__setattr__(world, "ours", slow)
    await world.begin("before")
    quiet = await waits(world)

    async def create(name: str) -> None:
        await client.create(
            TrainJob.from_dict(
                {"metadata": {"namespace": greedy, "name": name}, "spec": {"runtimeRef": runtime_of(world)}}
            )
        )

    for number in range(400):
        await create(f"job-{number}")
    compare(figure, "400 TrainJobs at 50 requests a second", quiet, await waits(world))
    assert slow.running
