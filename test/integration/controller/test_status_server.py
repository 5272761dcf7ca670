# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A pod reports progress to the status of its TrainJob; a real API server signs the tokens and enforces the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import pytest
from controller_runtime.apis.authentication.v1 import BoundObjectReference, TokenRequest, TokenRequestSpec
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod, ServiceAccount
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually, free_ports
from controller_runtime.machinery import Object
from controller_runtime.rest import (
    Config,
    Request,
    Response,
    StaticToken,
    TLSConfig,
    Transport,
)

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver import status_url, token_audience
from testkit.builders import written_train_job

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("may_look_at_pods")]

T = TypeVar("T", bound=Object)

SERVICE = "kubeflow-trainer-controller-manager.kubeflow-system.svc"
UPDATE = {
    "trainerStatus": {
        "progressPercentage": 42,
        "metrics": [{"name": "loss", "value": "0.25"}],
        "lastUpdatedTime": "2026-01-02T03:04:05Z",
    }
}


@dataclass
class World:
    """A manager with the status server, and pods as JobSet and the Job controller would create them."""

    client: LiveClient
    namespace: str
    runtime: str
    port: int

    async def train_job(self, name: str) -> Pod:
        """Create a TrainJob, wait for its JobSet, and return a pod of it."""
        await self.client.create(written_train_job(self.namespace, self.runtime, name=name, kind=None))
        job_set = await self._found(JobSet, name)
        containers = [{"name": "node", "image": "x"}]
        pod = {"serviceAccountName": "default", "restartPolicy": "Never", "containers": containers}
        job = await self._child(Job, f"{name}-node-0", job_set, {"template": {"spec": pod}})
        return await self._child(Pod, f"{name}-node-0-0-abcde", job, pod)

    async def token(self, pod: Pod, train_job: str) -> str:
        """Return a token as the kubelet requests it for the volume of a TrainJob's pod."""
        bound = BoundObjectReference(kind="Pod", api_version="v1", name=pod.name, uid=pod.metadata.uid)
        audiences = [token_audience(self.namespace, train_job)]
        spec = TokenRequestSpec(audiences=audiences, expiration_seconds=3600, bound_object_ref=bound)
        account = ServiceAccount.from_dict({"metadata": {"namespace": self.namespace, "name": "default"}})
        issued = await self.client.subresource("token").create(account, TokenRequest(spec=spec))
        return issued.status.token or ""

    async def authority(self, train_job: str) -> bytes:
        """Return the authority that the pods of a TrainJob trust."""
        config_map = await self._found(ConfigMap, f"{train_job}-tls-config")
        return str((config_map.data or {})["ca.crt"]).encode()

    async def post(
        self, train_job: str, token: str, body: Any = UPDATE, authority: bytes = b""
    ) -> tuple[int, Any]:
        """Return the answer to an update, sent as the SDK does: over TLS with the authority of the ConfigMap."""
        authority = authority or await self.authority(train_job)
        config = Config(
            host=f"https://127.0.0.1:{self.port}",
            tls=TLSConfig(ca=authority, server_name=SERVICE),
            credentials=StaticToken(token),
        )
        async with Transport(config) as transport:
            request = Request("POST", status_url(self.namespace, train_job), body=json.dumps(body).encode())
            response: Response = await transport.send(request)
            return response.status, json.loads(await response.read())

    async def status(self, train_job: str) -> dict[str, Any]:
        return (await self.client.get(TrainJob, (self.namespace, train_job))).status.to_dict()

    async def suspend(self, train_job: str) -> None:
        """Suspend a TrainJob, and wait until the controller has written that into its status."""
        job = await self.client.get(TrainJob, (self.namespace, train_job))
        await self.client.patch(job, raw_patch(MERGE, b'{"spec":{"suspend":true}}'))

        async def written() -> bool:
            conditions = (await self.status(train_job)).get("conditions") or []
            return any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)

        await eventually(written, timeout=30, reason="the condition Suspended is True")

    async def _found(self, kind: type[Any], name: str) -> Any:
        async def look() -> Any:
            return await self.client.get(kind, (self.namespace, name))

        return await eventually(look, timeout=30, reason=f"{kind.gvk.kind} {name} exists")

    async def _child(self, kind: type[T], name: str, owner: Object, spec: dict[str, Any]) -> T:
        gvk, uid = type(owner).gvk, owner.metadata.uid
        reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": owner.name, "uid": uid}
        references = [{**reference, "controller": True}]
        metadata = {"namespace": self.namespace, "name": name, "ownerReferences": references}
        return await self.client.create(kind.from_dict({"metadata": metadata, "spec": spec}))


