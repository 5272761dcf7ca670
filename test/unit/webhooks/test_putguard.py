# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fields that a client drops because it does not know them are put back; one that owns or knows them may drop them."""

import base64
import json
from typing import Any

import pytest
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.machinery.patch import apply_json_patch
from controller_runtime.webhook import MutatorHandler

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.webhooks import TrainJobDefaulter
from testkit.builders import runtime_patch, train_job_document

Document = dict[str, Any]
FIELDS: Document = {
    "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}],
    "labels": {"l": "1"},
    "annotations": {"n": "1"},
    "runtimePatches": [{"manager": "a.io/b", "time": "2001-01-01T00:00:00Z"}],
    "activeDeadlineSeconds": 60,
    "ttlSecondsAfterFinished": 0,
}


def entry(
    manager: str, *fields: str, time: str = "2001-01-01T00:00:00Z", operation: str = "Update"
) -> Document:
    owned: Document = {f"f:{field}": {} for field in fields}
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": owned},
    }


def job(entries: list[Document], **spec: Any) -> Document:
    return train_job_document(name="bert", metadata={"managedFields": entries}, **spec)


async def stored(old: Document, new: Document, options: Document | None) -> tuple[Document, list[str]]:
    request = AdmissionRequest(uid="u", operation="UPDATE", object=new, old_object=old, options=options)
    response = await MutatorHandler(TrainJob, TrainJobDefaulter()).handle(request)
    assert response.allowed
    if response.patch is None:
        return new, response.warnings or []
    patch = json.loads(base64.b64decode(response.patch))
    return apply_json_patch(json.loads(json.dumps(new)), patch), response.warnings or []


PUT: Document = {"kind": "UpdateOptions"}
OWNER = "Kubeflow-SDK"
KUEUE_CAME = entry("kueue", "suspend", time="2001-01-01T00:05:00Z")


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_that_a_put_drops_is_put_back_with_its_owner_and_a_warning(field: str) -> None:
    old = job([entry(OWNER, "runtimeRef", field)], **{field: FIELDS[field]}, suspend=True)
    new = job([entry(OWNER, "runtimeRef"), KUEUE_CAME], suspend=False)
    kept, warnings = await stored(old, new, PUT)
    assert kept["spec"][field] == FIELDS[field]
    assert kept["spec"]["suspend"] is False
    assert kept["metadata"]["managedFields"] == [entry(OWNER, "runtimeRef", field), KUEUE_CAME]
    (warning,) = warnings
    assert warning.startswith(f"spec.{field}: kept")


async def test_an_owner_of_nothing_else_gets_its_entry_back() -> None:
    old = job([entry(OWNER, "labels")], labels={"a": "b"})
    kept, _ = await stored(old, job([KUEUE_CAME]), PUT)
    assert entry(OWNER, "labels") in kept["metadata"]["managedFields"]


async def test_an_entry_for_the_status_hides_no_owner_of_the_spec() -> None:
    status = {**entry(OWNER), "subresource": "status", "fieldsV1": {"f:status": {}}}
    old = job([entry(OWNER, "runtimeRef", "labels"), status], labels={"a": "b"}, suspend=True)
    new = job([entry(OWNER, "runtimeRef"), status, KUEUE_CAME], suspend=False)
    kept, _ = await stored(old, new, PUT)
    assert kept["metadata"]["managedFields"] == [entry(OWNER, "runtimeRef", "labels"), status, KUEUE_CAME]


@pytest.mark.parametrize(
    ("entries", "options"),
    [
        pytest.param(
            [entry("x", "suspend", time="2001-01-01T00:05:00Z")], {"kind": "PatchOptions"}, id="a patch"
        ),
        pytest.param([entry(OWNER, time="2001-01-01T00:05:00Z")], PUT, id="the owner"),
        pytest.param([entry("kubectl-replace", time="2001-01-01T00:05:00Z")], PUT, id="kubectl"),
        pytest.param([KUEUE_CAME], {**PUT, "fieldManager": OWNER}, id="the owner by its field manager"),
    ],
)
async def test_a_client_that_means_it_is_heard(entries: list[Document], options: Document) -> None:
    old = job(
        [entry(OWNER, "labels", "runtimePatches")], labels={"a": "b"}, runtimePatches=FIELDS["runtimePatches"]
    )
    new = job(entries)
    assert await stored(old, new, options) == (new, [])


