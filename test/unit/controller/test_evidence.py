# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The events about failed containers, with an in-memory API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.cache import CacheDegradedError
from controller_runtime.client import interceptor
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.machinery.meta import format_time

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.evidence import MAX_FAILURES, FailureEvidence
from testkit.trainjobs import KEY, START, ReconcilerWorld, built_world, ended_condition


def when(seconds: float) -> str:
    return format_time(START + timedelta(seconds=seconds))


def ended(code: int = 1, reason: str = "Error", message: str = "", at: float = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": when(at)}}


@asynccontextmanager
async def leading(
    w: ReconcilerWorld, *, reader: Any = None, cache: Any = None
) -> AsyncIterator[FailureEvidence]:
    """Run the runnable as the leader does; a second call is another replica that becomes the leader."""
    reader, cache = reader or w.server, cache or w.server
    async with w.leading(lambda recorder: FailureEvidence(reader, cache, recorder, now=w.clock)) as evidence:
        await anyio.sleep(1)
        yield evidence


async def fails(w: ReconcilerWorld, at: float) -> None:
    """Let the TrainJob fail."""
    job = await w.server.get(TrainJob, KEY)
    (condition,) = ended_condition("Failed")["conditions"]
    job.status = job.status.from_dict({"conditions": [{**condition, "lastTransitionTime": when(at)}]})
    await w.server.status.update(job)


async def pod(
    w: ReconcilerWorld,
    name: str,
    *containers: dict[str, Any],
    phase: str = "Failed",
    labels: Any = None,
    init: Any = (),
) -> None:
    """Create a pod and then write its status, as a kubelet does."""
    of_job = {"jobset.sigs.k8s.io/jobset-name": KEY.name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    metadata = {"namespace": KEY.namespace, "name": name, "labels": of_job | (labels or {})}
    made = await w.server.create(Pod.from_dict({"metadata": metadata, "spec": {"containers": []}}))
    status = {
        "phase": phase,
        "containerStatuses": [{"name": "node", "state": {}, **each} for each in containers],
        "initContainerStatuses": [{"name": "prepare", **each} for each in init],
    }
    made.set_unchecked("status", type(made.status).from_dict(status))
    await w.server.status.update(made)


async def found(w: ReconcilerWorld) -> list[str]:
    await anyio.sleep(1)
    events = await w.events.list(Event)
    about = {(each.reason, each.type, each.involved_object and each.involved_object.name) for each in events}
    assert about <= {("ContainerFailed", "Warning", "job")}
    return [each.message or "" for each in events]


async def codes_of(w: ReconcilerWorld) -> list[int]:
    return [int(message.partition("exit code ")[2].partition(" ")[0]) for message in await found(w)]


async def test_a_container_that_failed_is_an_event_of_its_train_job() -> None:
    w = await built_world()
    async with leading(w):
        await pod(w, "job-node-0-0-abcde", {"state": ended(137, "OOMKilled")})
        assert await found(w) == [
            "Container node of Pod job-node-0-0-abcde (step node) ended with exit code 137 (OOMKilled)"
        ]


async def test_the_end_of_a_long_message_is_kept_in_one_line() -> None:
    w = await built_world()
    async with leading(w):
        await pod(
            w,
            "job-node-0-0-abcde",
            {"state": ended(message="x" * 5000 + "\n  ValueError:\tbad learning rate\x1b\n")},
        )
        (message,) = await found(w)
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
    w = await built_world()
    parts = dict(parts)
    container = {"state": parts.pop("state", ended(parts.pop("code", 1)))}
    if "last_state" in parts:
        container["lastState"] = parts.pop("last_state")
    async with leading(w):
        await pod(w, "job-node-0-0-abcde", container, **parts)
        assert await codes_of(w) == codes


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
    w = await built_world()
    w.server.add(Pod.from_dict({"metadata": metadata, "status": status}))
    async with leading(w):
        assert await codes_of(w) == codes


async def test_containers_that_fail_alike_share_an_event_in_each_run_of_the_job_set() -> None:
    w = await built_world()
    async with leading(w):
        for rank in range(20):
            await pod(w, f"job-node-0-{rank}-abcde", {"state": ended(1)})
        assert len(await found(w)) == 1
        for attempt in ("1", "2"):
            labels = {"jobset.sigs.k8s.io/restart-attempt": attempt}
            await pod(w, f"job-node-0-0-{attempt}", {"state": ended(1)}, labels=labels)
        assert len(await found(w)) == 3


async def test_a_train_job_has_few_events_however_its_containers_fail() -> None:
    w = await built_world()
    async with leading(w):
        for code in range(1, 40):
            await pod(w, f"job-node-0-{code}-abcde", {"state": ended(code)})
        assert len(await found(w)) == MAX_FAILURES
        labels = {"jobset.sigs.k8s.io/restart-attempt": "1"}
        await pod(w, "job-node-0-0-again", {"state": ended(9)}, labels=labels)
        assert len(await found(w)) == MAX_FAILURES + 1  # the next run of the JobSet has events of its own


async def test_another_replica_records_nothing_again_and_what_failed_while_none_led() -> None:
    w = await built_world()
    async with leading(w):
        await pod(w, "job-node-0-0-abcde", {"state": ended(1)})
        await found(w)
    await pod(w, "job-node-0-1-abcde", {"state": ended(1)})
    await pod(w, "job-node-0-2-abcde", {"state": ended(2)})
    async with leading(w):
        assert sorted(await codes_of(w)) == [1, 2]


async def test_all_pages_of_pods_that_failed_before_are_read_at_a_start() -> None:
    w = await built_world()
    for rank in range(250):
        await pod(w, f"job-node-0-{rank:03}-abcde", {"state": ended(1 + rank // 100)})
    async with leading(w):
        assert sorted(await codes_of(w)) == [1, 2, 3]


async def test_train_jobs_that_had_ended_long_ago_cost_no_request_at_a_start() -> None:
    w = await built_world()
    await fails(w, at=-601)
    for rank in range(300):
        await pod(w, f"job-node-0-{rank}-abcde", {"state": ended(1)})
    async with leading(w):
        assert await found(w) == []
        await pod(w, "job-node-0-300-abcde", {"state": ended(1)})  # this container failed a moment ago
        assert len(await found(w)) == 1


async def test_a_failure_is_recorded_although_the_train_job_ended_while_no_manager_watched() -> None:
    w = await built_world()
    await fails(w, at=-590)
    await pod(w, "job-node-0-0-abcde", {"state": ended(1)})
    async with leading(w):
        assert len(await found(w)) == 1
    async with leading(w):
        assert len(await found(w)) == 1


async def test_a_failure_is_recorded_as_soon_as_job_sets_can_be_read() -> None:
    w = await built_world()
    error: CacheDegradedError | None = CacheDegradedError(JobSet.gvk, "forbidden")

    async def get(inner: Any, kind: Any, key: Any) -> Any:
        if kind is JobSet and error is not None:
            raise error
        return await inner.get(kind, key)

    async with leading(w, cache=interceptor.wrap(w.server, interceptor.Funcs(get=get))):
        await pod(w, "job-node-0-0-abcde", {"state": ended(1)})
        await anyio.sleep(15)
        assert await found(w) == []
        error = None
        await anyio.sleep(10)
        assert len(await found(w)) == 1


async def test_a_train_job_of_another_controller_has_no_event() -> None:
    w = await built_world()
    await w.train_job(lambda job: setattr(job.spec, "managed_by", "kueue.x-k8s.io/multikueue"))
    async with leading(w):
        await pod(w, "job-node-0-0-abcde", {"state": ended(1)})
        assert await found(w) == []


async def test_without_the_right_readiness_has_one_line_and_the_feature_heals_when_it_is_granted() -> None:
    w = await built_world()
    granted = False

    class Denied:
        async def list(self, kind: Any, **options: Any) -> Any:
            if not granted:
                raise ForbiddenError("pods is forbidden", code=403, reason="Forbidden")
            return await w.server.list(kind, **options)

        def watch(self, kind: Any, **options: Any) -> Any:
            return w.server.watch(kind, **options)

    async with leading(w, reader=Denied()) as evidence:
        await pod(w, "job-node-0-0-abcde", {"state": ended(1)})
        assert await found(w) == []
        assert evidence.remark() == "failures of pods are not recorded: pods is forbidden"
        assert [metric.labels["kind"] for metric in next(metrics.KIND_DEGRADED.collect()).samples] == ["Pod"]
        granted = True
        await anyio.sleep(10)
        assert len(await found(w)) == 1
        assert evidence.remark() is None
    assert not next(metrics.KIND_DEGRADED.collect()).samples
