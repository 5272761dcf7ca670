# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The mutating webhook: times of patches, numbers in strings, notes, and the mirror of first-generation fields."""

import base64
import json
import time
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest
from controller_runtime.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from controller_runtime.machinery.patch import apply_json_patch
from controller_runtime.webhook import MutatorHandler

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.webhooks import TrainJobDefaulter
from testkit.builders import pod_override, runtime_patch, train_job_document

NOW = "2031-05-06T07:08:09Z"
WORD = "trainer.kubeflow.org/num-proc-per-node"
MIRROR = "trainer.kubeflow.org/first-generation"
OTHERS = "kueue.x-k8s.io/multikueue"
SDK = "trainer.kubeflow.org/kubeflow-sdk"
QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
Document = dict[str, Any]


def job(metadata: Document | None = None, **spec: Any) -> Document:
    return train_job_document(name="bert", metadata=metadata, **spec)


def patch(manager: str = SDK, *, time: str | None = None, **pod: Any) -> Document:
    made = runtime_patch(manager, pod)
    return made if time is None else {**made, "time": time}


def override(job_name: str = "node", **pod: Any) -> Document:
    return pod_override(pod, job_name)


async def review(new: Document, old: Document | None = None, **settings: Any) -> AdmissionResponse:
    cfg = Configuration(**settings)
    defaulter = TrainJobDefaulter(cfg, now=lambda: datetime.fromisoformat(NOW).astimezone(UTC))
    request = AdmissionRequest(
        uid="u",
        operation="CREATE" if old is None else "UPDATE",
        object=new,
        old_object=old,
        options={"kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1"},
    )
    return await MutatorHandler(TrainJob, defaulter).handle(request)


async def mutated(new: Document, old: Document | None = None, **settings: Any) -> Document:
    response = await review(new, old, **settings)
    assert response.allowed
    if response.patch is None:
        return new
    found: Document = apply_json_patch(
        json.loads(json.dumps(new)), json.loads(base64.b64decode(response.patch))
    )
    return found


async def test_a_train_job_without_anything_to_change_is_left_as_it_is() -> None:
    response = await review(job(podTemplateOverrides=[override(nodeSelector={"a": "b"})], labels={"c": "d"}))
    assert (response.allowed, response.patch, response.warnings) == (True, None, None)


@pytest.mark.parametrize(("value", "number"), [("4", 4), ("04", 4), ("+4", 4), ("-1", -1), (8, 8)])
async def test_a_number_is_stored_as_a_number(value: Any, number: int) -> None:
    stored = await mutated(job({"annotations": {WORD: "auto"}}, trainer={"numProcPerNode": value}))
    assert stored["spec"]["trainer"] == {"numProcPerNode": number}
    assert WORD not in stored["metadata"].get("annotations", {})


@pytest.mark.parametrize("word", ["auto", "cpu", "gpu", "many", ""])
async def test_a_word_moves_to_the_annotation(word: str) -> None:
    stored = await mutated(job({"annotations": {"a": "b"}}, trainer={"image": "i", "numProcPerNode": word}))
    assert stored["spec"]["trainer"] == {"image": "i"}
    assert stored["metadata"]["annotations"] == {"a": "b", WORD: word}


async def test_a_number_replaces_a_word() -> None:
    old = job({"annotations": {WORD: "auto"}}, trainer={})
    stored = await mutated(job({"annotations": {WORD: "auto"}}, trainer={"numProcPerNode": 2}), old)
    assert "annotations" not in stored["metadata"]
    assert stored["spec"]["trainer"] == {"numProcPerNode": 2}


@pytest.mark.parametrize("value", [2**31, "2147483648", "-2147483649", "9" * 5000])
async def test_a_number_beyond_32_bits_is_refused(value: Any) -> None:
    response = await review(job(trainer={"numProcPerNode": value}))
    assert not response.allowed
    assert response.status is not None
    assert "spec.trainer.numProcPerNode: Invalid value" in (response.status.message or "")


