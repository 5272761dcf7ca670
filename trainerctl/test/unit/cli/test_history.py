# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl history``: TrainJobs that have ended, and those that only events name."""

from typing import Any

from pkg.why import Thing
from testkit.why.world import World, condition

from trainerctl.cli import history


def job(name: str, *conditions: dict[str, Any]) -> Thing:
    world = World()
    data = {
        **world.train_job,
        "metadata": {**world.train_job["metadata"], "name": name, "uid": f"uid-{name}"},
    }
    return Thing({**data, "status": {"conditions": list(conditions)}})


def event(world: World, of: Thing, reason: str, age: float) -> Thing:
    return Thing(world.event(dict(of.data), reason, "it\nwas  so", age=age))


def test_the_last_one_to_end_comes_first_and_active_ones_are_left_out() -> None:
    jobs = [
        job("old", condition("Complete", reason="AllJobsCompleted", message="done", age=200)),
        job("active"),
        job("new", condition("Failed", reason="FailedJobs", message="exit 1", age=20)),
        job("waiting", condition("Suspended", reason="Suspended")),
    ]

    found = history.ended(jobs, [])

    assert [(each.name, each.state, each.reason) for each in found] == [
        ("new", "Failed", "FailedJobs: exit 1"),
        ("old", "Complete", "AllJobsCompleted: done"),
    ]
    assert found[0].ended is not None
    assert found[0].began is not None
    assert (found[0].ended - found[0].began).total_seconds() == 280


def test_a_deleted_train_job_is_known_from_its_last_event() -> None:
    world, gone, here = World(), job("gone"), job("here")
    events = [
        event(world, gone, "Second", 5),
        event(world, gone, "First", 50),
        event(world, here, "Other", 1),
    ]

    (found,) = history.ended([here], events)

    assert (found.namespace, found.name, found.state) == ("team-a", "gone", "Deleted")
    assert found.reason == "Second: it was so"
    assert found.to_dict()["began"] is None
