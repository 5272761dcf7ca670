# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The walk from TrainJob to Complete, seen object by object."""

from typing import Any

from pkg.cli.demo import Sight, Walk, train_job


def thing(kind: str, *conditions: str, phase: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": each, "status": "True"} for each in conditions]}
    if phase:
        status["phase"] = phase
    return {"kind": kind, "metadata": {"name": kind.lower()}, "status": status}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_taken_before_anything_is_there() -> None:
    assert not any(Sight().steps(3).values())


def test_each_step_is_taken_by_what_it_names() -> None:
    pods = [thing("Pod", phase="Running"), thing("Pod", phase="Succeeded"), thing("Pod", phase="Pending")]
    steps = Sight(thing("TrainJob"), [thing("JobSet")], [thing("Job", "SuccessCriteriaMet")], pods).steps(3)
    assert [step for step, taken in steps.items() if not taken] == [
        "3 pods running",
        "3 pods succeeded",
        "Job complete",
        "JobSet completed",
        "TrainJob complete",
    ]
    done = Sight(
        thing("TrainJob", "Complete"),
        [thing("JobSet", "Completed")],
        [thing("Job", "SuccessCriteriaMet", "Complete")],
        [thing("Pod", phase="Succeeded")] * 3,
    )
    assert all(done.steps(3).values())


def test_a_step_keeps_the_time_it_was_first_seen_at() -> None:
    clock = Clock()
    walk = Walk(1, clock)
    walk.begin()
    clock.now += 1.5
    walk.see(Sight(thing("TrainJob")))
    clock.now += 1
    walk.see(Sight(thing("TrainJob"), [thing("JobSet")]))
    assert walk.taken == {"TrainJob created": 1.5, "JobSet created": 2.5}


def test_a_failed_train_job_says_why() -> None:
    failed = thing("TrainJob", "Failed")
    failed["status"]["conditions"][0] |= {"reason": "FailedJobs", "message": "jobset failed"}
    assert Sight(failed).failure == "FailedJobs: jobset failed"
    assert Sight(thing("TrainJob", "Complete")).failure == ""


def test_the_demos_train_job_asks_for_the_shipped_runtime_and_the_nodes_it_is_told() -> None:
    spec = train_job(5).to_dict()["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert spec["trainer"]["numNodes"] == 5
