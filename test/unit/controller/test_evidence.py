# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The events about failed containers, with an in-memory API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.cache import CacheDegradedError
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.machinery.meta import format_time
from controller_runtime.recorder import Broadcaster

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.evidence import MAX_FAILURES, FailureEvidence
from pkg.util import trainjob
from testkit.builders import make_train_job

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("team-a", "job")


def now() -> datetime:
    return BEGIN + timedelta(seconds=anyio.current_time() - 1000)


def when(seconds: float) -> str:
    return format_time(BEGIN + timedelta(seconds=seconds))


def ended(code: int = 1, reason: str = "Error", message: str = "", at: float = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": when(at)}}


class World:
    """A TrainJob with its JobSet, and the runnable under test."""

    def __init__(self, *pods: Pod, **spec: Any) -> None:
        self.client = FakeClient(make_train_job(*KEY, **spec), *pods, now=now)
        self.events = FakeClient(now=now)
        self.reader: Any = self.client
        self.cache: Any = self.client

    async def fails(self, at: float) -> None:
        """Let the TrainJob fail."""
        job = await self.client.get(TrainJob, KEY)
        times = {"lastTransitionTime": when(at)}
        condition = {"type": "Failed", "status": "True", "reason": "x", "message": "", **times}
        job.set_unchecked("status", type(job.status).from_dict({"conditions": [condition]}))
        await self.client.status.update(job)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[FailureEvidence]:
        """Run the runnable as the leader does; a second call is another replica that becomes the leader."""
        job = await self.client.get(TrainJob, KEY)
        if not await self.client.list(JobSet):
            job_set = JobSet.from_dict({"metadata": {"namespace": KEY[0], "name": KEY[1]}, "spec": {}})
            job_set.metadata.owner_references = [trainjob.controller_reference(job)]
            await self.client.create(job_set)
        broadcaster = Broadcaster(self.events, now=now)
        evidence = FailureEvidence(
            self.reader, self.cache, broadcaster.recorder_for("trainer-trainjob-controller"), now=now
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broadcaster.start)
            tasks.start_soon(evidence.start)
            await anyio.sleep(1)
            yield evidence
            tasks.cancel_scope.cancel()

    async def pod(
        self, name: str, *containers: dict[str, Any], phase: str = "Failed", labels: Any = None, **parts: Any
    ) -> Pod:
        """Create a pod and then write its status, as a kubelet does."""
        found = {"jobset.sigs.k8s.io/jobset-name": KEY[1], "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        metadata = {"namespace": KEY[0], "name": name, "labels": found | (labels or {})}
        pod = await self.client.create(Pod.from_dict({"metadata": metadata, "spec": {"containers": []}}))
        return await self.ends(pod, *containers, phase=phase, **parts)

    async def ends(self, pod: Pod, *containers: dict[str, Any], phase: str = "Failed", init: Any = ()) -> Pod:
        status = {
            "phase": phase,
            "containerStatuses": [{"name": "node", "state": {}, **each} for each in containers],
            "initContainerStatuses": [{"name": "prepare", **each} for each in init],
        }
        pod.set_unchecked("status", type(pod.status).from_dict(status))
        return await self.client.status.update(pod)

    async def found(self) -> list[str]:
        await anyio.sleep(1)
        found = await self.events.list(Event)
        assert {
            (each.reason, each.type, each.involved_object and each.involved_object.name) for each in found
        } <= {("ContainerFailed", "Warning", "job")}
        return [each.message or "" for each in found]


async def test_a_container_that_failed_is_an_event_of_its_train_job() -> None:
    world = World()
    async with world.leading():
        await world.pod("job-node-0-0-abcde", {"state": ended(137, "OOMKilled")})
        assert await world.found() == [
            "Container node of Pod job-node-0-0-abcde (step node) ended with exit code 137 (OOMKilled)"
        ]


async def test_the_end_of_a_long_message_is_kept_in_one_line() -> None:
    world = World()
    async with world.leading():
        await world.pod(
            "job-node-0-0-abcde",
            {"state": ended(message="x" * 5000 + "\n  ValueError:\tbad learning rate\x1b\n")},
        )
        (message,) = await world.found()
        assert message.endswith("x ValueError: bad learning rate\\x1b")
        assert len(message.partition("(Error): ")[2]) == 257


@pytest.mark.parametrize(
    ("parts", "codes"),
    [
        pytest.param({"phase": "Running"}, [], id="pods that run are not received"),
        pytest.param({"phase": "Succeeded"}, [], id="nor those that succeeded"),
        pytest.param({"code": 0}, [], id="a container that succeeded did not fail"),
        pytest.param(
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "other"}}, [], id="a JobSet of no TrainJob"
        ),
        pytest.param({"labels": {"jobset.sigs.k8s.io/jobset-uid": "other"}}, [], id="an earlier JobSet"),
        pytest.param({"code": 0, "init": [{"state": ended(5)}]}, [5], id="an init container"),
        pytest.param(
            {"state": {"waiting": {}}, "last_state": ended(3)}, [3], id="one that waits to start again"
        ),
        pytest.param({"last_state": ended(3)}, [1], id="its last end counts"),
    ],
)
async def test_only_what_failed_is_recorded(parts: dict[str, Any], codes: list[int]) -> None:
    world = World()
    parts = dict(parts)
    container = {"state": parts.pop("state", ended(parts.pop("code", 1)))}
    if "last_state" in parts:
        container["lastState"] = parts.pop("last_state")
    async with world.leading():
        await world.pod("job-node-0-0-abcde", container, **parts)
        found = [message.partition("exit code ")[2].partition(" ")[0] for message in await world.found()]
    assert found == [str(code) for code in codes]


