# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time to find a cause in the message of an event is bounded, because tenants can write events of any size."""

import time

import pytest

from pkg.why import LiveObject
from pkg.why.causes import capacity, refusals, scheduling
from testkit.why.world import TrainJobObjects

SIZE = 1 << 20
JOB = LiveObject({"kind": "Job", "metadata": {"name": "llama", "namespace": "team-a"}})


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("exceeded quota: a, requested: , used: ", id="quota"),
        pytest.param("A", id="kind"),
        pytest.param("a b", id="two words"),
        pytest.param("1", id="digits"),
        pytest.param("storageclass", id="storage class"),
        pytest.param("exceeded quota: a, requested: " * 30 + ", used: " * 70, id="quota with many parts"),
    ],
)
def test_the_time_for_a_refusal_is_bounded(part: str) -> None:
    began = time.process_time()
    refusals.refused(part * (SIZE // len(part)), JOB)
    assert time.process_time() - began < 8


def test_a_number_of_nodes_has_few_digits() -> None:
    found = scheduling._SHORT.search("1" * 5000 + " Insufficient cpu")
    assert found is not None
    assert int(found["nodes"]) == 10**9 // 9


def test_the_resources_of_a_quota_are_named() -> None:
    message = "exceeded quota: a, requested: cpu=1,pods=2, used: cpu=3, limited: cpu=4"
    assert refusals.refused(message, JOB).summary.endswith("requested cpu=1,pods=2, used cpu=3, limit cpu=4")


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_times_and_graces_of_any_size_do_no_harm(year: str) -> None:
    metadata = {
        "name": "a",
        "deletionTimestamp": f"{year}-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 1 << 62,
    }
    assert LiveObject({"metadata": metadata}).deletion_requested is None

    world = TrainJobObjects()
    world.ended(137)
    world.pods[0]["spec"]["terminationGracePeriodSeconds"] = 1 << 62
    world.lease["spec"] |= {"leaseDurationSeconds": 1 << 62, "renewTime": f"{year}-01-01T00:00:00Z"}
    world.event(world.pods[0], "Killing", "Container node failed liveness probe, will be restarted", age=22)
    assert world.verdict().findings[0].cause == "probe-failing"


@pytest.mark.parametrize(("requested", "rule"), [(8, "quota-exceeded"), (9, "quota-exceeded/never")])
def test_a_pod_that_requests_all_of_a_quota_may_wait_for_it(requested: int, rule: str) -> None:
    message = f"exceeded quota: a, requested: cpu={requested}, used: cpu=1, limited: cpu=8"
    assert refusals.refused(message, JOB).rule == rule


def test_the_largest_init_container_counts_and_sidecars_are_added() -> None:
    def container(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    inits = [container("1", restartPolicy="Always"), container("6")]
    pod = LiveObject({"spec": {"containers": [container("2")], "initContainers": inits}})
    assert capacity.requested(pod, "cpu") == "7"
    pod = LiveObject({"spec": {"containers": [container("2"), container("5")], "initContainers": inits}})
    assert capacity.requested(pod, "cpu") == "8"
