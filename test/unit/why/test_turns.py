# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a TrainJob waits, in numbers: its position in Kueue's queues, the missing quota, and the resources of queues."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime import rest

from pkg.why import diagnose, kinds, reading
from pkg.why.causes import turns
from pkg.why.liveobject import LiveObject
from pkg.why.snapshot import NOT_INSTALLED
from testkit.why.world import NOW, TrainJobObjects, condition

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


def test_the_newest_admissions_of_the_queue_say_when_it_may_be_admitted() -> None:
    world = world_in_queue()
    for number in range(7):
        admitted = condition("Admitted", age=60 * number + 10)
        spec, status = {"queueName": "team-queue"}, {"conditions": [admitted]}
        world.make("kueue.x-k8s.io/v1beta1", "Workload", f"w{number}", spec=spec, status=status)

    evidence = "\n".join(finding(world, [pending("llama", 0, 0)]).evidence)

    assert "it may be admitted in 50s to 50s: an admission of this LocalQueue took 60s" in evidence


def flavor(name: str, **quotas: str) -> dict[str, Any]:
    return {
        "name": name,
        "resources": [{"name": each.replace("_", "/"), "nominalQuota": quotas[each]} for each in quotas],
    }


def reserved(name: str, gpus: str) -> dict[str, Any]:
    return {"name": name, "resources": [{"name": "gpu", "total": gpus, "borrowed": "0"}]}


def queue_of_kueue(world: TrainJobObjects, *flavors: dict[str, Any], used: Any = (), **spec: Any) -> None:
    """Let the TrainJob, whose two pods request 8 GPUs, wait in a ClusterQueue of these flavors."""
    template = {"spec": {"containers": [{"name": "node", "resources": {"limits": {"gpu": "4"}}}]}}
    world.workload(spec={"podSets": [{"name": "node", "count": 2, "template": template}]})
    version = "kueue.x-k8s.io/v1beta1"
    local = world.make(version, "LocalQueue", "team-queue")
    local["spec"] = {"clusterQueue": "gpus"}
    queue = world.make(version, "ClusterQueue", "gpus")
    queue["metadata"].pop("namespace", None)
    queue["spec"] = {"resourceGroups": [{"coveredResources": ["gpu"], "flavors": list(flavors)}], **spec}
    queue["status"] = {"flavorsReservation": list(used)}


@pytest.mark.parametrize(
    ("flavors", "used", "spec", "line", "advice"),
    [
        pytest.param([flavor("a100", gpu="16")], [reserved("a100", "12")], {}, "gpu reserved: 12 of 16 in flavor a100; the TrainJob requests 8",
                     "Wait for quota of the queue, or ask its administrator; missing: 4 gpu in flavor a100.", id="used by others"),
        pytest.param([flavor("a100", gpu="16")], [], {}, "gpu reserved: 0 of 16 in flavor a100; the TrainJob requests 8",
                     "Wait for quota of the queue, or ask its administrator.", id="free"),
        pytest.param([flavor("a100", gpu="16"), flavor("spot", gpu="9")], [reserved("a100", "16"), reserved("spot", "2")], {},
                     "gpu reserved: 16 of 16 in flavor a100, 2 of 9 in flavor spot; the TrainJob requests 8",
                     "missing: 8 gpu in flavor a100; 1 gpu in flavor spot.", id="two flavors"),
        pytest.param([flavor("a100", gpu="16"), flavor("spot", gpu="9")], [reserved("a100", "16")], {}, "0 of 9 in flavor spot",
                     "or ask its administrator.", id="one of two flavors is free"),
        pytest.param([flavor("a100", gpu="6")], [], {}, "0 of 6 in flavor a100",
                     "missing: 8 gpu are requested in flavor a100, whose maximum is 6.", id="too small"),
        pytest.param([flavor("a100", gpu="6")], [], {"cohortName": "all"}, "0 of 6 in flavor a100",
                     "or ask its administrator.", id="a cohort lends"),
        pytest.param([flavor("a100", gpu="many"), flavor("spot", gpu="9")], [], {}, "gpu reserved: 0 of 9 in flavor spot",
                     "or ask its administrator.", id="malformed quota"),
    ],
)  # fmt: skip
def test_the_quotas_of_a_train_job_that_kueue_has_not_tried_come_from_its_cluster_queue(
    flavors: Any, used: Any, spec: Any, line: str, advice: str
) -> None:
    world = TrainJobObjects()
    queue_of_kueue(world, *flavors, used=used, **spec)

    verdict = world.verdict()

    assert any(line in each for each in verdict.findings[0].evidence)
    assert verdict.findings[0].advice.endswith(advice)
    assert verdict.exit_code == (1 if "maximum" in advice else 3)


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
    later = NOW - timedelta(minutes=9, seconds=30)
    assert "in 0s to 4m:" in turns.estimate(minutes, 1, later), "the end of 210 s is rounded up"
    text = turns.estimate(minutes, 1, NOW - timedelta(minutes=10))
    assert text.endswith("among its last 8; the newest was 2m ago")
    assert turns.estimate(minutes, 4, NOW) == ""
    assert turns.estimate(minutes[2:], 1, NOW - timedelta(minutes=10)), "five times are enough"
    assert turns.estimate(minutes[3:], 1, NOW - timedelta(minutes=10)) == "", "four are not"
    assert turns.estimate(minutes, 1, NOW) == "", "the wait is longer than any before"
    assert turns.estimate([], 1, NOW) == ""