FIRST = {
    "labels": {"l": "1"},
    "annotations": {"n": "2"},
    "podTemplateOverrides": [
        override(
            nodeSelector={"zone": "a"},
            containers=[{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        ),
        {**override(nodeSelector={"zone": "b", "pool": "p"}), "metadata": {"labels": {"x": "y"}}},
        override("launcher", serviceAccountName="me"),
    ],
}


@pytest.mark.parametrize(
    ("metadata", "spec", "settings"),
    [
        pytest.param(QUEUE, {}, {}, id="a queue of Kueue"),
        pytest.param({}, {"managedBy": "kueue.x-k8s.io/multikueue"}, {}, id="another manager"),
    ],
)
async def test_the_first_generation_is_mirrored_where_a_newer_client_reads_it(
    metadata: Document, spec: Document, settings: Document
) -> None:
    stored = await mutated(job(metadata, **FIRST, **spec, runtimePatches=[patch()]), **settings)
    mirror, other = stored["spec"]["runtimePatches"]
    assert other == {**patch(), "time": NOW}
    assert {name: stored["spec"][name] for name in FIRST} == FIRST
    node = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {
            "nodeSelector": {"zone": "b", "pool": "p"},
            "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        },
    }
    assert mirror == {
        "manager": MIRROR,
        "time": NOW,
        "trainingRuntimeSpec": {
            "template": {
                "metadata": {"labels": {"l": "1"}, "annotations": {"n": "2"}},
                "spec": {
                    "replicatedJobs": [
                        {"name": "node", "template": {"spec": {"template": node}}},
                        {
                            "name": "launcher",
                            "template": {"spec": {"template": {"spec": {"serviceAccountName": "me"}}}},
                        },
                    ]
                },
            }
        },
    }


async def test_a_mirror_is_made_once_and_follows_its_sources() -> None:
    first = await mutated(job(QUEUE, labels={"a": "1"}))
    again = await mutated(first, first)
    assert again == first
    changed = json.loads(json.dumps(first))
    changed["spec"]["labels"] = {"a": "2"}
    del changed["metadata"]["labels"]
    stored = await mutated(changed, first)
    (mirror,) = stored["spec"]["runtimePatches"]
    assert mirror["trainingRuntimeSpec"]["template"]["metadata"]["labels"] == {"a": "2"}


async def test_a_mirror_goes_with_its_sources_and_other_patches_stay() -> None:
    old = await mutated(job(QUEUE, labels={"a": "1"}, runtimePatches=[patch()]))
    new = json.loads(json.dumps(old))
    del new["spec"]["labels"]
    stored = await mutated(new, old)
    assert [each["manager"] for each in stored["spec"]["runtimePatches"]] == [SDK]


async def test_a_mirror_whose_sources_another_release_pruned_is_kept() -> None:
    pruned = await mutated(job(QUEUE, labels={"a": "1"}))
    del pruned["spec"]["labels"]
    assert await mutated(pruned, pruned) == pruned


async def test_an_immutable_field_of_the_mirror_changes_under_another_manager() -> None:
    def with_volume(name: str) -> list[Document]:
        return [override(volumes=[{"name": name, "emptyDir": {}}], nodeSelector={"z": name})]

    first = await mutated(job(QUEUE, suspend=True, podTemplateOverrides=with_volume("a")))
    second = json.loads(json.dumps(first))
    second["spec"]["podTemplateOverrides"] = with_volume("b")
    stored = await mutated(second, first)
    (mirror,) = stored["spec"]["runtimePatches"]
    assert mirror["manager"] == f"{MIRROR}-2"
    third = json.loads(json.dumps(stored))
    third["spec"]["podTemplateOverrides"][0]["spec"]["nodeSelector"] = {"z": "c"}
    (mirror,) = (await mutated(third, stored))["spec"]["runtimePatches"]
    assert mirror["manager"] == f"{MIRROR}-2"
    fourth = json.loads(json.dumps(stored))
    fourth["spec"]["podTemplateOverrides"] = with_volume("d")
    (mirror,) = (await mutated(fourth, stored))["spec"]["runtimePatches"]
    assert mirror["manager"] == MIRROR


MANY = {f"label-{number}": "" for number in range(5000)}
MOUNTS = [
    override(containers=[{"name": "node", "volumeMounts": [{"name": "v", "mountPath": f"/{path}"}]}])
    for path in "ab"
]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"podTemplateOverrides": MOUNTS}, "volumeMounts has an item twice"),
        ({"podTemplateOverrides": [override(nodeSelector={"$patch": "replace"})]}, "$patch is a directive"),
        ({"labels": {f"${'a' * 9000}": "b"}}, f"${'a' * 249} ... is a directive"),
        (
            {"podTemplateOverrides": [override(f"j{n}", nodeSelector=MANY) for n in range(101)]},
            "replicatedJobs may have at most 100 items",
        ),
        (
            {"podTemplateOverrides": [override(volumes=[{"name": f"v{n}"} for n in range(129)])]},
            "volumes may have at most 128 items",
        ),
        (
            {"labels": {"a": "b"}, "runtimePatches": [patch(f"a.io/{n}") for n in range(16)]},
            "already 16 runtimePatches",
        ),
    ],
)
async def test_what_no_patch_can_hold_is_not_mirrored_and_a_warning_says_so(spec: Document, why: str) -> None:
    response = await review(job(QUEUE, **spec))
    assert response.allowed
    (warning,) = response.warnings or [""]
    assert why in warning
    managers = [
        each["manager"] for each in (await mutated(job(QUEUE, **spec)))["spec"].get("runtimePatches", ())
    ]
    assert MIRROR not in managers


