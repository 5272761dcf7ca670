# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs beside the JobSet are written, replaced and reported; no gang is left incomplete."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from controller_runtime.client import Client, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import InvalidError, NotFoundError
from controller_runtime.rest import PublishedSchema

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.applier import Memories
from pkg.controller.reports import LONG, Reports
from pkg.runtime import Runtime, Waiting
from pkg.runtime.framework import UnavailableError
from testkit.recorder import Recorder
from testkit.trainjobs import KEY, START, WORKLOAD, ReconcilerWorld, built_world, suspended_world, world

KINDS: dict[str, type[Object]] = {
    "v1alpha1": v1alpha1.Workload,
    "v1alpha2": v1alpha2.PodGroup,
    "v1beta1": v1beta1.PodGroup,
}


class Cluster:
    """Publishes the schemas of one version of the gang API, or of none for an unknown ``version``."""

    def __init__(self, version: str) -> None:
        self.version = version

    async def published(self, kind: type[Object], _known: PublishedSchema | None) -> PublishedSchema | None:
        return PublishedSchema("1", {}) if kind in (JobSet, KINDS.get(self.version)) else None


async def serve(w: ReconcilerWorld, version: str) -> Cluster:
    cluster = Cluster(version)
    w.published = cluster.published
    await w.restart()
    return cluster


async def count(w: ReconcilerWorld, version: str) -> int:
    spec: dict[str, Any] = (await w.server.get(KINDS[version], KEY)).to_dict()["spec"]
    policy = spec["podGroups"][0]["policy"] if version == "v1alpha1" else spec["schedulingPolicy"]
    return int(policy["gang"]["minCount"])


async def outdate(w: ReconcilerWorld) -> None:
    """Store a gang with another number of pods than the TrainJob's."""
    other = (await w.server.get(v1alpha2.PodGroup, KEY)).deep_copy()
    assert other.spec.scheduling_policy is not None
    assert other.spec.scheduling_policy.gang is not None
    other.spec.scheduling_policy.gang.min_count = 9
    await w.server.unrecorded(w.server.update, other)


@pytest.mark.parametrize("version", KINDS)
async def test_a_gang_and_its_job_set_are_two_requests_and_nothing_follows(version: str) -> None:
    w = await world(WORKLOAD)
    await serve(w, version)
    kind = KINDS[version].gvk.kind

    assert await w.reconcile() == [f"apply {kind}", "apply JobSet"]
    for _ in range(3):
        assert await w.reconcile() == []
    assert await count(w, version) == 2
    await w.server.observe(active=1)
    assert await w.reconcile() == []


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
async def test_an_immutable_gang_is_deleted_and_built_again_before_the_job_set_is_resumed(
    version: str,
) -> None:
    w = await world(WORKLOAD, suspend=True)
    await serve(w, version)
    await w.reconcile()
    await w.server.observe(suspended=1)
    await w.edit_nodes(3)
    await w.suspend(False)
    kind, requests = KINDS[version].gvk.kind, []
    for _ in range(6):
        requests += await w.reconcile()
        if (await w.server.get(JobSet, KEY)).metadata.deletion_timestamp:
            requests += await w.rebuilt()
    assert await count(w, version) == 3
    assert (await w.job_set())["spec"]["suspend"] is False
    writes = [each for each in requests if "dry run" not in each]
    assert writes.count(f"delete {kind}") == 1
    assert writes.index(f"delete {kind}") < writes.index(f"apply {kind}") < len(writes) - 1
    assert writes[-1] == "apply JobSet"


async def test_in_v1beta1_the_count_changes_in_place() -> None:
    w = await suspended_world(WORKLOAD)
    await w.edit_nodes(3)
    requests = await w.reconcile()
    if (await w.server.get(JobSet, KEY)).metadata.deletion_timestamp:
        requests += await w.rebuilt()
    assert await count(w, "v1beta1") == 3
    assert "delete PodGroup" not in requests


