# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server does what the properties of a generated CustomResourceDefinition say."""

import pytest

import controller_runtime as ctrl
from controller_runtime.client import LiveClient, raw_patch
from controller_runtime.envtest import Environment
from controller_runtime.machinery.crd import custom_resource_definition
from controller_runtime.machinery.errors import InvalidError
from ctrl_testkit.workers import WorkerSpec, WorkerV1, WorkerV1Beta1

pytestmark = pytest.mark.integration


def worker(namespace: str, zone: str, replicas: int = 1) -> WorkerV1:
    spec = WorkerSpec(replicas=replicas, limit=2, zone=zone)
    return WorkerV1(metadata=ctrl.ObjectMeta(name=zone, namespace=namespace), spec=spec)


async def test_the_server_does_what_the_markers_say(
    control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    definition = custom_resource_definition(WorkerV1, WorkerV1Beta1)
    del definition["spec"]["conversion"]  # no webhook runs; the versions have the same fields
    await control_plane.install_crds(definition)
    for zone in ("a", "b"):
        await live_client.create(worker(namespace, zone))

    found = await live_client.list(WorkerV1, namespace=namespace, fields={"spec.zone": "b"})
    assert [each.name for each in found] == ["b"]
    older = await live_client.get(WorkerV1Beta1, (namespace, "a"))
    assert older.spec.limit == 2

    scale = raw_patch("application/merge-patch+json", b'{"spec": {"replicas": 2}}')
    await live_client.transport.send(
        ctrl.rest.Request(
            "PATCH",
            f"/apis/example.com/v1/namespaces/{namespace}/workers/a/scale",
            body=scale.body,
            headers={"Content-Type": scale.content_type},
        )
    )
    assert (await live_client.get(WorkerV1, (namespace, "a"))).spec.replicas == 2

    with pytest.raises(InvalidError, match=r"spec\.replicas: Forbidden: few"):
        await live_client.create(worker(namespace, "c", replicas=3))
    moved = await live_client.get(WorkerV1, (namespace, "b"))
    moved.spec.zone = "z"
    with pytest.raises(InvalidError, match="zone is immutable"):
        await live_client.update(moved)


async def test_the_server_accepts_the_conversion_webhook(control_plane: Environment) -> None:
    definition = custom_resource_definition(WorkerV1, WorkerV1Beta1)
    definition["spec"]["group"] = "conversion.example.com"
    definition["metadata"]["name"] = "workers.conversion.example.com"
    await control_plane.install_crds(definition)