@pytest.mark.parametrize(
    ("others", "removed"),
    [
        ([], True),
        ([entry("kubectl-create", "runtimeRef")], True),
        ([entry("ci", "runtimeRef", operation="Apply")], True),
        ([{**entry("manager"), "subresource": "status"}], True),
        ([entry("kueue", "suspend")], False),
    ],
)
async def test_a_request_that_only_removes_comes_from_the_only_client_that_names_no_field_manager(
    others: list[Document], removed: bool
) -> None:
    """If there are several, a typed client may have repeated its PUT, which changes nothing else."""
    old, new = job([entry(OWNER, "labels"), *others], labels={"a": "b"}), job(others)
    kept, warnings = await stored(old, new, PUT)
    assert (kept == new, bool(warnings)) == (removed, not removed)


async def test_an_older_kueue_removes_its_placement_after_an_eviction() -> None:
    others = [entry("sdk", "runtimeRef"), entry("kueue", "suspend")]
    owners = [others[0], entry("kueue", "podTemplateOverrides", "suspend")]
    old = job(owners, podTemplateOverrides=[KUEUES], suspend=True)
    new = job(others, suspend=True)
    assert await stored(active(old, 0), new, PUT) == (new, [])
    kept, _ = await stored(job(owners, podTemplateOverrides=[KUEUES], suspend=False), new, PUT)
    assert kept["spec"]["podTemplateOverrides"] == [KUEUES]


async def test_a_changed_field_is_the_client_s_own_affair() -> None:
    old = job([entry(OWNER, "labels")], labels={"a": "b"})
    new = job([entry("kueue", "labels", time="2001-01-01T00:05:00Z")], labels={"c": "d"})
    assert await stored(old, new, PUT) == (new, [])


async def test_a_client_that_removes_some_fields_of_a_generation_knows_them() -> None:
    old = job([entry(OWNER, "labels", "annotations")], labels={"a": "b"}, annotations={"c": "d"})
    new = job([entry(OWNER, "annotations"), KUEUE_CAME], annotations={"c": "d"}, suspend=False)
    assert await stored(old, new, PUT) == (new, [])


def with_grace(seconds: int | None, manager: str = "a.io/b") -> list[Document]:
    pod: Document = {"nodeSelector": {"a": "b"}}
    if seconds is not None:
        pod["terminationGracePeriodSeconds"] = seconds
    return [{**runtime_patch(manager, pod), "time": "2001-01-01T00:00:00Z"}]


KEY = 'k:{"manager":"a.io/b"}'


def owning(manager: str, below: Document, time: str = "2001-01-01T00:00:00Z") -> Document:
    made = entry(manager, time=time)
    made["fieldsV1"] = {"f:spec": {"f:runtimePatches": {KEY: below}}}
    return made


