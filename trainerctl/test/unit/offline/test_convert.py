# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Conversion between the API generations: the same effect, and a list of the lost fields."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainerctl.offline import convert, trainjobs
from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.rendering import manifest

Document = dict[str, Any]
RECORDED = Path(__file__).parents[4] / "test" / "testdata" / "parity" / "newobjects.json"
REFUSED = {
    "newobjects/overrides/container-env-value-from-on-bare",
    "newobjects/overrides/containers-both-reversed-on-bare",
    "newobjects/overrides/container-unknown-on-bare",
    "newobjects/overrides/init-container-env-on-bare",
    "newobjects/overrides/init-container-unknown-on-bare",
    "newobjects/overrides/unknown-target",
}
"""Overrides of jobs and containers that the runtime lacks: the webhooks of both releases refuse them."""
OLD = ("podTemplateOverrides", "labels", "annotations")
NEW = ("runtimePatches", "activeDeadlineSeconds")


def recorded() -> list[Any]:
    """Return the recorded TrainJobs that have fields of the first generation."""
    cases = json.loads(RECORDED.read_text())
    return [
        pytest.param(case, id=case["name"])
        for case in cases
        if case["want"].get("objects") and any(case["trainJob"]["spec"].get(field) for field in OLD)
    ]


def document(kind: str, spec: Document, **metadata: Any) -> InputObject:
    data = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": kind,
        "metadata": {"name": "x", **metadata},
        "spec": spec,
    }
    return InputObject(data, "in.yaml", 1)


def converted(given: InputObject, release: str) -> tuple[Document, dict[str, str]]:
    """Return the rewritten spec, and the problem of each lost field by the field's path."""
    made = convert.convert(given, release)
    return made.data["spec"], {".".join(map(str, loss.path)): loss.problem for loss in made.losses}


async def objects(documents: list[Document]) -> list[Document]:
    given = await trainjobs.prepare(
        [InputObject(each, "in.yaml", number) for number, each in enumerate(documents, 1)], namespace="team-a"
    )
    (subject,) = given.subjects
    made = await trainjobs.objects(given, subject.train_job)
    return [manifest(each) for each in made]


@pytest.mark.parametrize("case", recorded())
async def test_a_converted_train_job_has_the_same_effect_and_so_has_one_converted_back(
    case: Document,
) -> None:
    others, train_job = case["objects"], case["trainJob"]
    wanted = await objects([*others, train_job])
    second = convert.convert(InputObject(train_job, "in.yaml", 1), convert.SECOND)
    if any(loss.path == ("spec",) for loss in second.losses):
        pytest.skip("a strategic merge directive has no equal runtime patch")
    assert not set(OLD) & second.data["spec"].keys()
    if case["name"] in REFUSED:
        with pytest.raises(trainjobs.RefusedError, match="doesn't exist in the runtime"):
            await objects([*others, second.data])
        return
    assert await objects([*others, second.data]) == wanted
    first = convert.convert(InputObject(second.data, "in.yaml", 1), convert.FIRST)
    assert first.losses == []
    assert not set(NEW) & first.data["spec"].keys()
    assert await objects([*others, first.data]) == wanted


def patch(job: Document, **metadata: Any) -> Document:
    spec = {"suspend": True, "replicatedJobs": [{"name": "node", "replicas": 3, **job}]}
    template = {"metadata": {"name": "x", **metadata}, "spec": spec}
    return {"manager": "a.io/b", "trainingRuntimeSpec": {"mlPolicy": {"numNodes": 5}, "template": template}}


def test_what_the_first_generation_lacks_is_named() -> None:
    pod = {
        "metadata": {"labels": {"pod": "1"}},
        "spec": {
            "nodeSelector": {"a": "b"},
            "terminationGracePeriodSeconds": 3,
            "containers": [{"name": "node", "securityContext": {"runAsUser": 1}}],
        },
    }
    job = {"template": {"metadata": {"labels": {"job": "1"}}, "spec": {"parallelism": 4, "template": pod}}}
    spec = {"runtimePatches": [patch(job, labels={"set": "1"})], "activeDeadlineSeconds": 5}
    made, losses = converted(document("TrainJob", spec), convert.FIRST)
    runtime = "spec.runtimePatches.0.trainingRuntimeSpec"
    node = f"{runtime}.template.spec.replicatedJobs.0"
    assert losses.keys() == {
        "spec.activeDeadlineSeconds",
        f"{runtime}.mlPolicy",
        f"{runtime}.template.metadata.name",
        f"{runtime}.template.spec.suspend",
        f"{node}.replicas",
        f"{node}.template.metadata",
        f"{node}.template.spec.parallelism",
        f"{node}.template.spec.template.spec.terminationGracePeriodSeconds",
        f"{node}.template.spec.template.spec.containers.0.securityContext",
    }
    kept = {"nodeSelector": {"a": "b"}, "containers": [{"name": "node"}]}
    override = {"targetJobs": [{"name": "node"}], "metadata": {"labels": {"pod": "1"}}, "spec": kept}
    assert made == {"labels": {"set": "1"}, "podTemplateOverrides": [override]}


