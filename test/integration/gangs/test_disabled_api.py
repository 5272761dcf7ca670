# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The feature gate of Kubernetes' own gangs is disabled while TrainJobs wait and run, and enabled again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import Environment, consistently, eventually
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

RunManager = Callable[..., Any]
DETECTED = 180  # seconds: the manager notices up to a minute late that the API is not served any more


class World:
    """TrainJobs of one gang runtime, by name."""

    def __init__(self, client: LiveClient, namespace: str, release: Any) -> None:
        self._client = client
        self._namespace = namespace
        self._kind = release.kind

    async def create_runtime(self) -> None:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        pod = {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}
        job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod}}}
        spec = {
            "mlPolicy": {"numNodes": 2},
            "podGroupPolicy": {"workload": {}},
            "template": {"spec": {"replicatedJobs": [job]}},
        }
        metadata = {"name": "gang", "namespace": self._namespace}
        await self._client.create(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))

    async def create(self, name: str, *, suspend: bool = False) -> None:
        ref = {"kind": "TrainingRuntime", "name": "gang"}
        metadata = {"name": name, "namespace": self._namespace}
        document = {"metadata": metadata, "spec": {"runtimeRef": ref, "suspend": suspend}}
        await self._client.create(TrainJob.from_dict(document))

    async def resume(self, name: str) -> None:
        job = TrainJob.from_dict({"metadata": {"name": name, "namespace": self._namespace}})
        await self._client.patch(job, raw_patch(MERGE, b'{"spec":{"suspend":false}}'))

    async def runs(self, name: str) -> bool | None:
        """Return whether the JobSet runs, or None if it does not exist."""
        try:
            return not (await self._client.get(JobSet, (self._namespace, name))).spec.suspend
        except NotFoundError:
            return None

    async def gang(self, name: str) -> str:
        """Return the UID of a gang."""
        found = await self._client.get(self._kind, (self._namespace, name))
        return found.metadata.uid or ""

    async def reason(self, name: str) -> str:
        """Return the reason of the condition that the gang is unavailable, or an empty string."""
        job = await self._client.get(TrainJob, (self._namespace, name))
        found = [each for each in job.status.conditions or [] if each.type == "GangSchedulingUnavailable"]
        return found[0].reason or "" if found else ""

    async def events(self, name: str) -> list[str]:
        """Return the warnings that a user reads on a TrainJob."""
        return [
            each.message or ""
            for each in await self._client.list(Event, namespace=self._namespace)
            if each.type == "Warning" and each.involved_object and each.involved_object.name == name
        ]


@pytest.fixture
async def world(
    trainer_control_plane: Environment,
    with_field: None,
    live_client: LiveClient,
    namespace: str,
    release: Any,
) -> AsyncIterator[World]:
    del with_field
    world = World(live_client, namespace, release)
    await world.create_runtime()
    yield world
    await restart(trainer_control_plane, release.flags)


async def restart(environment: Environment, flags: list[str]) -> None:
    """Start the API server with other flags, as a change of its manifest does."""
    environment.control_plane.kill_api_server()
    await environment.control_plane.start_api_server(flags=flags)


async def test_train_jobs_that_wait_go_on_waiting_and_continue_when_the_gate_is_back(
    trainer_control_plane: Environment, run_manager: RunManager, world: World, release: Any
) -> None:
    async with run_manager():
        await world.create("running")
        await world.create("waiting", suspend=True)

        async def built() -> bool:
            return await world.runs("running") is True and await world.runs("waiting") is False

        await eventually(built, timeout=60, reason="both JobSets are built")
        uids = {name: await world.gang(name) for name in ("running", "waiting")}

        await restart(trainer_control_plane, [])
        await world.resume("waiting")
        await world.create("new")

        async def started() -> list[str]:
            return [name for name in ("waiting", "new") if await world.runs(name)]

        async def reported() -> bool:
            assert await started() == []
            return [await world.reason(name) for name in ("waiting", "new")] == ["GangAPINotServed"] * 2

        await eventually(reported, timeout=DETECTED, interval=0.2, reason="both have the condition")

        async def named() -> bool:
            lines = [await world.events(name) for name in ("waiting", "new")]
            return all(any("the API server serves no gangs" in each for each in some) for some in lines)

        await eventually(named, timeout=30, reason="an event of each names the API")
        assert (await world.runs("running"), await world.reason("running")) == (True, "")
        assert await world.events("running") == []

        async def stays() -> bool:
            return await started() == [] and await world.runs("running") is True

        await consistently(stays, duration=3, reason="nothing starts and what runs is left alone")
        await restart(trainer_control_plane, release.flags)

        async def continued() -> bool:
            reasons = [await world.reason(name) for name in ("waiting", "new")]
            return await started() == ["waiting", "new"] and reasons == ["", ""]

        await eventually(continued, timeout=DETECTED, reason="both run")
        assert {name: await world.gang(name) for name in uids} == uids
        assert await world.gang("new")
