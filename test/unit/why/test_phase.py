# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The phase of a TrainJob, and its tree."""

from collections.abc import Callable
from typing import Any

import pytest

from pkg.constants.trainer import LABEL_TRAIN_JOB_ANCESTOR
from pkg.why import LiveObject
from pkg.why.phase import phase, state, trainer_steps, training_step, tree
from testkit.why.states import pod_unknown
from testkit.why.world import TrainJobObjects, condition, when

MPI_WITHOUT_LAUNCHER = [{"name": "node", "ready": 1}, {"name": "launcher", "active": 1, "ready": 0}]


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        ("Pending", lambda job: None),
        ("Pending", lambda job: job["status"].update(jobsStatus=[{"name": "node", "active": 1, "ready": 0}])),
        ("Running", lambda job: job["status"].update(jobsStatus=[{"name": "node", "active": 1, "ready": 1}])),
        ("Running", lambda job: job["status"].update(jobsStatus=[{"name": "worker", "succeeded": 1}])),
        ("Pending", lambda job: job["status"].update(jobsStatus=[{"name": "initializer", "succeeded": 1}])),
        ("Pending", lambda job: job["status"].update(jobsStatus=[{"name": "model-initializer", "ready": 1}])),
        ("Pending", lambda job: job["status"].update(jobsStatus=MPI_WITHOUT_LAUNCHER)),
        ("Suspended", lambda job: job["spec"].update(suspend=True)),
        ("Complete", lambda job: job["status"].update(conditions=[condition("Complete")])),
        ("Failed", lambda job: job["status"].update(conditions=[condition("Failed")])),
        ("Pending", lambda job: job["status"].update(conditions=[condition("Suspended", "False")])),
        ("Deleting", lambda job: job["metadata"].update(deletionTimestamp=when(1))),
    ],
)
def test_the_phase_follows_the_conditions_and_counts(expected: str, change: Callable[[Any], Any]) -> None:
    world = TrainJobObjects()
    change(world.train_job)

    assert phase(LiveObject(world.train_job)) == expected


def test_the_tree_shows_each_object_below_its_owner() -> None:
    world = TrainJobObjects()
    world.waits("ImagePullBackOff", "Back-off pulling image")
    world.job["status"]["ready"] = 1

    rows = [(row.depth, row.obj.kind, row.status, row.reason) for row in tree(world.snapshot())]

    assert rows == [
        (0, "TrainJob", "Running", ""),
        (1, "JobSet", "Active", ""),
        (2, "Job", "Active", "1 of 2 pods ready"),
        (3, "Pod", "Pending", "ImagePullBackOff"),
        (3, "Pod", "Running", "worker-1"),
    ]


def test_the_tree_shows_what_is_being_deleted_and_how_containers_are() -> None:
    world = TrainJobObjects()
    world.job["metadata"]["deletionTimestamp"] = when(1)
    world.container(init=True, running={"startedAt": when(10)})
    world.ended(137, "OOMKilled", pod=1)

    rows = [(row.status, row.reason) for row in tree(world.snapshot())]

    assert rows[2][0] == "Deleting"
    assert rows[3:] == [("Pending", "init container node runs"), ("Failed", "OOMKilled (exit code 137)")]


def test_the_log_of_the_launcher_shows_the_training_of_mpi() -> None:
    world = TrainJobObjects()
    assert training_step(world.snapshot()) == "node"
    _label_steps(world, node="trainer", launcher="")
    assert training_step(world.snapshot()) == "launcher"


def test_a_pod_without_a_node_is_shown_with_the_reason() -> None:
    world = TrainJobObjects()
    world.unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")

    assert "Unschedulable" in [row.reason for row in tree(world.snapshot())]


def test_the_pods_of_an_ended_job_are_counted_by_their_success() -> None:
    world = TrainJobObjects()
    world.job["status"] = {"succeeded": 2, "conditions": [condition("Complete")]}

    assert [row.reason for row in tree(world.snapshot())][2] == "2 of 2 pods succeeded"


def test_the_tree_of_a_train_job_without_children_is_one_row() -> None:
    world = TrainJobObjects()
    world.without_children()

    assert [row.obj.kind for row in tree(world.snapshot())] == ["TrainJob"]


def _counts(*counts: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "active": 0, "ready": 0, "succeeded": 0, kind: 1} for name, kind in counts]


@pytest.mark.parametrize(
    ("expected", "counts"),
    [
        ("Pending", _counts(("initializer", "active"), ("node", "active"))),
        ("Pending (initializer runs)", _counts(("initializer", "ready"), ("node", "suspended"))),
        ("Pending (initializer done)", _counts(("initializer", "succeeded"), ("node", "active"))),
        (
            "Pending (1 of 2 initializers done)",
            _counts(("dataset-initializer", "succeeded"), ("model-initializer", "ready"), ("node", "active")),
        ),
        (
            "Pending (initializers done)",
            _counts(("dataset-initializer", "succeeded"), ("model-initializer", "succeeded")),
        ),
        ("Running", _counts(("initializer", "succeeded"), ("node", "ready"))),
        ("Pending", [{"name": 3, "ready": "1"}, "node", {"name": "initializer", "succeeded": "1"}]),
    ],
)
def test_a_pending_train_job_says_how_far_its_initializers_are(expected: str, counts: Any) -> None:
    world = TrainJobObjects()
    world.train_job["status"]["jobsStatus"] = counts

    assert state(LiveObject(world.train_job)) == expected


def _label_steps(world: TrainJobObjects, **labels: str) -> None:
    world.job_set["spec"]["replicatedJobs"] = [
        {"name": name, "template": {"metadata": {"labels": {LABEL_TRAIN_JOB_ANCESTOR: label}}}}
        for name, label in labels.items()
    ]


def test_the_labels_of_the_job_set_name_the_step_that_trains() -> None:
    world = TrainJobObjects()
    _label_steps(world, load="dataset-initializer", train="trainer")
    world.train_job["status"]["jobsStatus"] = _counts(("load", "succeeded"), ("train", "active"))

    assert trainer_steps(LiveObject(world.train_job), LiveObject(world.job_set)) == {"train"}
    assert state(LiveObject(world.train_job), LiveObject(world.job_set)) == "Pending (initializer done)"


def test_a_container_that_crashes_again_and_again_is_a_state_of_its_own() -> None:
    world = TrainJobObjects()
    world.waits("CrashLoopBackOff", "back-off 40s restarting failed container")

    assert next(tree(world.snapshot())).status == "CrashLoop"


def test_a_running_pod_is_shown_with_its_restarts() -> None:
    world = TrainJobObjects()
    world.container(phase="Running", restarts=2, running={"startedAt": when(25)})

    assert [row.reason for row in tree(world.snapshot())][3:] == ["worker-0, 2 restarts", "worker-1"]


def test_a_pod_that_is_being_deleted_does_not_make_a_train_job_run() -> None:
    world = TrainJobObjects(nodes=1)
    world.pods[0]["metadata"]["deletionTimestamp"] = when(1)

    assert next(tree(world.snapshot())).status == "Pending"


def test_pods_of_unknown_state_are_counted_and_say_why() -> None:
    world = TrainJobObjects()
    pod_unknown(world)

    rows = {row.obj.name: (row.status, row.reason) for row in tree(world.snapshot())}

    assert next(tree(world.snapshot())).status == "Running (1 pod lost)"
    assert rows["llama-node-0-0-abcde"] == ("Unknown", "node worker-0 does not report")
    world.train_job["status"]["conditions"] = [condition("Complete")]
    assert next(tree(world.snapshot())).status == "Complete"