async def test_a_gang_whose_change_the_server_refuses_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the server notices that an apply would remove a field that an earlier apply set."""
    w = await suspended_world(WORKLOAD)
    await w.edit_nodes(3)
    plain = w.server.apply
    refusals: list[Object] = []
    text = 'PodGroup.scheduling.k8s.io "job" is invalid: spec.priorityClassName: field is immutable'

    async def apply(obj: Any, **options: Any) -> Any:
        if isinstance(obj, v1beta1.PodGroup) and not refusals:
            refusals.append(obj)
            details = {"group": "scheduling.k8s.io", "kind": "PodGroup", "name": "job"}
            raise InvalidError(text, code=422, reason="Invalid", details=details)
        return await plain(obj, **options)

    monkeypatch.setattr(w.server, "apply", apply)
    requests = []
    for _ in range(4):
        requests += await w.reconcile()
        with contextlib.suppress(NotFoundError):
            if (await w.server.get(JobSet, KEY)).metadata.deletion_timestamp:
                await w.server.collect()
    assert requests.count("delete PodGroup") == 1
    assert await count(w, "v1beta1") == 3
    assert await w.reconcile() == []


async def test_a_gang_is_not_replaced_while_its_pods_run() -> None:
    w = await world(WORKLOAD, suspend=True)
    await serve(w, "v1alpha2")
    await w.reconcile()
    await w.server.observe(active=1)
    await outdate(w)

    assert await w.reconcile() == []
    assert w.result.requeue_after == timedelta(seconds=10)
    await w.server.observe(suspended=1)
    assert await w.reconcile() == ["delete PodGroup"]
    assert "apply PodGroup" in await w.reconcile()
    assert await count(w, "v1alpha2") == 2


async def test_an_outdated_gang_that_another_client_deletes_first_causes_no_warning() -> None:
    w = await suspended_world(WORKLOAD)
    await serve(w, "v1alpha2")
    await w.reconcile()
    await outdate(w)

    async def delete_first(inner: Client, obj: Object, **options: Any) -> None:
        await inner.delete(obj)
        await inner.delete(obj, **options)

    await w.restart(interceptor.Funcs(delete=delete_first))
    await w.reconcile()
    assert w.result.requeue_after
    assert w.recorder.events == []


@pytest.mark.parametrize("active", [0, 1], ids=["before its Jobs are reported", "while its Jobs run"])
async def test_a_job_set_is_suspended_before_its_outdated_gang_is_replaced(active: int) -> None:
    w = await world(WORKLOAD, suspend=True)
    await serve(w, "v1alpha2")
    await w.reconcile()
    await w.server.observe(suspended=1)
    await w.suspend(False)
    await w.reconcile()
    assert (await w.job_set())["spec"]["suspend"] is False
    await w.server.observe(active=active)
    await outdate(w)
    await w.suspend(True)

    writes = await w.reconcile()
    assert writes[:1] == ["apply JobSet"]
    assert "delete PodGroup" not in writes
    assert (await w.job_set())["spec"]["suspend"] is True


async def test_a_gang_that_is_being_deleted_is_awaited_before_the_job_set_runs() -> None:
    w = await world(WORKLOAD, suspend=True)
    await serve(w, "v1alpha2")
    await w.reconcile()
    await w.server.observe(suspended=1)
    held = (await w.server.get(v1alpha2.PodGroup, KEY)).deep_copy()
    held.metadata.finalizers = ["scheduling.k8s.io/podgroup-protection"]
    await w.server.unrecorded(w.server.delete, await w.server.unrecorded(w.server.update, held))
    await w.suspend(False)

    assert await w.reconcile() == []
    assert (await w.job_set())["spec"]["suspend"] is True


@pytest.mark.parametrize("version", KINDS)
async def test_a_gang_that_finalizers_keep_for_long_is_reported_once(version: str) -> None:
    w = await world(WORKLOAD, suspend=True)
    await serve(w, version)
    await w.reconcile()
    await w.server.observe(suspended=1)
    held = await w.server.get(KINDS[version], KEY)
    held.metadata.finalizers = ["scheduling.k8s.io/podgroup-protection"]
    await w.server.delete(await w.server.update(held))
    await w.suspend(False)
    for after, expected in ((LONG / 2, 0), (LONG, 1), (LONG * 2, 1)):
        w.now = START + after
        await w.reconcile()
        assert w.result.requeue_after == timedelta(seconds=10)
        assert sum("WaitingForDeletion" in each for each in w.recorder.events) == expected
    assert "podgroup-protection" in w.recorder.events[-1]


async def test_without_the_api_nothing_is_created_and_the_condition_lasts_as_long_as_that() -> None:
    w = await world(WORKLOAD)
    cluster = await serve(w, "none")
    before = len(w.server.calls)
    with pytest.raises(ExceptionGroup, match="serves no gangs"):
        await w.reconcile()
    assert not [call for call in w.server.calls[before:] if call.is_write and not call.subresource]
    assert (await w.conditions())["GangSchedulingUnavailable"] == ("True", "GangAPINotServed")
    assert [each for each in w.recorder.events if "the API server serves no gangs" in each]

    cluster.version = "v1beta1"
    await w.restart()
    assert await w.reconcile() == ["apply PodGroup", "apply JobSet"]
    assert "GangSchedulingUnavailable" not in await w.conditions()


async def test_a_running_job_whose_api_disappears_runs_on_and_can_be_suspended_but_not_resumed() -> None:
    w = await world(WORKLOAD)
    cluster = await serve(w, "v1beta1")
    await w.reconcile()
    await w.server.observe(active=1)
    cluster.version = "none"
    await w.restart()
    assert await w.reconcile() == []
    assert "GangSchedulingUnavailable" not in await w.conditions()

    await w.suspend(True)
    with pytest.raises(UnavailableError):
        await w.reconcile()
    assert (await w.job_set())["spec"]["suspend"] is True
    await w.server.observe(suspended=1)
    await w.suspend(False)
    with pytest.raises(UnavailableError):
        await w.reconcile()
    assert (await w.job_set())["spec"]["suspend"] is True


async def test_why_a_gang_waits_is_an_event_once_for_each_reason() -> None:
    w = await built_world(WORKLOAD)

    async def scheduler_reports(status: str, reason: str, message: str) -> None:
        group = await w.server.get(v1beta1.PodGroup, KEY)
        condition = {"type": v1beta1.SCHEDULED, "status": status, "reason": reason, "message": message}
        group.status = group.status.from_dict({"conditions": [condition]})
        await w.server.unrecorded(w.server.status.update, group)
        await w.reconcile()

    await scheduler_reports("False", "Unschedulable", "0/4 nodes are available")
    await scheduler_reports("False", "Unschedulable", "0/5 nodes are available")
    await scheduler_reports("False", "SchedulerError", "boom")
    await scheduler_reports("True", "Scheduled", "")
    events = [each for each in w.recorder.events if "GangWaiting" in each]
    assert events == [
        "Warning GangWaiting: Unschedulable: 0/4 nodes are available",
        "Warning GangWaiting: SchedulerError: boom",
    ]


async def test_the_gang_of_a_new_train_job_of_the_same_name_is_reported_again() -> None:
    """The TrainJob may have been deleted and created again between two reconciles."""
    recorder = Recorder()
    reports = Reports(FakeClient(), recorder, lambda: START, Memories())
    runtime = SimpleNamespace(why_waiting=AsyncMock(return_value=Waiting("Unschedulable", "0/4 nodes")))
    for uid in ("one", "one", "two"):
        job = TrainJob.from_dict({"metadata": {"namespace": "team", "name": "llama", "uid": uid}})
        await reports.gang(cast("Runtime", runtime), job)
    assert len(recorder.events) == 2


async def test_the_event_of_a_waiting_gang_is_one_line() -> None:
    recorder = Recorder()
    runtime = SimpleNamespace(
        why_waiting=AsyncMock(return_value=Waiting("Odd", "0/4\nWarning  Forged\u202e\u200b"))
    )
    job = TrainJob.from_dict({"metadata": {"namespace": "team", "name": "llama", "uid": "u"}})
    await Reports(FakeClient(), recorder, lambda: START, Memories()).gang(cast("Runtime", runtime), job)
    assert recorder.events == [r"Warning GangWaiting: Odd: 0/4\nWarning  Forged\u202e\u200b"]