@pytest.mark.parametrize(
    ("value", "number", "annotation", "lost"),
    [("auto", None, None, False), ("4", 4, None, False), (4, 4, None, False), ("gpu", None, "gpu", True)],
)
def test_a_word_becomes_an_annotation_and_comes_back(
    value: str | int, number: int | None, annotation: str | None, lost: bool
) -> None:
    made = convert.convert(document("TrainJob", {"trainer": {"numProcPerNode": value}}), convert.SECOND)
    word = "trainer.kubeflow.org/num-proc-per-node"
    assert made.data["spec"]["trainer"].get("numProcPerNode") == number
    assert made.data["metadata"].get("annotations", {}).get(word) == annotation
    assert bool(made.losses) is lost
    back = convert.convert(InputObject(made.data, "in.yaml", 1), convert.FIRST)
    assert back.data["metadata"] in ({"name": "x"}, {"name": "x", "annotations": {}})
    assert back.data["spec"]["trainer"].get("numProcPerNode") == (annotation or number)


def test_a_mirror_is_not_converted_beside_its_sources() -> None:
    mirror = {"manager": "trainer.kubeflow.org/first-generation"}
    spec = {"labels": {"l": "1"}, "runtimePatches": [mirror, {"manager": "a.io/b"}]}
    given = document("TrainJob", spec)
    made, _ = converted(given, convert.SECOND)
    assert [each["manager"] for each in made["runtimePatches"]] == [convert.MANAGER, "a.io/b"]
    assert converted(given, convert.FIRST)[0] == {"labels": {"l": "1"}}


def test_a_manager_is_used_once() -> None:
    spec = {"labels": {"l": "1"}, "runtimePatches": [{"manager": convert.MANAGER}]}
    made, _ = converted(document("TrainJob", spec), convert.SECOND)
    assert [each["manager"] for each in made["runtimePatches"]] == [f"{convert.MANAGER}-2", convert.MANAGER]


@pytest.mark.parametrize(
    ("release", "policy", "kept", "lost"),
    [
        (convert.SECOND, {"torch": {"numProcPerNode": "auto"}}, {"torch": {}}, []),
        (convert.SECOND, {"torch": {"numProcPerNode": 4}}, {"torch": {}}, ["torch.numProcPerNode"]),
        (convert.SECOND, {"torch": {"elasticPolicy": {}}}, {"torch": {}}, ["torch.elasticPolicy"]),
        (convert.SECOND, {"mpi": {"numProcPerNode": 4}}, {"mpi": {"numProcPerNode": 4}}, []),
        (convert.FIRST, {"numNodes": 2, "jax": {}}, {"numNodes": 2}, ["jax"]),
        (convert.FIRST, {"torch": {"envInjection": {}}}, {"torch": {}}, ["torch.envInjection"]),
    ],
)
@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_runtime_loses_what_the_other_release_lacks(
    kind: str, release: str, policy: Document, kept: Document, lost: list[str]
) -> None:
    made, losses = converted(document(kind, {"mlPolicy": policy}), release)
    assert made["mlPolicy"] == kept
    assert list(losses) == [f"spec.mlPolicy.{each}" for each in lost]


def test_claims_that_an_older_job_set_does_not_make_are_named() -> None:
    spec: Document = {"template": {"spec": {"volumeClaimPolicies": [{}], "replicatedJobs": []}}}
    made, losses = converted(document("TrainingRuntime", spec), convert.FIRST)
    assert made["template"]["spec"] == {"replicatedJobs": []}
    assert list(losses) == ["spec.template.spec.volumeClaimPolicies"]