@pytest.mark.parametrize("writer", ["kueue", "sdk"])
async def test_a_grace_period_that_clients_of_v22_do_not_know_is_put_back(writer: str) -> None:
    before, after = owning("sdk", {".": {}, "f:grace": {}}), owning("sdk", {".": {}})
    old = job([before], runtimePatches=with_grace(30), suspend=True)
    came = entry(writer, "suspend", time="2001-01-01T00:05:00Z")
    new = job([came] if writer == "sdk" else [after, came], runtimePatches=with_grace(None), suspend=False)
    kept, warnings = await stored(old, new, PUT)
    (patch,) = kept["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    seconds = replicated["template"]["spec"]["template"]["spec"].get("terminationGracePeriodSeconds")
    if writer == "sdk":
        assert (seconds, warnings) == (None, [])
        return
    assert seconds == 30
    assert kept["metadata"]["managedFields"] == [before, came]
    assert warnings[0].startswith(
        "spec.runtimePatches: terminationGracePeriodSeconds of a.io/b for job node: kept"
    )


@pytest.mark.parametrize("manager", ["sdk.io/a", "sdk.io/ä"])
async def test_a_client_that_owns_one_runtime_patch_drops_only_that_one(manager: str) -> None:
    ours, kueues = (
        {"manager": each, "time": "2001-01-01T00:00:00Z"} for each in (manager, "kueue.x-k8s.io/manager")
    )
    entries = [entry(OWNER, "runtimeRef"), entry("kueue", "suspend")]
    for each, patch in zip(entries, (ours, kueues), strict=True):
        each["fieldsV1"]["f:spec"]["f:runtimePatches"] = {f'k:{{"manager":"{patch["manager"]}"}}': {".": {}}}
    old = job(entries, runtimePatches=[ours, kueues], suspend=False)

    kept, warnings = await stored(old, job([entry(OWNER, "runtimeRef"), KUEUE_CAME], suspend=True), PUT)

    assert kept["spec"]["runtimePatches"] == [ours]
    assert entries[0] in kept["metadata"]["managedFields"]
    assert KUEUE_CAME in kept["metadata"]["managedFields"]
    assert [warning.partition(":")[0] for warning in warnings] == [f"spec.runtimePatches of {manager}"]


async def test_a_client_that_writes_twice_in_a_second_is_known_by_the_fields_that_it_takes() -> None:
    """The time in its entry does not change within a second, and the entries of other owners change, too.

    A client that gains no field is not recognized, and may drop nothing.
    """
    patch = {"manager": "kueue.x-k8s.io/manager", "time": "2001-01-01T00:00:00Z"}
    held: Document = {
        "f:runtimePatches": {f'k:{{"manager":"{patch["manager"]}"}}': {".": {}}},
        "f:suspend": {},
    }
    kueue, sdk = entry("kueue"), entry(OWNER, "runtimeRef", "labels")
    kueue["fieldsV1"]["f:spec"] = held
    old = job([sdk, kueue], runtimePatches=[patch], labels={"a": "b"}, suspend=True)
    took = [entry(OWNER, "runtimeRef"), entry("kueue", "suspend", "podTemplateOverrides")]
    kept, _ = await stored(old, job(took, podTemplateOverrides=[KUEUES], suspend=True), PUT)
    assert "runtimePatches" not in kept["spec"]

    gave_up = [entry(OWNER, "runtimeRef"), entry("kueue", "suspend")]
    kept, warnings = await stored(old, job(gave_up, suspend=True), PUT)
    assert kept["spec"]["runtimePatches"] == [patch]
    assert kept["spec"]["labels"] == {"a": "b"}
    assert len(warnings) == 2


KUEUES: Document = {
    "targetJobs": [{"name": "node"}],
    "metadata": {"labels": {"kueue.x-k8s.io/podset": "node"}},
    "spec": {"nodeSelector": {"flavor": "spot"}},
}
USERS: Document = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}
WRITERS = [entry("sdk", "labels"), entry("kueue", "podTemplateOverrides", "suspend")]


def active(document: Document, number: int) -> Document:
    return {**document, "status": {"jobsStatus": [{"name": "node", "active": number}]}}


async def test_a_list_that_a_client_has_extended_is_put_back_with_a_field_that_it_never_owned() -> None:
    old = job(WRITERS, podTemplateOverrides=[USERS, KUEUES], labels={"l": "1"})
    found, warnings = await stored(old, job(WRITERS), {**PUT, "fieldManager": "kueue"})
    assert found["spec"]["podTemplateOverrides"] == [USERS, KUEUES]
    assert found["spec"]["labels"] == {"l": "1"}
    assert len(warnings) == 2


async def test_a_newer_kueue_that_drops_the_users_overrides_with_the_placement_gets_its_entry() -> None:
    """It owns the whole list, because an older release, with the same name, has added the placement."""
    owner = entry("kueue", "podTemplateOverrides", "suspend")
    old = job([owner], podTemplateOverrides=[USERS, KUEUES], suspend=False)
    found, _ = await stored(old, job([KUEUE_CAME], suspend=True), PUT)
    assert found["spec"]["podTemplateOverrides"] == [USERS, KUEUES]
    assert [each["manager"] for each in found["spec"]["runtimePatches"]] == [ENTRY["manager"]]


async def test_a_newer_kueue_gets_its_entry_and_the_older_ones_placement_goes_when_no_job_is_active() -> None:
    put, before = {**PUT, "fieldManager": "kueue"}, {"labels": {"l": "1"}}
    running = active(job(WRITERS, podTemplateOverrides=[USERS, KUEUES], suspend=False, **before), 1)
    suspended, _ = await stored(running, job(WRITERS, suspend=True), put)
    assert suspended["spec"]["podTemplateOverrides"] == [USERS, KUEUES]
    (added,) = suspended["spec"]["runtimePatches"]
    assert added["manager"] == "kueue.x-k8s.io/manager"
    assert added["trainingRuntimeSpec"] == {"template": {"spec": {}}}

    still, _ = await stored(active(suspended, 1), suspended, put)
    assert still["spec"]["podTemplateOverrides"] == [USERS, KUEUES]
    evicted, _ = await stored(active(suspended, 0), suspended, put)
    assert evicted["spec"]["podTemplateOverrides"] == [USERS]
    assert evicted["spec"]["runtimePatches"] == [added]


