# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What of a TrainJob and its runtime has no effect is a note; a number with which no pod runs is the reason."""

from __future__ import annotations

from typing import Any

from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured

from pkg.why import State, Verdict, diagnose, reading
from testkit.why.world import NOW, TrainJobObjects

STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


async def verdict(
    world: TrainJobObjects, labels: dict[str, str], trainer: dict[str, Any], **of_job: Any
) -> Verdict:
    """Return the verdict on the TrainJob of the world, whose runtime has one job with these labels."""
    pods = {"metadata": {}, "spec": {"containers": [{"name": "node", "image": "i"}]}}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}, **of_job}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
        "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    world.train_job["spec"]["trainer"] = trainer
    world.job_set["spec"]["replicatedJobs"] = [{**job, "replicas": 1}]
    for each in world.objects:
        if each["kind"] in ("Job", "Pod"):
            each["metadata"].setdefault("labels", {})["jobset.sigs.k8s.io/jobset-name"] = "llama"
    client = FakeClient(*map(Unstructured.wrap, [*world.objects, runtime]))
    return diagnose(await reading.take(client, "team-a", "llama", NOW))


async def test_a_train_job_that_runs_with_another_image_than_it_names_is_told_so() -> None:
    found = await verdict(TrainJobObjects(), {}, {"image": "mine"})
    assert found.state is State.RUNNING
    (note,) = [each for each in found.findings if each.cause == "no-effect"]
    assert note.severity == "note"
    assert note.summary.startswith("spec.trainer: image has no effect: no job of the runtime has the label")
    assert note.subjects == ("TrainJob llama",)


async def test_a_train_job_whose_fields_have_an_effect_has_no_note() -> None:
    found = await verdict(TrainJobObjects(), STEP, {"image": "mine"})
    assert [each for each in found.findings if each.cause in ("no-effect", "number-invalid")] == []


async def test_a_negative_number_of_nodes_is_the_reason_why_no_pod_runs() -> None:
    world = TrainJobObjects()
    for each in [*world.pods, world.job]:
        world.objects.remove(each)
    world.pods.clear()
    found = await verdict(world, STEP, {"numNodes": -1})
    assert found.state is State.WRONG
    (reason,) = [each for each in found.findings if each.cause == "number-invalid"]
    assert found.findings[0] == reason
    assert (
        "spec.trainer.numNodes: -1 must be at least 1: a Job cannot have a negative number of pods"
        in found.sentence
    )


async def test_a_job_that_waits_for_a_missing_job_is_the_reason_why_no_pod_runs() -> None:
    world = TrainJobObjects()
    for each in [*world.pods, world.job]:
        world.objects.remove(each)
    world.pods.clear()
    found = await verdict(world, STEP, {}, dependsOn=[{"name": "missing", "status": "Ready"}])
    (reason,) = [each for each in found.findings if each.cause == "object-invalid"]
    assert (found.state, reason.severity) == (State.WRONG, "error")
    assert "dependsOn[0].name: missing is not an earlier job of the list" in reason.summary


async def test_a_complete_train_job_without_nodes_has_a_note_that_no_pod_has_trained() -> None:
    world = TrainJobObjects()
    for each in world.pods:
        world.objects.remove(each)
    world.pods.clear()
    world.train_job["status"] = {
        "conditions": [{"type": "Complete", "status": "True", "reason": "AllJobsCompleted"}]
    }
    found = await verdict(world, STEP, {"numNodes": 0})
    (note,) = found.findings
    assert (found.state, found.exit_code, note.severity) == (State.COMPLETE, 0, "note")
    assert note.summary.endswith("no pod trains, but the TrainJob becomes Complete")