@pytest.mark.parametrize(
    ("state", "last", "codes"),
    [
        pytest.param(ended(143, at=31), None, [], id="it was stopped"),
        pytest.param(ended(143, at=30), None, [], id="it was stopped in the same second"),
        pytest.param(ended(1, at=29), None, [1], id="it had failed before"),
        pytest.param(ended(143, at=31), ended(3, at=20), [3], id="it was stopped between two crashes"),
        pytest.param(ended(143, at=1031), ended(3, at=20), [], id="it had recovered long before"),
    ],
)
async def test_a_container_that_was_stopped_with_its_pod_did_not_fail(
    state: dict[str, Any], last: dict[str, Any] | None, codes: list[int]
) -> None:
    asked = 1030 if state["terminated"]["finishedAt"] == when(1031) else 30
    metadata = {
        "namespace": KEY[0],
        "name": "job-node-0-0-abcde",
        "labels": {"jobset.sigs.k8s.io/jobset-name": "job", "jobset.sigs.k8s.io/replicatedjob-name": "node"},
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "deletionTimestamp": when(asked + 20),
        "deletionGracePeriodSeconds": 20,
    }
    status = {
        "phase": "Failed",
        "containerStatuses": [{"name": "node", "state": state, "lastState": last or {}}],
    }
    world = World(Pod.from_dict({"metadata": metadata, "status": status}))
    async with world.leading():
        found = [message.partition("exit code ")[2].partition(" ")[0] for message in await world.found()]
    assert found == [str(code) for code in codes]


async def test_containers_that_fail_alike_share_an_event_in_each_run_of_the_job_set() -> None:
    world = World()
    async with world.leading():
        for rank in range(20):
            await world.pod(f"job-node-0-{rank}-abcde", {"state": ended(1)})
        assert len(await world.found()) == 1
        for attempt in ("1", "2"):
            labels = {"jobset.sigs.k8s.io/restart-attempt": attempt}
            await world.pod(f"job-node-0-0-{attempt}", {"state": ended(1)}, labels=labels)
        assert len(await world.found()) == 3