async def test_after_an_eviction_a_client_that_drops_the_users_overrides_with_the_placement_keeps_them() -> (
    None
):
    owner = entry("kueue", "podTemplateOverrides", "suspend")
    old = job([owner], podTemplateOverrides=[USERS, KUEUES], suspend=True)
    found, _ = await stored(old, job([entry("kueue", "suspend")], suspend=True), PUT)
    assert USERS in found["spec"]["podTemplateOverrides"]


async def test_a_placement_that_an_older_kueue_writes_beside_the_entry_of_a_newer_one_stays() -> None:
    patches = [runtime_patch("kueue.x-k8s.io/manager", spec={})]
    old = job(WRITERS, podTemplateOverrides=[USERS], runtimePatches=patches, suspend=True)
    new = job(WRITERS, podTemplateOverrides=[USERS, KUEUES], runtimePatches=patches, suspend=True)
    found, _ = await stored(old, new, {**PUT, "fieldManager": "kueue"})
    assert found["spec"]["podTemplateOverrides"] == [USERS, KUEUES]


SDKS, ENTRY = (
    {"manager": each, "time": "2001-01-01T00:00:00Z"} for each in ("a.io/b", "kueue.x-k8s.io/manager")
)


@pytest.mark.parametrize("suspend", [True, False])
async def test_the_entry_of_kueue_stays_behind_those_that_are_added_after_it(suspend: bool) -> None:
    """Patches are applied in the order of the list, and Kueue's placement has to be the last."""
    old = job(WRITERS, runtimePatches=[ENTRY], suspend=suspend)
    found, _ = await stored(old, job(WRITERS, runtimePatches=[ENTRY, SDKS], suspend=suspend), PUT)
    assert [each["manager"] for each in found["spec"]["runtimePatches"]] == [
        "a.io/b",
        "kueue.x-k8s.io/manager",
    ]


async def test_a_train_job_whose_patches_do_not_change_keeps_their_order() -> None:
    """While the TrainJob runs, a changed order would be refused together with the rest of the update."""
    old = job(WRITERS, runtimePatches=[ENTRY, SDKS], suspend=False)
    found, _ = await stored(old, job(WRITERS, runtimePatches=[ENTRY, SDKS], suspend=True), PUT)
    assert found["spec"]["runtimePatches"] == [ENTRY, SDKS]


@pytest.mark.parametrize("suspend", [False, None])
async def test_an_owner_removes_its_fields_from_a_train_job_that_runs_on(suspend: bool | None) -> None:
    stays = {} if suspend is None else {"suspend": suspend}
    old = job([entry("sdk", "labels")], labels={"l": "1"}, **stays)
    found, warnings = await stored(active(old, 1), job([], **stays), {**PUT, "fieldManager": "sdk"})
    assert (found["spec"].get("labels"), warnings) == (None, [])


@pytest.mark.parametrize("suspended", [False, True], ids=["suspends", "has suspended"])
async def test_an_owner_that_suspends_running_jobs_drops_nothing_yet(suspended: bool) -> None:
    """The removal would be refused while the jobs run, together with the suspension."""
    writers = [entry("kueue", "runtimePatches", "suspend")]
    patches = [runtime_patch("a.io/b", metadata={"labels": {"a": "b"}})]
    old = job(writers, runtimePatches=patches, suspend=suspended)
    new, put = job(writers, suspend=True), {**PUT, "fieldManager": "kueue"}
    found, _ = await stored(active(old, 1), new, put)
    assert [each["manager"] for each in found["spec"]["runtimePatches"]] == ["a.io/b"]
    found, _ = await stored(active(old, 0), new, put)
    assert "runtimePatches" not in found["spec"]


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_client_that_owns_only_the_ttl_removes_it_and_one_that_knows_a_generation_does_not(
    suspend: bool,
) -> None:
    active = {"jobsStatus": [{"name": "node", "active": 1}]}
    entries = [entry(OWNER, "runtimePatches"), entry("cleaner", "ttlSecondsAfterFinished")]
    spec = {"runtimePatches": FIELDS["runtimePatches"], "ttlSecondsAfterFinished": 60}
    old = {**job(entries, **spec), "status": active}
    del spec["ttlSecondsAfterFinished"]
    new = {**job(entries[:1], **spec, suspend=suspend), "status": active}
    kept, warnings = await stored(old, new, PUT | {"fieldManager": "cleaner"})
    assert ("ttlSecondsAfterFinished" in kept["spec"], warnings) == (False, [])
    kept, (warning,) = await stored(old, new, PUT | {"fieldManager": OWNER})
    assert kept["spec"]["ttlSecondsAfterFinished"] == 60
    assert warning.startswith("spec.ttlSecondsAfterFinished: kept")