class VisibilityServer:
    """Answers as Kueue's server: in the summary, only the items have names."""

    def __init__(self, version: str, items: list[dict[str, Any]], status: int = 200) -> None:
        self.requests: list[str] = []
        self._version, self._items, self._status = version, items, status

    async def send(self, request: rest.Request) -> rest.Response:
        query = dict(request.query)
        self.requests.append(query["offset"])
        api = f"/apis/visibility.kueue.x-k8s.io/{self._version}"
        if self._status == 403:
            return rest.FakeResponse(403, failure(403, "Forbidden", "localqueues is forbidden"))
        if request.path != f"{api}/namespaces/team-a/localqueues/team-queue/pendingworkloads":
            return rest.CompleteResponse(404, b"404 page not found\n", {"Content-Type": "text/plain"})
        offset, limit = int(query["offset"]), int(query["limit"])
        summary = {
            "kind": "PendingWorkloadsSummary",
            "apiVersion": api.removeprefix("/apis/"),
            "metadata": {},
        }
        return rest.FakeResponse(200, {**summary, "items": self._items[offset : offset + limit]})


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


QUEUE = ("team-a", "team-queue")
LAST = "trainjob-llama-12345"


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_both_versions_of_the_visibility_api_are_read(version: str) -> None:
    server = VisibilityServer(version, [pending("llama", 3, 7)])
    found, reason = await reading.pending(server, *QUEUE, LAST)

    assert not reason
    assert [each.number("positionInClusterQueue") for each in found] == [7]
    assert turns.places(found) == {"uid-llama": "position 4 in team-queue, 8 in its ClusterQueue"}


async def test_pages_are_read_until_the_workload_is_found_and_at_most_ten() -> None:
    items = [pending(f"job-{number}", number, number) for number in range(20_000)]
    server = VisibilityServer("v1beta2", [*items[:700], pending("llama", 700, 700), *items[701:]])
    found, _ = await reading.pending(server, *QUEUE, LAST)
    assert (len(found), server.requests) == (1000, ["0", "500"])

    server = VisibilityServer("v1beta2", items)
    found, _ = await reading.pending(server, *QUEUE, LAST)
    assert (len(found), len(server.requests)) == (5000, 10)


async def test_an_absent_or_refused_visibility_api_gives_the_reason() -> None:
    assert await reading.pending(VisibilityServer("v1", []), *QUEUE) == ([], NOT_INSTALLED)
    assert "forbidden" in (await reading.pending(VisibilityServer("v1beta2", [], 403), *QUEUE))[1]


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


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_a_queue_that_was_stopped_after_kueue_tried_the_train_job_is_the_cause(kind: str) -> None:
    world = TrainJobObjects()
    queue_of_kueue(world, flavor("a100", gpu="16"))
    workload = next(each for each in world.objects if each["kind"] == "Workload")
    workload["status"]["conditions"] = [condition("QuotaReserved", "False", "Pending", MESSAGE)]
    queue = next(each for each in world.objects if each["kind"] == kind)
    queue["status"] = {"conditions": [condition("Active", "False", "Stopped", f"{kind} is stopped")]}

    (found,) = world.verdict().findings

    assert (found.cause, found.summary) == (
        "queue-inactive", f"the queue team-queue does not admit jobs: {kind} is stopped"
    )  # fmt: skip
    assert found.evidence[0].startswith(f"condition Active of {kind}")


def test_a_train_job_that_kueue_preempted_has_a_place_in_the_queue_and_the_names_of_those_that_took_its_quota() -> (
    None
):
    world = TrainJobObjects()
    queue_of_kueue(world, flavor("a100", gpu="16"), used=[reserved("a100", "16")])
    words = "Preempted to accommodate a workload (UID: abc-1, JobUID: 1) due to prioritization in the ClusterQueue"
    workload = next(each for each in world.objects if each["kind"] == "Workload")
    workload["status"]["conditions"] = [condition("Evicted", reason="Preempted", message=words)]
    other = world.make("kueue.x-k8s.io/v1beta1", "Workload", "trainjob-urgent-1")
    other["metadata"] |= {
        "uid": "abc-1",
        "ownerReferences": [{"kind": "TrainJob", "name": "urgent", "uid": "1"}],
    }
    snapshot = world.snapshot()
    objects = {**snapshot.objects, turns.PENDING: [LiveObject(pending("llama", 2, 4))]}

    (found,) = diagnose(dataclasses.replace(snapshot, objects=objects)).findings

    assert found.cause == "workload-evicted"
    assert found.evidence[0] == "it was preempted for urgent, Workload trainjob-urgent-1"
    assert "position 5 in the ClusterQueue, and 3 in the LocalQueue team-queue" in found.evidence
    assert found.advice == "Wait until Kueue admits it again; missing: 8 gpu in flavor a100."
