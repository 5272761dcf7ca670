# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper in this process under its shipped rights, and every request that it sends."""

import collections
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

from pkg import config, shipped
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.app import flags, program

USER = "grouper-under-test"
BOTH = "grouper-and-trainer-under-test"
ANNOTATION = "pod-group-name"


class Sent(collections.Counter[tuple[str, str]]):
    """Counts of the requests in namespaces by method and resource, without watches.

    ``paths`` has the paths of all requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []


NEWER = ("minSubGroup", "preemptionDelay", "stalenessGracePeriod")
"""Fields of a PodGroup since KAI-Scheduler v0.17."""


async def published(control_plane: Environment, field: str, *, expected: bool) -> None:
    """Wait until the published schema of PodGroups has a field, or does not: it is updated a moment after the CRD."""
    path = f"/openapi/v3/apis/{PodGroup.gvk.api_version}"
    async with Transport(control_plane.config) as transport:

        async def follows() -> bool:
            response = await transport.send(Request("GET", path))
            body = await response.read()
            return response.status == 200 and (field.encode() in body) is expected

        await eventually(follows, timeout=60, reason="the schema of the PodGroup is published")


@pytest.fixture(scope="module")
def grouper_control_plane(trainer_control_plane: Environment) -> Environment:
    async def install() -> None:
        daemon_sets = {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get", "list", "watch"]}
        await trainer_control_plane.install_crds(custom_resource_definition(PodGroup))
        await published(trainer_control_plane, NEWER[0], expected=True)
        async with Transport(trainer_control_plane.config) as transport:
            role, binding = shipped.manifests("podgrouper")
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User"}
            binding["metadata"]["name"] = USER
            binding["subjects"] = [{**subject, "name": USER}, {**subject, "name": BOTH}]
            (trainers,) = (each for each in shipped.manifests("rbac") if each["kind"] == "ClusterRoleBinding")
            trainers["metadata"]["name"] = BOTH
            trainers["subjects"] = [{**subject, "name": BOTH}]
            client = LiveClient(transport, RESTMapper(transport))
            more = {**role, "metadata": {"name": "daemon-sets"}, "rules": [daemon_sets]}
            bound = {**binding, "metadata": {"name": "daemon-sets"}}
            bound["roleRef"] = {**binding["roleRef"], "name": "daemon-sets"}
            await apply_manifests(client, [role, binding, trainers, more, bound], owner="test")

    anyio.run(install)
    return trainer_control_plane


@pytest.fixture
async def pod_group_crd(grouper_control_plane: Environment) -> AsyncIterator[Callable[..., Any]]:
    """Yield a function that installs the CRD of a release of KAI-Scheduler; the newest is installed after the test."""

    async def install(release: str) -> None:
        crd = custom_resource_definition(PodGroup)
        if release == "v0.13":
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            for properties in (
                schema["properties"],
                schema["properties"]["subGroups"]["items"]["properties"],
            ):
                for name in NEWER:
                    properties.pop(name, None)
        await grouper_control_plane.install_crds(crd)
        await published(grouper_control_plane, NEWER[0], expected=release != "v0.13")

    yield install
    await install("v0.17")


class Counting:
    """A transport that records the requests in a :class:`Sent`."""

    def __init__(self, transport: Transport, sent: Sent) -> None:
        self._transport = transport
        self._sent = sent

    async def send(self, request: Any) -> Any:
        self._sent.paths.append(request.path)
        parts = request.path.split("/")
        if "namespaces" in parts[:-2] and dict(request.query).get("watch") is None:
            self._sent[request.method, parts[parts.index("namespaces") + 2]] += 1
        return await self._transport.send(request)


@pytest.fixture(autouse=True)
async def leave_no_pods(live_client: LiveClient) -> AsyncIterator[None]:
    """Delete all pods after the test, so that the managers of later tests do not find them."""
    yield
    for pod in await live_client.list(Pod):
        with contextlib.suppress(NotFoundError):
            await live_client.delete(pod, grace_period_seconds=0)


RunGrouper = Callable[..., AbstractAsyncContextManager[tuple[Manager, Sent]]]


@pytest.fixture
async def configs(grouper_control_plane: Environment) -> dict[str, Config]:
    return {user: await grouper_control_plane.add_user(user) for user in (USER, BOTH)}


@pytest.fixture
def run_grouper(configs: dict[str, Config]) -> RunGrouper:
    @asynccontextmanager
    async def run(*arguments: str, **said: Any) -> AsyncIterator[tuple[Manager, Sent]]:
        cfg = config.load()
        for key, value in said.items():
            setattr(cfg.pod_grouper, key, value)
        parsed = flags.parse(arguments or ["--controllers=podgrouper"])
        grouper_config = configs[BOTH if arguments else USER]
        options = dataclasses.replace(
            program.options(parsed, cfg), metrics_bind_address="0", health_probe_bind_address="0"
        )
        sent = Sent()
        async with Transport(dataclasses.replace(grouper_config, qps=0)) as transport:
            mgr = Manager(grouper_config, options, transport=Counting(transport, sent))
            await program.setup(mgr, parsed, cfg)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(mgr.start)
                with anyio.fail_after(30):
                    await mgr.elected.wait()
                yield mgr, sent
                mgr.stop()

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
