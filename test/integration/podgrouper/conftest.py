# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper in this process under its shipped rights, and every request that it sends."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from controller_runtime import Manager
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually
from controller_runtime.machinery import GVK, Object, Unstructured
from controller_runtime.machinery.crd import custom_resource_definition
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Config, Request, RESTMapper, Transport

from pkg import shipped
from pkg.apis.kai.v2alpha2 import PodGroup

USER = "grouper-under-test"
BOTH = "grouper-and-trainer-under-test"
ANNOTATION = "pod-group-name"


@pytest.fixture(scope="module")
def grouper_control_plane(trainer_control_plane: Environment) -> Environment:
    async def install() -> None:
        await trainer_control_plane.install_crds(custom_resource_definition(PodGroup))
        async with Transport(trainer_control_plane.config) as transport:

            async def published() -> bool:
                """Return True once the schema, by which the rules are chosen, has the fields of the newest release."""
                path = f"/openapi/v3/apis/{PodGroup.gvk.api_version}"
                response = await transport.send(Request("GET", path))
                return b"minSubGroup" in await response.read()

            await eventually(published, timeout=60, reason="the schema of the PodGroup is published")
            role, binding = shipped.manifests("podgrouper")
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User"}
            binding["metadata"]["name"] = USER
            binding["subjects"] = [{**subject, "name": USER}, {**subject, "name": BOTH}]
            (trainers,) = (each for each in shipped.manifests("rbac") if each["kind"] == "ClusterRoleBinding")
            trainers["metadata"]["name"] = BOTH
            trainers["subjects"] = [{**subject, "name": BOTH}]
            client = LiveClient(transport, RESTMapper(transport))
            await apply_manifests(client, [role, binding, trainers], owner="test")

    anyio.run(install)
    return trainer_control_plane


@pytest.fixture(autouse=True)
async def leave_no_pods(live_client: LiveClient) -> AsyncIterator[None]:
    """Delete all pods after the test, so that the managers of later tests do not find them."""
    yield
    for pod in await live_client.list(Pod):
        with contextlib.suppress(NotFoundError):
            await live_client.delete(pod, grace_period_seconds=0)


RunGrouper = Callable[..., AbstractAsyncContextManager[tuple[Manager, list[Request]]]]


@pytest.fixture
async def configs(grouper_control_plane: Environment) -> dict[str, Config]:
    return {user: await grouper_control_plane.add_user(user) for user in (USER, BOTH)}


@pytest.fixture
def run_grouper(configs: dict[str, Config], run_manager: Callable[..., Any]) -> RunGrouper:
    """Return a function that runs the pod grouper, and yields the manager and the list of its requests."""

    @asynccontextmanager
    async def run(*arguments: str, **keys: Any) -> AsyncIterator[tuple[Manager, list[Request]]]:
        sent: list[Request] = []
        user = configs[BOTH if arguments else USER]
        given = arguments or ("--controllers=podgrouper",)
        async with run_manager(*given, client_config=user, pod_grouper=keys, sent=sent) as mgr:
            yield mgr, sent

    return run


@pytest.fixture
def make(live_client: LiveClient, namespace: str) -> Callable[..., Any]:
    """Return a function that creates an object of any kind, with a reference to its owner if one is given."""

    async def create(
        kind: GVK, name: str, owner: Object | None, spec: dict[str, Any], **labels: str
    ) -> Unstructured:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels}
        if owner is not None:
            gvk, uid = type(owner).gvk, owner.metadata.uid
            reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": owner.name, "uid": uid}
            metadata["ownerReferences"] = [reference]
        data = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        return await live_client.create(Unstructured.wrap(data))

    return create


@pytest.fixture
def grouped(live_client: LiveClient, namespace: str) -> Callable[..., Any]:
    """Return a function that waits until ``count`` pods name a group, and returns the names."""

    async def wait(count: int) -> list[str]:
        async def named() -> list[str] | None:
            pods = await live_client.list(Pod, namespace=namespace)
            names = [pod.annotations[ANNOTATION] for pod in pods if ANNOTATION in pod.annotations]
            return names if len(names) == count else None

        found: list[str] = await eventually(named, timeout=30, reason=f"{count} pods are grouped")
        return found

    return wait


@dataclasses.dataclass(frozen=True)
class World:
    """A namespace with pods to group, and the pod grouper."""

    client: LiveClient
    namespace: str
    make: Callable[..., Any]
    grouped: Callable[..., Any]
    run: RunGrouper


@pytest.fixture
def world(
    live_client: LiveClient,
    namespace: str,
    make: Callable[..., Any],
    grouped: Callable[..., Any],
    run_grouper: RunGrouper,
) -> World:
    return World(live_client, namespace, make, grouped, run_grouper)
