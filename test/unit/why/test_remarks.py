# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What of a TrainJob and its runtime has no effect is a note; a number with which no pod runs is the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.meta import format_time

from pkg.why import State, Verdict, diagnose, reading
from testkit.why.world import NOW, TrainJobObjects, condition

STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


async def verdict(
    world: TrainJobObjects,
    labels: dict[str, str],
    trainer: dict[str, Any],
    *,
    run_policy: Any = None,
    **of_job: Any,
) -> Verdict:
    """Return the verdict on the TrainJob of the world, whose runtime has one job with these labels."""
    pods = {"metadata": {}, "spec": {"containers": [{"name": "node", "image": "i"}]}}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}, **of_job}
    runtime: dict[str, Any] = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
        "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    if run_policy is not None:
        runtime["spec"]["runPolicy"] = run_policy
    world.train_job["spec"]["trainer"] = trainer
    world.job_set["spec"]["replicatedJobs"] = [{**job, "replicas": 1}]
    for each in world.objects:
        if each["kind"] in ("Job", "Pod"):
            each["metadata"].setdefault("labels", {})["jobset.sigs.k8s.io/jobset-name"] = "llama"
    client = FakeClient(*map(Unstructured.wrap, [*world.objects, runtime]))
    return diagnose(await reading.take(client, "team-a", "llama", NOW))


async def test_a_train_job_whose_fields_have_an_effect_has_no_note() -> None:
    found = await verdict(TrainJobObjects(), STEP, {"image": "mine"})
    assert [each for each in found.findings if each.cause in ("no-effect", "number-invalid")] == []


async def test_a_complete_train_job_without_nodes_has_a_note_that_no_pod_has_trained() -> None:
    world = TrainJobObjects()
    world.remove(*world.pods)
    world.train_job["status"] = {
        "conditions": [{"type": "Complete", "status": "True", "reason": "AllJobsCompleted"}]
    }
    found = await verdict(world, STEP, {"numNodes": 0})
    (note,) = found.findings
    assert (found.state, found.exit_code, note.severity) == (State.COMPLETE, 0, "note")
    assert note.summary.endswith("no pod trains, but the TrainJob becomes Complete")


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
@pytest.mark.parametrize(
    ("spec", "of_runtime", "expected"),
    [
        ({"ttlSecondsAfterFinished": 0}, 9, "spec.ttlSecondsAfterFinished is 0"),
        (
            {},
            3600,
            "spec.runPolicy.ttlSecondsAfterFinished of ClusterTrainingRuntime torch-distributed is 3600",
        ),
        ({}, None, None),
        ({"ttlSecondsAfterFinished": 5, "managedBy": "kueue.x-k8s.io/multikueue"}, None, None),
    ],
)
async def test_a_finished_train_job_says_when_it_will_be_deleted(
    kind: str, spec: dict[str, Any], of_runtime: int | None, expected: str | None
) -> None:
    world = TrainJobObjects()
    world.train_job["spec"].update(spec)
    world.train_job["status"] = {"conditions": [condition(kind, reason="R", age=600)]}
    policy = None if of_runtime is None else {"ttlSecondsAfterFinished": of_runtime}
    found = await verdict(world, STEP, {}, run_policy=policy)
    notes = [each for each in found.findings if each.cause == "expiring"]
    assert [each.severity for each in notes] == ([] if expected is None else ["note"])
    if expected is not None:
        due = format_time(NOW - timedelta(seconds=600) + timedelta(seconds=int(expected.rpartition(" ")[2])))
        gate = "if the manager's feature gate TTLAfterFinished is enabled"
        if spec:
            assert (
                notes[0].summary
                == f"it should have been deleted at {due}, because {expected}, and still exists"
            )
            assert "TTLAfterFinished" in notes[0].advice
        else:
            assert notes[0].summary == f"it will be deleted at {due}, because {expected}, {gate}"
    assert found.exit_code == (kind == "Failed")


async def test_the_managers_announcement_shows_that_the_gate_is_enabled() -> None:
    world = TrainJobObjects()
    world.train_job["spec"]["ttlSecondsAfterFinished"] = 630
    world.train_job["status"] = {"conditions": [condition("Complete", reason="R", age=600)]}
    world.event(world.train_job, "TrainJobExpiring", "TrainJob will be deleted")

    found = await verdict(world, STEP, {})

    due = format_time(NOW + timedelta(seconds=30))
    assert (
        found.findings[0].summary
        == f"it will be deleted at {due}, because spec.ttlSecondsAfterFinished is 630"
    )


@pytest.mark.parametrize(
    ("seconds", "is_announced", "is_quoted"),
    [(60, True, True), (60, False, True), (None, True, True), (None, False, False), (3600, True, False)],
)
async def test_the_managers_reason_is_shown_if_an_overdue_train_job_cannot_be_deleted(
    seconds: int | None, is_announced: bool, is_quoted: bool
) -> None:
    world = TrainJobObjects()
    if seconds is not None:
        world.train_job["spec"]["ttlSecondsAfterFinished"] = seconds
    world.train_job["status"] = {"conditions": [condition("Complete", reason="R", age=600)]}
    if is_announced:
        world.event(world.train_job, "TrainJobExpiring", "TrainJob will be deleted at 2030-01-01T00:00:00Z")
    words = "TrainJob, which should be deleted since 2030-01-01T00:00:00Z, cannot be deleted: forbidden"
    world.event(world.train_job, "TrainJobDeletionFailed", words)

    found = await verdict(world, STEP, {})

    notes = [each.summary for each in found.findings if each.cause == "expiring"]
    assert (words in notes) == is_quoted
    assert found.exit_code == 0
