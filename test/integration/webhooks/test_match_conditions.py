# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The API server calls the mutating webhook for every new TrainJob that the manager may change, and for few others."""

import contextlib
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime import webhook
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import InvalidError, StatusError
from controller_runtime.serving import HTTPRequest, HTTPResponse
from trainerctl.localcluster import manifests

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.webhooks.trainjob_defaulter import TrainJobDefaulter
from testkit.builders import train_job_document

pytestmark = pytest.mark.integration

Document = dict[str, Any]
PATH = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
WORD = "trainer.kubeflow.org/num-proc-per-node"
QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
MIB = "x" * (1 << 20)
PATCHES = [{"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}]
OVERRIDES = [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}]

UNCHANGED: dict[str, Document] = {
    "nothing": {},
    "of a queue": {"metadata": QUEUE},
    "of another controller": {"managedBy": "kueue.x-k8s.io/multikueue"},
    "suspended with a deadline": {"suspend": True, "activeDeadlineSeconds": 60},
    "a full reference": {
        "runtimeRef": {"name": "torch", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    },
    "a trainer as the SDK sends it": {
        "trainer": {
            "image": "i" * 500,
            "command": ["bash", "-c"],
            "args": ["a"] * 128,
            "env": [{"name": f"E{number}", "value": "v"} for number in range(128)],
            "numNodes": 2,
            "numProcPerNode": 2147483647,
            "resourcesPerNode": {"limits": {"cpu": 1}},
        }
    },
    "the least number": {"trainer": {"numProcPerNode": -2147483648}},
    "a long argument": {"trainer": {"args": [MIB]}},
    "an annotation of someone else": {
        "metadata": {"annotations": {"a": "b"}},
        "trainer": {"numProcPerNode": 1},
    },
}
CHANGED: dict[str, Document] = {
    "overrides in a queue": {"metadata": QUEUE, "podTemplateOverrides": OVERRIDES},
    "labels in a queue": {"metadata": QUEUE, "labels": {"a": "b"}},
    "annotations of another controller": {
        "managedBy": "kueue.x-k8s.io/multikueue",
        "annotations": {"a": "b"},
    },
    "patches": {"runtimePatches": PATCHES},
    "a word": {"trainer": {"numProcPerNode": "auto"}},
    "digits": {"trainer": {"numProcPerNode": "2"}},
    "too great a number": {"trainer": {"numProcPerNode": 2147483648}},
    "too small a number": {"trainer": {"numProcPerNode": -2147483649}},
    "a number beside a word": {
        "metadata": {"annotations": {WORD: "auto"}},
        "trainer": {"numProcPerNode": 1},
    },
    "a long image": {"trainer": {"image": "i" * 501}},
    "many commands": {"trainer": {"command": ["c"] * 129}},
    "many arguments": {"trainer": {"args": ["a"] * 129}},
    "many variables": {"trainer": {"env": [{"name": f"E{number}"} for number in range(129)]}},
    "too long an argument": {"trainer": {"args": ["a", f"{MIB}x"]}},
    "too long a command": {"trainer": {"command": [f"{MIB}x"]}},
    "a long name": {"runtimeRef": {"name": "n" * 254}},
    "a long kind": {"runtimeRef": {"name": "torch", "kind": "K" * 254}},
    "a long group": {"runtimeRef": {"name": "torch", "apiGroup": "g" * 254}},
    "a URI that is none": {"initializer": {"dataset": {"storageUri": "nothing"}}},
    "a model's URI that is none": {"initializer": {"model": {"storageUri": "nothing"}}},
}
REFUSED: dict[str, Document] = {
    "a trainer that is a list": {"trainer": ["a"]},
    "an image that is a number": {"trainer": {"image": 1}},
    "arguments that are a text": {"trainer": {"args": "a"}},
    "an argument that is a map": {"trainer": {"args": [{}]}},
    "a reference that is a text": {"runtimeRef": "torch"},
    "a name that is a number": {"runtimeRef": {"name": 1}},
    "a fraction": {"trainer": {"numProcPerNode": 1.5}},
    "no trainer": {"trainer": None, "numNodes": 1, "labels": 3},
    "a null": {"trainer": {"numProcPerNode": None, "image": None, "args": None}, "suspend": "no"},
}


def train_job(namespace: str, number: int, fields: Document) -> Document:
    return train_job_document(namespace, name=f"job-{number}", **fields)


async def test_a_new_train_job_is_reviewed_if_the_manager_may_change_it(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str, tmp_path: Path
) -> None:
    reviewed: list[tuple[str, str]] = []

    async def admit(request: HTTPRequest) -> HTTPResponse:
        asked = json.loads(request.body)["request"]
        reviewed.append((asked["name"], asked["operation"]))
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**answer, "response": {"uid": asked["uid"], "allowed": True}}).encode()
        return HTTPResponse(body=body, content_type="application/json")

    authority = trainer_control_plane.control_plane.authority
    authority.server("webhooks", ["127.0.0.1", "localhost"]).write(tmp_path)
    server = webhook.Server("127.0.0.1", 0)
    server.use(webhook.CertWatcher(tmp_path / "tls.crt", tmp_path / "tls.key"))
    server.register_http(PATH, admit)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        hooks = manifests.trainer_webhooks(f"https://127.0.0.1:{server.port}", authority.certificate)
        (manifest,) = [each for each in hooks if each["kind"] == "MutatingWebhookConfiguration"]
        manifest["metadata"]["name"] = namespace
        for hook in manifest["webhooks"]:
            inside = {"name": "ours", "expression": f"request.namespace == '{namespace}'"}
            hook["matchConditions"].insert(0, inside)
        made = await live_client.create(Unstructured.wrap(manifest))
        try:
            await _check(live_client, namespace, reviewed)
        finally:
            await live_client.delete(made)
            tasks.cancel_scope.cancel()


async def _check(client: LiveClient, namespace: str, reviewed: list[tuple[str, str]]) -> None:
    async def asks() -> bool:
        probe = train_job(namespace, 0, CHANGED["a word"])
        await client.create(Unstructured.wrap(probe), dry_run=True)
        return bool(reviewed)

    await eventually(asks, reason="the API server asks the webhook")
    defaulter, documents = TrainJobDefaulter(), {**UNCHANGED, **CHANGED}
    for number, (case, fields) in enumerate(documents.items()):
        document = train_job(namespace, number, fields)
        concerned = defaulter.concerns(AdmissionRequest(), None, TrainJob.from_dict(document))
        assert concerned is (case in CHANGED), case
        reviewed.clear()
        with contextlib.suppress(
            InvalidError
        ):  # some are refused for their number or their image after the webhook
            await client.create(Unstructured.wrap(document), dry_run=True)
        assert reviewed == ([(f"job-{number}", "CREATE")] if concerned else []), case

    for case, fields in REFUSED.items():
        with pytest.raises(StatusError) as refused:
            await client.create(Unstructured.wrap(train_job(namespace, 0, fields)), dry_run=True)
        assert "spec." in str(refused.value), case  # by the CRD's schema, not by the condition
        assert "matchConditions" not in str(refused.value), case
    without = {**train_job(namespace, 0, {}), "spec": None}
    await client.create(Unstructured.wrap(without), dry_run=True)  # the CRD requires no spec

    stored = train_job(namespace, 0, {})
    await client.create(Unstructured.wrap(stored))
    reviewed.clear()
    await client.apply(
        Unstructured.wrap(train_job(namespace, 0, {"suspend": True})), field_owner="user", force=True
    )
    assert reviewed == [("job-0", "UPDATE")]
