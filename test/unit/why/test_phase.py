# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The phase of a TrainJob, and its tree."""

from collections.abc import Callable
from typing import Any

import pytest

from pkg.why import LiveObject
from pkg.why.phase import phase, tree
from testkit.why.world import TrainJobObjects, condition, when


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        ("Pending", lambda job: None),
        ("Pending", lambda job: job["status"].update(jobsStatus=[{"name": "node", "active": 1, "ready": 0}])),
        ("Running", lambda job: job["status"].update(jobsStatus=[{"name": "node", "active": 1, "ready": 1}])),
        ("Running", lambda job: job["status"].update(jobsStatus=[{"name": "initializer", "succeeded": 1}])),
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
        (0, "TrainJob", "Pending", ""),
        (1, "JobSet", "Active", ""),
        (2, "Job", "Active", "1 of 2 pods ready"),
        (3, "Pod", "Pending", "ImagePullBackOff"),
        (3, "Pod", "Running", "worker-1"),
    ]


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
