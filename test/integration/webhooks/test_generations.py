# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Clients of both API generations on one real API server: each reads the fields that the others write."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from controller_runtime.client import LiveClient, raw_patch
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import ConflictError
from controller_runtime.rest import Request, warnings_in

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import pod_override, runtime_patch, train_job_document

pytestmark = pytest.mark.integration

MERGE = "application/merge-patch+json"
WORD = "trainer.kubeflow.org/num-proc-per-node"
MIRROR = "trainer.kubeflow.org/first-generation"
QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
Document = dict[str, Any]
Running = Callable[..., AbstractAsyncContextManager[None]]
As = Callable[[str], AbstractAsyncContextManager[LiveClient]]


def job(namespace: str, runtime: str, metadata: Document | None = None, **spec: Any) -> Unstructured:
    return Unstructured.wrap(
        train_job_document(namespace, runtime, metadata=metadata, **{"suspend": True, **spec})
    )


async def read(client: LiveClient, namespace: str) -> Document:
    return (await client.get(TrainJob, (namespace, "job"))).to_dict()


async def put_without(
    client: LiveClient, namespace: str, *fields: str, owner: str = "", **changes: Any
) -> Document:
    """Replace the TrainJob with ``changes`` and without ``fields``, as a typed client does that does not know them."""
    while True:
        found = await read(client, namespace)
        for field in fields:
            found["spec"].pop(field, None)
        found["spec"] |= changes
        try:
            return (await client.update(Unstructured.wrap(found), field_owner=owner)).to_dict()
        except ConflictError:
            continue  # the controller wrote the status meanwhile


def owners(train_job: Document, field: str) -> set[str]:
    return {
        entry["manager"]
        for entry in train_job["metadata"]["managedFields"]
        if f"f:{field}" in entry["fieldsV1"].get("f:spec", {})
    }


PATCHES = [runtime_patch("trainer.kubeflow.org/kubeflow-sdk", {"nodeSelector": {"a": "b"}})]
OVERRIDES = [pod_override({"nodeSelector": {"c": "d"}})]


OWN = "ttlSecondsAfterFinished"
"""A field that no release of Trainer has."""


async def test_a_put_of_a_client_of_the_other_generation_loses_nothing(
    admitting_manager: Running, acting_as: As, namespace: str, torch_runtime: str
) -> None:
    async with admitting_manager(), acting_as("sdk") as sdk, acting_as("kueue") as kueue:
        both: Document = {"ttlSecondsAfterFinished": 60, "labels": {"l": "1"}}
        made = job(namespace, torch_runtime, runtimePatches=PATCHES, activeDeadlineSeconds=60, **both)
        before = (await sdk.create(made)).to_dict()
        # Kueue with types of the first generation, then of the second.
        await put_without(kueue, namespace, "runtimePatches", "activeDeadlineSeconds", OWN, suspend=False)
        await put_without(
            kueue, namespace, "labels", "podTemplateOverrides", "annotations", OWN, suspend=True
        )
        after = await read(sdk, namespace)
        assert after["spec"] == before["spec"]
        for field in ("runtimePatches", "activeDeadlineSeconds", "labels", OWN):
            assert owners(after, field) == {"sdk"}
        # Its owner may remove a field, and so may a client that keeps other fields of the same generation.
        assert "labels" not in (await put_without(sdk, namespace, "labels", owner="sdk"))["spec"]
        body = msgspec.json.encode({"spec": {"runtimePatches": None}})
        removed = await kueue.patch(Unstructured.wrap(after), raw_patch(MERGE, body))
        assert "runtimePatches" not in removed.to_dict()["spec"]


async def put_seen(client: LiveClient, namespace: str, field: str, owner: str) -> tuple[Document, list[str]]:
    """Replace the TrainJob without a field; return the answer and the server's warnings."""
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/job"
    while True:
        found = await read(client, namespace)
        del found["spec"][field]
        query, headers = (("fieldManager", owner),), {"Content-Type": "application/json"}
        request = Request("PUT", path, query=query, headers=headers, body=msgspec.json.encode(found))
        response = await client.transport.send(request)
        answer = msgspec.json.decode(await response.read())
        if answer.get("reason") != "Conflict":  # the controller wrote the status meanwhile
            return answer, warnings_in(response.headers.get("Warning", ""))


async def test_a_removed_field_is_honoured_or_put_back_with_a_warning_that_names_it(
    admitting_manager: Running, acting_as: As, namespace: str, torch_runtime: str
) -> None:
    async with admitting_manager(), acting_as("sdk") as sdk, acting_as("notebook") as notebook:
        await sdk.create(job(namespace, torch_runtime, labels={"l": "1"}, activeDeadlineSeconds=60))
        # No other client can have sent this request, which names no field manager.
        gone, warnings = await put_seen(sdk, namespace, "labels", "")
        assert ("labels" in gone["spec"], warnings) == (False, [])
        body = msgspec.json.encode({"spec": {"labels": {"l": "1"}}})
        await sdk.patch(Unstructured.wrap(gone), raw_patch(MERGE, body))
        kept, (warning,) = await put_seen(notebook, namespace, "labels", "notebook")
        assert kept["spec"]["labels"] == {"l": "1"}
        assert warning.startswith("spec.labels: kept")
        # ``kubectl edit`` may remove the field, although another client owns it.
        gone, warnings = await put_seen(notebook, namespace, "labels", "kubectl-edit")
        assert ("labels" in gone["spec"], warnings) == (False, [])
        assert gone["spec"]["activeDeadlineSeconds"] == 60


async def test_a_field_that_was_put_back_still_follows_its_owners_next_apply(
    admitting_manager: Running, acting_as: As, namespace: str, torch_runtime: str
) -> None:
    async with admitting_manager(), acting_as("user") as user, acting_as("kueue") as kueue:
        wanted = job(
            namespace, torch_runtime, {"labels": QUEUE}, labels={"l": "1"}, podTemplateOverrides=OVERRIDES
        )
        await user.apply(wanted, field_owner="argocd")
        await put_without(kueue, namespace, "labels", "podTemplateOverrides", suspend=False)
        kept = await read(user, namespace)
        assert (kept["spec"]["labels"], kept["spec"]["podTemplateOverrides"]) == ({"l": "1"}, OVERRIDES)
        assert [each["manager"] for each in kept["spec"]["runtimePatches"]] == [MIRROR]
        await user.apply(job(namespace, torch_runtime, {"labels": QUEUE}), field_owner="argocd", force=True)
        gone = await read(user, namespace)
        assert not {"labels", "podTemplateOverrides", "runtimePatches"} & gone["spec"].keys()


async def test_sources_of_a_mirror_may_change_its_immutable_fields(
    admitting_manager: Running, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    async with admitting_manager():
        managers = []
        for name in ("one", "two", "three"):
            volumes: list[Document] = [{"name": name, "emptyDir": {}}]
            overrides = [{"targetJobs": [{"name": "node"}], "spec": {"volumes": volumes}}]
            if name == "one":
                made = job(namespace, torch_runtime, {"labels": QUEUE}, podTemplateOverrides=overrides)
                stored = (await live_client.create(made)).to_dict()
            else:
                body = msgspec.json.encode({"spec": {"podTemplateOverrides": overrides}})
                stored = (await live_client.patch(made, raw_patch(MERGE, body))).to_dict()
            (mirror,) = stored["spec"]["runtimePatches"]
            managers.append(mirror["manager"])
            (patched,) = mirror["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
            assert patched["template"]["spec"]["template"]["spec"]["volumes"] == volumes
        assert managers == [MIRROR, f"{MIRROR}-2", MIRROR]