StartWorld = Callable[[], AbstractAsyncContextManager[World]]


@pytest.fixture
async def start(
    run_manager: Callable[..., Any], live_client: LiveClient, namespace: str, torch_runtime: str
) -> StartWorld:
    """Run the manager with the feature gate: ``async with start() as world``."""
    account = {"metadata": {"namespace": namespace, "name": "default"}}
    await live_client.create(ServiceAccount.from_dict(account))
    (port,) = free_ports(1)

    @asynccontextmanager
    async def started() -> AsyncIterator[World]:
        async with run_manager("--feature-gates=TrainJobStatus=true", status_port=port):
            yield World(live_client, namespace, torch_runtime, port)

    return started


async def test_a_pod_reports_the_progress_of_its_train_job(start: StartWorld) -> None:
    async with start() as world:
        pod = await world.train_job("bert")

        code, answer = await world.post("bert", await world.token(pod, "bert"))

        assert (code, answer) == (200, UPDATE)
        assert (await world.status("bert"))["trainerStatus"] == UPDATE["trainerStatus"]
        stored = await world.client.get(TrainJob, (world.namespace, "bert"))
        await world.suspend("bert")
        assert (await world.status("bert"))["trainerStatus"] == UPDATE["trainerStatus"]
        owners = {
            each.manager for each in stored.metadata.managed_fields or () if each.subresource == "status"
        }
        assert "trainer-status" in owners


async def test_a_pod_of_a_deleted_train_job_reports_nothing_for_the_next_one_of_the_name(
    start: StartWorld,
) -> None:
    async with start() as world:
        token = await world.token(await world.train_job("again"), "again")
        assert (await world.post("again", token))[0] == 200
        await world.client.delete(await world.client.get(TrainJob, (world.namespace, "again")))
        await world.client.create(written_train_job(world.namespace, world.runtime, name="again", kind=None))

        authority = await world.authority("again")

        async def refused() -> bool:
            return (await world.post("again", token, authority=authority))[0] == 403

        await eventually(refused, reason="the manager observes the new TrainJob")
        later = {"trainerStatus": {**UPDATE["trainerStatus"], "progressPercentage": 99}}
        code, answer = await world.post("again", token, later, authority)
        assert (code, answer["reason"]) == (403, "Forbidden")
        assert (await world.status("again")).get("trainerStatus", {}).get("progressPercentage") != 99


async def test_the_schema_refuses_bad_values_with_one_clear_error(start: StartWorld) -> None:
    async with start() as world:
        token = await world.token(await world.train_job("bert"), "bert")

        async def refused(**status: Any) -> str:
            code, answer = await world.post("bert", token, {"trainerStatus": status})
            assert (code, answer["reason"]) == (422, "Invalid")
            return str(answer["message"])

        now = "2026-01-02T03:04:05Z"
        assert "should be less than or equal to 100" in await refused(
            progressPercentage=101, lastUpdatedTime=now
        )
        assert "lastUpdatedTime" in await refused(progressPercentage=1)
        assert await refused(progressPercentage=2**31, lastUpdatedTime=now) == "Invalid payload"


async def test_a_train_job_costs_one_request_more_than_without_the_feature(
    run_manager: Callable[..., Any], live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    sent: list[Request] = []
    (port,) = free_ports(1)
    async with run_manager("--feature-gates=TrainJobStatus=true", status_port=port, sent=sent):
        world = World(live_client, namespace, torch_runtime, port)
        await world.train_job("first")  # this creates the Secret of the certificates
        sent.clear()
        await world.train_job("bert")
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
