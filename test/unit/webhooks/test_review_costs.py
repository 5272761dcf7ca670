# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of a review in counts that do not depend on the machine; a change that raises one needs a reason."""

import json
import sys

from controller_runtime import webhook
from controller_runtime.fake import FakeClient
from controller_runtime.serving import HTTPRequest

from pkg import shipped
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.runtime import core
from pkg.webhooks import TrainJobWebhook

PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"


def creation_of(number: int) -> HTTPRequest:
    trainer = {
        "numNodes": 2,
        "image": "registry.example.com/train:1",
        "command": ["torchrun", "train.py"],
        "args": [f"--seed={number}"],
        "resourcesPerNode": {"limits": {"cpu": "4", "memory": "16Gi"}},
        "env": [{"name": f"SETTING_{each}", "value": str(each)} for each in range(5)],
    }
    runtime = {
        "apiGroup": TrainJob.gvk.group,
        "kind": ClusterTrainingRuntime.gvk.kind,
        "name": "torch-distributed",
    }
    job = {
        "apiVersion": TrainJob.gvk.api_version,
        "kind": TrainJob.gvk.kind,
        "metadata": {"name": f"job-{number:05}", "namespace": "team-a", "uid": str(number)},
        "spec": {"runtimeRef": runtime, "trainer": trainer},
    }
    kind = {"group": TrainJob.gvk.group, "version": TrainJob.gvk.version, "kind": TrainJob.gvk.kind}
    request = {"uid": "1", "kind": kind, "namespace": "team-a", "operation": "CREATE", "object": job}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    headers = {"Content-Type": "application/json"}
    return HTTPRequest(method="POST", path=PATH, headers=headers, query={}, body=json.dumps(body).encode())


async def test_a_review_of_a_train_job_costs_no_more_python_calls_than_this() -> None:
    manifest = next(
        each
        for each in shipped.manifests("runtimes")
        if each["metadata"]["name"] == "torch-distributed" and each["kind"] == "ClusterTrainingRuntime"
    )
    manifest["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    client = FakeClient(ClusterTrainingRuntime.from_dict(manifest))
    validator = TrainJobWebhook(await core.new(client, client))
    serve = webhook.Webhook(PATH, webhook.ValidatorHandler(TrainJob, validator))
    await serve(creation_of(1))  # the first call builds the decoders and checks the template
    asked, calls = creation_of(2), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        response = await serve(asked)
    finally:
        sys.setprofile(None)
    assert b'"allowed":true' in response.body
    assert calls <= 200