async def test_a_train_job_has_few_events_however_its_containers_fail() -> None:
    world = World()
    async with world.leading():
        for code in range(1, 40):
            await world.pod(f"job-node-0-{code}-abcde", {"state": ended(code)})
        assert len(await world.found()) == MAX_FAILURES


async def test_another_replica_records_nothing_again_and_what_failed_while_none_led() -> None:
    world = World()
    async with world.leading():
        await world.pod("job-node-0-0-abcde", {"state": ended(1)})
        await world.found()
    await world.pod("job-node-0-1-abcde", {"state": ended(1)})
    await world.pod("job-node-0-2-abcde", {"state": ended(2)})
    async with world.leading():
        found = await world.found()
    assert sorted(message.partition(" (step")[2] for message in found) == [
        " node) ended with exit code 1 (Error)",
        " node) ended with exit code 2 (Error)",
    ]


async def test_all_pages_of_pods_that_failed_before_are_read_at_a_start() -> None:
    world = World()
    for rank in range(250):
        await world.pod(f"job-node-0-{rank:03}-abcde", {"state": ended(1 + rank // 100)})
    async with world.leading():
        assert sorted(message.partition("code ")[2] for message in await world.found()) == [
            "1 (Error)",
            "2 (Error)",
            "3 (Error)",
        ]


async def test_train_jobs_that_had_ended_long_ago_cost_no_request_at_a_start() -> None:
    world = World()
    await world.fails(at=-601)
    for rank in range(300):
        await world.pod(f"job-node-0-{rank}-abcde", {"state": ended(1)})
    async with world.leading():
        assert await world.found() == []
        await world.pod("job-node-0-300-abcde", {"state": ended(1)})  # this container failed a moment ago
        assert len(await world.found()) == 1


async def test_a_failure_is_recorded_although_the_train_job_ended_while_no_manager_watched() -> None:
    world = World()
    await world.fails(at=-590)
    await world.pod("job-node-0-0-abcde", {"state": ended(1)})
    async with world.leading():
        assert len(await world.found()) == 1
    async with world.leading():
        assert len(await world.found()) == 1


async def test_a_failure_is_recorded_as_soon_as_job_sets_can_be_read() -> None:
    world = World()
    error: CacheDegradedError | None = CacheDegradedError(JobSet.gvk, "forbidden")

    async def get(inner: Any, kind: Any, key: Any) -> Any:
        if kind is JobSet and error is not None:
            raise error
        return await inner.get(kind, key)

    world.cache = interceptor.wrap(world.client, interceptor.Funcs(get=get))
    async with world.leading():
        await world.pod("job-node-0-0-abcde", {"state": ended(1)})
        await anyio.sleep(15)
        assert await world.found() == []
        error = None
        await anyio.sleep(10)
        assert len(await world.found()) == 1


async def test_a_train_job_of_another_controller_has_no_event() -> None:
    world = World(managed_by="kueue.x-k8s.io/multikueue")
    async with world.leading():
        await world.pod("job-node-0-0-abcde", {"state": ended(1)})
        assert await world.found() == []


async def test_without_the_right_readiness_has_one_line_and_the_feature_heals_when_it_is_granted() -> None:
    world = World()
    granted = False

    class Denied:
        async def list(self, kind: Any, **options: Any) -> Any:
            if not granted:
                raise ForbiddenError("pods is forbidden", code=403, reason="Forbidden")
            return await world.client.list(kind, **options)

        def watch(self, kind: Any, **options: Any) -> Any:
            return world.client.watch(kind, **options)

    world.reader = Denied()
    async with world.leading() as evidence:
        await world.pod("job-node-0-0-abcde", {"state": ended(1)})
        assert await world.found() == []
        assert evidence.remark() == "failures of pods are not recorded: pods is forbidden"
        assert [metric.labels["kind"] for metric in next(metrics.KIND_DEGRADED.collect()).samples] == ["Pod"]
        granted = True
        await anyio.sleep(10)
        assert len(await world.found()) == 1
        assert evidence.remark() is None
    assert not next(metrics.KIND_DEGRADED.collect()).samples
