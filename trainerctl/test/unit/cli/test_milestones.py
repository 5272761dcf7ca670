# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's milestones, from the creation of the TrainJob until it is complete."""

from typing import Any

from trainerctl.cli.demo import Milestones, Observed, train_job


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
    assert not any(Observed().steps(3).values())


def test_each_step_is_taken_by_what_it_names() -> None:
    pods = [thing("Pod", phase="Running"), thing("Pod", phase="Succeeded"), thing("Pod", phase="Pending")]
    steps = Observed(thing("TrainJob"), [thing("JobSet")], [thing("Job", "SuccessCriteriaMet")], pods).steps(
        3
    )
    assert [step for step, taken in steps.items() if not taken] == [
        "3 pods running",
        "3 pods succeeded",
        "Job complete",
        "JobSet completed",
        "TrainJob complete",
    ]
    done = Observed(
        thing("TrainJob", "Complete"),
        [thing("JobSet", "Completed")],
        [thing("Job", "SuccessCriteriaMet", "Complete")],
        [thing("Pod", phase="Succeeded")] * 3,
    )
    assert all(done.steps(3).values())


def test_a_step_keeps_the_time_it_was_first_seen_at() -> None:
    clock = Clock()
    milestones = Milestones(1, clock)
    milestones.begin()
    clock.now += 1.5
    milestones.see(Observed(thing("TrainJob")))
    clock.now += 1
    milestones.see(Observed(thing("TrainJob"), [thing("JobSet")]))
    assert milestones.taken == {"TrainJob created": 1.5, "JobSet created": 2.5}


def test_a_step_is_not_later_than_the_steps_after_it() -> None:
    clock = Clock()
    milestones = Milestones(1, clock)
    milestones.begin()
    clock.now += 2  # the pod is listed after the JobSet, which did not exist yet
    milestones.see(Observed(thing("TrainJob"), pods=[thing("Pod", phase="Pending")]))
    clock.now += 2
    milestones.see(
        Observed(thing("TrainJob"), [thing("JobSet")], [thing("Job")], [thing("Pod", phase="Pending")])
    )
    assert milestones.times() == {
        **dict.fromkeys(Observed().steps(1)),
        **dict.fromkeys(["TrainJob created", "JobSet created", "Job created", "1 pods created"], 2.0),
    }


def test_a_failed_train_job_says_why() -> None:
    failed = thing("TrainJob", "Failed")
    failed["status"]["conditions"][0] |= {"reason": "FailedJobs", "message": "jobset failed"}
    assert Observed(failed).failure == "FailedJobs: jobset failed"
    assert Observed(thing("TrainJob", "Complete")).failure == ""


def test_the_demos_train_job_names_the_shipped_runtime_and_the_number_of_nodes() -> None:
    spec = train_job(5).to_dict()["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert spec["trainer"]["numNodes"] == 5
