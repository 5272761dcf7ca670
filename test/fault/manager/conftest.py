# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shipped manager as a process whose requests pass the proxy."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_train_job


@pytest.fixture
async def ours(new_manager: Callable[..., Any], proxy: Any) -> Any:
    """Start a manager behind the proxy; return it once it is ready."""
    manager = new_manager(proxy.url)
    manager.start()
    await manager.ready()
    return manager


@pytest.fixture
def train(
    client: LiveClient, namespace: str, make_runtime: Callable[..., Awaitable[str]]
) -> Callable[..., Awaitable[TrainJob]]:
    """Return a function that creates a TrainJob of a runtime that only this test uses."""
    runtime: list[str] = []

    async def create(name: str, **spec: Any) -> TrainJob:
        if not runtime:
            runtime.append(f"torch-{namespace}")
            await make_runtime("torch-distributed", runtime[0])
        return await client.create(
            written_train_job(namespace, runtime[0], name=name, kind="ClusterTrainingRuntime", **spec)
        )

    return create


@pytest.fixture
def served(client: LiveClient, namespace: str) -> Callable[[], Awaitable[bool]]:
    """Return a function that returns True if every TrainJob of the namespace has its JobSet."""

    async def check() -> bool:
        jobs = {each.name for each in await client.list(TrainJob, namespace=namespace)}
        return bool(jobs) and jobs == {each.name for each in await client.list(JobSet, namespace=namespace)}

    return check


@dataclasses.dataclass(frozen=True)
class World:
    """A ready manager, the namespace of its TrainJobs, and the proxy between it and the API server."""

    client: LiveClient
    namespace: str
    proxy: Any
    ours: Any
    train: Callable[..., Awaitable[TrainJob]]
    served: Callable[[], Awaitable[bool]]

    async def begin(self, *names: str) -> list[TrainJob]:
        """Create TrainJobs and wait until each has its JobSet."""
        jobs = [await self.train(name) for name in names]
        await self.settled(timeout=30)
        return jobs

    async def settled(self, *, timeout: float) -> None:
        """Wait until every TrainJob has its JobSet."""
        await eventually(self.served, timeout=timeout, reason="every TrainJob has its JobSet")


@pytest.fixture
def world(
    client: LiveClient,
    namespace: str,
    proxy: Any,
    ours: Any,
    train: Callable[..., Awaitable[TrainJob]],
    served: Callable[[], Awaitable[bool]],
) -> World:
    return World(client, namespace, proxy, ours, train, served)