async def test_a_train_job_that_is_being_deleted_is_left_alone() -> None:
    leaving = job({"deletionTimestamp": NOW}, trainer={"numProcPerNode": "auto"})
    assert (await review(leaving, job(trainer={"numProcPerNode": "auto"}))).patch is None


async def test_thousands_of_overrides_are_not_mirrored_and_cost_little() -> None:
    many = [override(volumes=[{"name": f"v{number}", "emptyDir": {}}]) for number in range(3000)]
    began = time.process_time()
    response = await review(job(QUEUE, podTemplateOverrides=many))
    assert time.process_time() - began < 20
    (warning,) = response.warnings or [""]
    assert "write more than 500000 values" in warning


async def test_one_override_of_many_jobs_is_not_mirrored_and_needs_little_memory() -> None:
    labels = {f"label-{number}": "" for number in range(20_000)}
    targets = [{"name": f"j{number}"} for number in range(100)]
    large = job(QUEUE, podTemplateOverrides=[{"targetJobs": targets, "spec": {"nodeSelector": labels}}])
    tracemalloc.start()
    try:
        response = await review(large)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60_000_000
    (warning,) = response.warnings or [""]
    assert "the first 1 of 1 write more than 500000 values" in warning


NOTE = "trainer.kubeflow.org/suspended-generation"
NEW, SECOND, RUNS = {"generation": 1}, {"generation": 2}, {"generation": 4}
A, B = {"trainer": {"image": "a"}}, {"trainer": {"image": "b"}}


def note_of(stored: Document) -> Any:
    return stored["metadata"].get("annotations", {}).get(NOTE)


@pytest.mark.parametrize(
    ("metadata", "old", "new", "note"),
    [
        (RUNS, A, {**B, "suspend": True}, "5"),
        (NEW, A, {**B, "suspend": True}, "2"),
        (RUNS, A, {**A, "suspend": True}, "5"),  # an earlier edit, while it ran, may have changed it
        (
            SECOND,
            {**A, "suspend": True},
            {**B, "suspend": True},
            "3",
        ),  # in generation 2 the suspension may have got no note
        (SECOND, {**A, "suspend": True}, {**B, "suspend": False}, "3"),
        (RUNS, {**A, "suspend": True}, {**B, "suspend": True}, None),  # the suspension has a note already
        (
            NEW,
            A,
            {**A, "suspend": True},
            None,
        ),  # generation 1: the spec has never changed, so the JobSet has it
        (
            NEW,
            {**A, "suspend": True},
            {**B, "suspend": False},
            None,
        ),  # it was created suspended, so no JobSet has run; Kueue starts TrainJobs in this way
        (RUNS, {**A, "suspend": True}, {**A, "suspend": False}, None),
        (RUNS, A, B, None),
        (
            RUNS,
            {**A, "suspend": True, "managedBy": OTHERS},
            {**B, "suspend": True, "managedBy": OTHERS},
            None,
        ),
    ],
)
async def test_a_change_of_a_suspended_train_job_is_noted_with_the_generation_that_it_makes(
    metadata: Document, old: Document, new: Document, note: str | None
) -> None:
    stored = await mutated(job(metadata, **new), job(metadata, **old))
    assert note_of(stored) == note
    assert stored["spec"] == job(**new)["spec"]


@pytest.mark.parametrize("status", ["Complete", "Failed"])
async def test_a_train_job_that_has_ended_gets_no_note(status: str) -> None:
    ended = {"status": {"conditions": [{"type": status, "status": "True", "reason": "r", "message": "m"}]}}
    assert note_of(await mutated(job(RUNS, suspend=True, **B), {**job(RUNS, **A), **ended})) is None


async def test_a_new_train_job_gets_no_note() -> None:
    assert note_of(await mutated(job(suspend=True))) is None


async def test_a_note_stays_until_it_is_removed_alone() -> None:
    """A client that replaces the TrainJob with its own file drops the note without wanting to."""
    noted = job({**RUNS, "annotations": {NOTE: "3", "a": "b"}}, suspend=True)
    resumed = await mutated(job({**RUNS, "annotations": {"a": "b"}}, suspend=False), noted)
    assert resumed["metadata"]["annotations"] == {NOTE: "3", "a": "b"}
    assert note_of(await mutated(job(RUNS, **B), job({**RUNS, "annotations": {NOTE: "3"}}, **A))) == "3"
    assert note_of(await mutated(job(RUNS, suspend=True), noted)) is None
