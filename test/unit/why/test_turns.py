# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a TrainJob waits, in numbers: its position in Kueue's queues, the missing quota, and the resources of queues."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, Unstructured
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import NoKindMatchError

from pkg.why import diagnose, kinds, reading
from pkg.why.causes import turns
from pkg.why.liveobject import LiveObject
from pkg.why.snapshot import NOT_INSTALLED
from testkit.why.world import NOW, TrainJobObjects

MESSAGE = (
    "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor a100, 4 more "
    "needed, insufficient unused quota for cpu in flavor a100, 500m more needed"
)


def pending(name: str, local: int, cluster: int) -> dict[str, Any]:
    """Return an item of the visibility API's answer."""
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": name,
        "uid": f"uid-{name}",
    }
    return {
        "metadata": {"name": f"trainjob-{name}-12345", "namespace": "team-a", "creationTimestamp": "2026-01-01T00:00:00Z",
                     "ownerReferences": [owner]},
        "priority": 0, "localQueueName": "team-queue", "positionInClusterQueue": cluster, "positionInLocalQueue": local,
    }  # fmt: skip


def world_in_queue() -> TrainJobObjects:
    world = TrainJobObjects()
    world.workload({"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": MESSAGE})
    return world


def finding(world: TrainJobObjects, items: list[dict[str, Any]], unread: str = "") -> Any:
    snapshot = world.snapshot()
    objects = {**snapshot.objects, turns.PENDING: [LiveObject(each) for each in items]}
    found = dataclasses.replace(
        snapshot, objects=objects, unread={**snapshot.unread, **({turns.PENDING: unread} if unread else {})}
    )
    verdict = diagnose(found)
    assert not verdict.unread
    return next(each for each in verdict.findings if each.cause == "queued")


def test_the_position_of_each_of_200_waiting_train_jobs_and_the_names_ahead_are_shown() -> None:
    items = [pending(f"job-{number}", number, 2 * number) for number in range(200)]
    for place in (0, 1, 5, 199):
        shown = [*items[:place], pending("llama", place, 2 * place), *items[place + 1 :]]
        evidence = "\n".join(finding(world_in_queue(), shown).evidence)
        assert f"position {2 * place + 1} in the ClusterQueue, and {place + 1} in the LocalQueue" in evidence
        assert ("ahead of it in the LocalQueue: job-0" in evidence) is (place > 0)
        assert (f"other LocalQueues of the ClusterQueue: {place}" in evidence) is (place > 0)
    assert "job-0, job-1, job-2 and 196 more" in evidence


def test_the_missing_quota_is_in_the_advice() -> None:
    advice = finding(world_in_queue(), []).advice

    assert advice.endswith("missing: 4 nvidia.com/gpu in flavor a100; 500m cpu in flavor a100.")
    assert turns.missing("insufficient unused quota for " * 1000) == ""


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (NOT_INSTALLED, "the cluster does not serve visibility.kueue.x-k8s.io"),
        ("localqueues is forbidden: User x", "get localqueues/pendingworkloads of visibility.kueue.x-k8s.io"),
        ("the server is not available", "the server is not available"),
    ],
)
def test_a_position_that_cannot_be_read_is_one_line(reason: str, line: str) -> None:
    evidence = finding(world_in_queue(), [], reason).evidence

    assert [line in each for each in evidence].count(True) == 1


def test_a_train_job_behind_the_first_page_of_its_queue_has_no_position() -> None:
    evidence = finding(world_in_queue(), [pending("other", 0, 0)]).evidence

    assert "it is not among the first 1 of the LocalQueue" in evidence[-1]


def test_there_is_a_range_only_from_enough_admissions_of_the_same_length() -> None:
    minutes = [NOW - timedelta(minutes=each) for each in (40, 38, 33, 30, 26, 20, 14, 12)]

    assert "in 0s to 4m: an admission of this LocalQueue took 2m to 6m" in turns.estimate(
        minutes, 1, NOW - timedelta(minutes=10)
    )
    assert turns.estimate(minutes, 4, NOW) == ""
    assert turns.estimate(minutes, 1, NOW) == "", "the wait is longer than any before"
    assert turns.estimate([], 1, NOW) == ""


async def answer_of(answers: dict[str, Any]) -> tuple[list[LiveObject], str]:
    """Read the position from a server that answers for these versions of the visibility API."""

    async def get(inner: Any, name: str, obj: Object, into: type[Object]) -> Object:
        assert (name, obj.key.name, obj.gvk.kind) == ("pendingworkloads", "team-queue", "LocalQueue")
        found = answers.get(obj.gvk.version)
        if found is None:
            raise NoKindMatchError(obj.gvk)
        if isinstance(found, Exception):
            raise found
        return Unstructured.wrap({"apiVersion": obj.gvk.api_version, "kind": into.gvk.kind, "items": found})

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(subresource_get=get))
    return await reading.pending(client.subresource("pendingworkloads"), "team-a", "team-queue")


async def test_both_versions_of_the_visibility_api_are_read() -> None:
    for version in ("v1beta2", "v1beta1"):
        found, reason = await answer_of({version: [pending("llama", 3, 7)]})
        assert not reason
        assert [each.number("positionInClusterQueue") for each in found] == [7]


async def test_an_absent_or_refused_visibility_api_gives_the_reason() -> None:
    assert await answer_of({}) == ([], NOT_INSTALLED)
    assert "forbidden" in (await answer_of({"v1beta2": ForbiddenError("pendingworkloads is forbidden")}))[1]
    assert len((await answer_of({"v1beta2": [pending("a", n, n) for n in range(3000)]}))[0]) == 1000


@pytest.mark.parametrize(
    ("version", "kind", "spec", "status", "line"),
    [
        ("scheduling.volcano.sh/v1beta1", kinds.VOLCANO_GROUP, {"capability": {"cpu": "8"}, "deserved": {"cpu": "4"}},
         {"allocated": {"cpu": "6"}}, "limit cpu 8; deserved cpu 4; allocated cpu 6"),
        ("scheduling.run.ai/v2", kinds.KAI_GROUP, {"resources": {"gpu": {"quota": 4, "limit": -1}}},
         {"allocated": {"nvidia.com/gpu": "4"}, "requested": {"nvidia.com/gpu": "12"}},
         "quota gpu 4; limit per resource gpu unlimited; allocated nvidia.com/gpu 4; requested nvidia.com/gpu 12"),
    ],
)  # fmt: skip
def test_the_resources_of_a_gangs_queue_are_shown(
    version: str, kind: str, spec: Any, status: Any, line: str
) -> None:
    queue = LiveObject(
        {"apiVersion": version, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec, "status": status}
    )
    snapshot = dataclasses.replace(TrainJobObjects().snapshot(), objects={queue.group_kind: [queue]})

    assert list(turns.resources(snapshot, queue.group_kind, "q")) == [f"Queue q: {line}"]
    assert list(turns.resources(snapshot, queue.group_kind, "other")) == []
