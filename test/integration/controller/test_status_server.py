# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A pod reports progress to the status of its TrainJob; a real API server signs the tokens and enforces the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually, free_ports
from controller_runtime.rest import (
    Config,
    Request,
    StaticToken,
    TLSConfig,
    Transport,
)

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver import status_url
from testkit.builders import written_train_job
from testkit.clusters import job_set_at, until
from testkit.scenarios import pod_token

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("may_look_at_pods")]


SERVICE = "kubeflow-trainer-controller-manager.kubeflow-system.svc"
UPDATE = {
    "trainerStatus": {
        "progressPercentage": 42,
        "metrics": [{"name": "loss", "value": "0.25"}],
        "lastUpdatedTime": "2026-01-02T03:04:05Z",
    }
}


async def authority(client: LiveClient, namespace: str, train_job: str) -> bytes:
    """Return the authority that the pods of a TrainJob trust."""
    config_map = await eventually(
        lambda: client.get(ConfigMap, (namespace, f"{train_job}-tls-config")), reason="the ConfigMap exists"
    )
    return str((config_map.data or {})["ca.crt"]).encode()


async def status(client: LiveClient, namespace: str) -> dict[str, Any]:
    return (await client.get(TrainJob, (namespace, "bert"))).status.to_dict()


async def test_a_pod_reports_the_progress_of_its_train_job(
    run_manager: Callable[..., Any], live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    (port,) = free_ports(1)
    async with run_manager("--feature-gates=TrainJobStatus=true", status_port=port):
        job = await live_client.create(written_train_job(namespace, torch_runtime, name="bert", kind=None))
        await job_set_at(live_client, job.key)
        config = Config(
            host=f"https://127.0.0.1:{port}",
            tls=TLSConfig(ca=await authority(live_client, namespace, "bert"), server_name=SERVICE),
            credentials=StaticToken(await pod_token(live_client, namespace, "bert")),
        )
        async with Transport(config) as transport:

            async def post(body: Any) -> tuple[int, Any]:
                """Return the answer to an update, sent as the SDK does: over TLS with the authority of the ConfigMap."""
                text = json.dumps(body).encode()
                response = await transport.send(Request("POST", status_url(namespace, "bert"), body=text))
                return response.status, json.loads(await response.read())

            assert await post(UPDATE) == (200, UPDATE)
            assert (await status(live_client, namespace))["trainerStatus"] == UPDATE["trainerStatus"]
            # The schema refuses bad values.
            now = "2026-01-02T03:04:05Z"
            for words, bad in (
                ("should be less than or equal to 100", {"progressPercentage": 101, "lastUpdatedTime": now}),
                ("lastUpdatedTime", {"progressPercentage": 1}),
            ):
                code, answer = await post({"trainerStatus": bad})
                assert (code, answer["reason"]) == (422, "Invalid")
                assert words in answer["message"]
        # The controller's own status is written beside the report.
        stored = await live_client.get(TrainJob, job.key)
        await live_client.patch(stored, raw_patch(MERGE, b'{"spec":{"suspend":true}}'))
        await until(live_client, job, "Suspended")
        assert (await status(live_client, namespace))["trainerStatus"] == UPDATE["trainerStatus"]
        entries = stored.metadata.managed_fields or ()
        assert "trainer-status" in {each.manager for each in entries if each.subresource == "status"}


async def test_a_train_job_costs_one_request_more_than_without_the_feature(
    run_manager: Callable[..., Any], live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    sent: list[Request] = []
    (port,) = free_ports(1)
    async with run_manager("--feature-gates=TrainJobStatus=true", status_port=port, sent=sent):
        for name in ("first", "bert"):  # the first one creates the Secret of the certificates
            sent.clear()
            await live_client.create(written_train_job(namespace, torch_runtime, name=name, kind=None))
            await job_set_at(live_client, (namespace, name))
            await anyio.sleep(1)
    about = Counter(
        (request.method, request.path.partition("/v1")[2]) for request in sent if namespace in request.path
    )
    place = f"/namespaces/{namespace}"
    assert about == {
        ("PATCH", f"{place}/configmaps/bert-tls-config"): 1,
        ("PATCH", f"alpha2{place}/jobsets/bert"): 1,
    }
    assert not [request for request in sent if request.method == "GET" and "/secrets/" in request.path]
