# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The CRDs on a real API server: they are accepted, default, validate, and prune nothing that a user may write."""

import json
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import install_crds, read_manifests, wait_established
from controller_runtime.machinery import GVK, Unstructured, openapi, unstructured
from controller_runtime.rest import Config, Request, Transport

from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.builders import train_job_document

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
async def crds(live_client: LiveClient) -> None:
    names = await install_crds(live_client, read_manifests(ROOT / "config" / "crd" / "json"))
    await wait_established(live_client, names)


def train_job(namespace: str, **spec: Any) -> Unstructured:
    return unstructured(TrainJob.gvk).from_dict(train_job_document(namespace, "rt", **spec))


def shipped_manifests(folder: str, kind: GVK) -> list[dict[str, Any]]:
    files = sorted((ROOT / "config" / folder).rglob("*.yaml"))
    return [each for each in read_manifests(*files) if each["kind"] == kind.kind]


async def test_the_samples_are_accepted_as_they_are(live_client: LiveClient, namespace: str) -> None:
    for kind in (TrainJob.gvk, TrainingRuntime.gvk, GVK("", "v1", "PersistentVolumeClaim")):
        samples = shipped_manifests("samples", kind)
        assert samples
        for each in samples:
            each["metadata"]["namespace"] = namespace
            stored = await live_client.create(unstructured(kind).from_dict(each), dry_run=True)
            assert missing(each["spec"], stored["spec"]) == []


def everything(schema: dict[str, Any]) -> Any:
    """Return a value with every field that a schema knows."""
    if schema.get("x-kubernetes-int-or-string"):
        return "1"
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: everything(each) for name, each in schema["properties"].items()}
        case "object":
            return {"key": everything(schema.get("additionalProperties", {"type": "string"}))}
        case "array":
            return [everything(schema["items"])]
        case "integer":
            return 1
        case "boolean":
            return True
        case _:
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "eA=="


def missing(sent: Any, stored: Any, path: str = "") -> list[str]:
    """Return the paths of fields that were sent and are not stored."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [lost for key in sent for lost in missing(sent[key], stored.get(key), f"{path}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [lost for index, (a, b) in pairs for lost in missing(a, b, f"{path}[{index}]")]
    return [] if sent == stored else [path]


async def test_nothing_that_a_job_template_may_hold_is_pruned(
    live_client: LiveClient, namespace: str
) -> None:
    template = everything(openapi.definition("batch.v1.JobTemplateSpec"))
    spec = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}
    runtime = unstructured(TrainingRuntime.gvk).from_dict(
        {"metadata": {"name": "full", "namespace": namespace}, "spec": spec}
    )
    stored = await live_client.create(runtime)
    assert missing(spec, stored["spec"]) == []
    again = TrainingRuntime.from_dict(stored.to_dict())
    assert missing(spec, again.to_dict()["spec"]) == []


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], None),
        ([("Suspended", "True")], "Suspended"),
        ([("Suspended", "False")], None),
        ([("Suspended", "False"), ("Complete", "True")], "Complete"),
        ([("Failed", "True"), ("Suspended", "False")], "Failed"),
        ([("Suspended", "True"), ("Complete", "True")], "Complete"),
        ([("Complete", "True"), ("Suspended", "True")], "Complete"),
        ([("Audited", "True"), ("Suspended", "True"), ("Failed", "True")], "Failed"),
    ],
)
async def test_the_state_that_kubectl_prints_is_the_condition_that_holds(
    rest_config: Config,
    live_client: LiveClient,
    namespace: str,
    conditions: list[tuple[str, str]],
    state: str | None,
) -> None:
    job = await live_client.create(train_job(namespace))
    when = {"reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    if conditions:
        reported = [{"type": kind, "status": status, **when} for kind, status in conditions]
        job = unstructured(TrainJob.gvk).from_dict({**job.to_dict(), "status": {"conditions": reported}})
        await live_client.status.update(job)
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with Transport(rest_config) as transport:
        response = await transport.send(Request("GET", path, headers=table))
        printed = json.loads(await response.read())
    names = [column["name"] for column in printed["columnDefinitions"]]
    assert names == ["Name", "State", "Age"]
    assert printed["rows"][0]["cells"][:2] == ["job", state]
