# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The list of ``trainerctl get``: JobSets and pods are read only if they make a state more exact."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from controller_runtime import rest
from controller_runtime.client import ObjectList
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import ForbiddenError
from pkg.constants.trainer import LABEL_TRAIN_JOB_ANCESTOR
from pkg.why import LiveObject
from testkit.why.world import TrainJobObjects

from trainerctl.cli import get, live, parser
from trainerctl.cli.terminal import Console

Connected = Callable[[Any], live.Connection]


class Server:
    """Lists the objects of a namespace, and records which kinds were asked for."""

    def __init__(self, objects: list[dict[str, Any]], forbidden: set[str]) -> None:
        self._objects = [LiveObject(each) for each in objects]
        self._forbidden = forbidden
        self.asked: list[tuple[str, Any]] = []
        self.transport: Any = None

    async def list(self, kind: Any, **options: Any) -> ObjectList[Any]:
        name = kind.gvk.kind
        self.asked.append((name, options.get("labels")))
        if name in self._forbidden:
            raise ForbiddenError(f"{name} is forbidden", code=403, reason="Forbidden")
        found = [dict(each.data) for each in self._objects if each.kind == name]
        return ObjectList([unstructured(kind.gvk).from_dict(each) for each in found])


async def listed(
    connected: Connected, world: TrainJobObjects, *forbidden: str
) -> tuple[str, list[tuple[str, Any]]]:
    """Return the state of the only TrainJob, and what was asked for."""
    server = Server(world.objects, set(forbidden))
    connected(server)
    out = io.StringIO()
    assert await get.get_command(parser.parse(["get"]), Console(file=out), Console(file=out)) == 0
    head, row = out.getvalue().splitlines()
    assert head.split() == ["NAME", "STATE", "AGE", "RUNTIME", "PROGRESS"]
    return row[head.index("STATE") : head.index("AGE")].strip(), server.asked


def counts(world: TrainJobObjects, **steps: str) -> None:
    world.train_job["status"]["jobsStatus"] = [
        {"name": name, "active": 0, "ready": 0, "succeeded": 0, kind: 1} for name, kind in steps.items()
    ]


async def test_a_train_job_with_ready_pods_needs_no_other_object(connected: Connected) -> None:
    world = TrainJobObjects()
    counts(world, node="ready")

    assert await listed(connected, world) == ("Running", [("TrainJob", None)])


async def test_the_pods_of_a_train_job_that_is_not_ready_tell_a_crash_loop(
    connected: Connected,
) -> None:
    world = TrainJobObjects()
    counts(world, node="active")
    world.waits("CrashLoopBackOff", "back-off 40s")

    state, asked = await listed(connected, world)

    assert state == "CrashLoop"
    assert asked[1:] == [("Pod", {"jobset.sigs.k8s.io/jobset-name": ["llama"]})]


async def test_the_job_set_of_a_train_job_with_several_steps_names_the_one_that_trains(
    connected: Connected,
) -> None:
    world = TrainJobObjects()
    counts(world, load="succeeded", train="suspended")
    world.job_set["spec"]["replicatedJobs"] = [
        {"name": name, "template": {"metadata": {"labels": {LABEL_TRAIN_JOB_ANCESTOR: label}}}}
        for name, label in (("load", "dataset-initializer"), ("train", "trainer"))
    ]

    assert (await listed(connected, world))[0] == "Pending (initializer done)"


async def test_a_list_needs_only_the_permission_to_list_train_jobs(connected: Connected) -> None:
    world = TrainJobObjects()
    counts(world, initializer="succeeded", node="active")

    assert (await listed(connected, world, "JobSet", "Pod"))[0] == "Pending (initializer done)"
    assert (await listed(connected, world, "Pod"))[0] == "Pending (initializer done)"


class Visibility:
    """Kueue's visibility API: each TrainJob of the list waits at the place that ``places`` gives."""

    def __init__(self, places: dict[str, int]) -> None:
        self.requests: list[str] = []
        self._items = [
            {
                "metadata": {
                    "name": f"trainjob-{name}",
                    "ownerReferences": [{"name": name, "uid": f"uid-{name}"}],
                },
                "localQueueName": "research",
                "positionInLocalQueue": place,
                "positionInClusterQueue": 2 * place,
            }
            for name, place in places.items()
        ]

    async def send(self, request: rest.Request) -> rest.Response:
        self.requests.append(request.path)
        if not self._items:
            return rest.CompleteResponse(404, b"404 page not found\n", {"Content-Type": "text/plain"})
        return rest.FakeResponse(200, {"items": self._items})


@pytest.mark.parametrize("is_served", [True, False])
async def test_the_list_shows_positions_in_the_queues_of_kueue(connected: Connected, is_served: bool) -> None:
    world = TrainJobObjects()
    world.suspend()
    metadata = {**world.train_job["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "research"}}
    jobs = [
        {**world.train_job, "metadata": {**metadata, "name": name, "uid": f"uid-{name}"}}
        for name in ("a", "b")
    ]
    server = Server([*jobs, world.train_job], set())
    server.transport = Visibility({"a": 4, "b": 0} if is_served else {})
    connected(server)
    out = io.StringIO()
    await get.get_command(parser.parse(["get"]), Console(file=out, width=200), Console(file=out))

    shown = ["position 5 in research, 9 in its ClusterQueue", "position 1 in research, 1 in its ClusterQueue"]
    assert [each in out.getvalue() for each in shown] == [is_served] * 2
    versions = ["v1beta2"] if is_served else ["v1beta2", "v1beta1"]
    path = "/apis/visibility.kueue.x-k8s.io/{}/namespaces/team-a/localqueues/research/pendingworkloads"
    assert server.transport.requests == [path.format(each) for each in versions]


def test_train_jobs_are_sorted_by_namespace_and_then_by_name() -> None:
    names = [("b", "a"), ("a", "z"), ("a", "c")]
    jobs = [LiveObject({"metadata": {"namespace": space, "name": name}}) for space, name in names]

    rows = get.rows_of(jobs, [], datetime(2026, 3, 2, tzinfo=UTC))

    assert [row[:2] for row in rows] == [("a", "c"), ("a", "z"), ("b", "a")]
