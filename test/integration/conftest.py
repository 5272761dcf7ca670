# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of integration tests of Trainer: its kinds served, and our manager running under its shipped rights."""

import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime import Manager
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, Environment, apply_manifests
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Config, NoKindMatchError, Request, Response, RESTMapper, Transport
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding
from trainerctl.localcluster.tools import JOBSET

from pkg import config, shipped
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.app import flags, program
from testkit import processes

USER = "trainer-under-test"

RunManager = Callable[..., AbstractAsyncContextManager[Manager]]


@pytest.fixture(scope="session")
def install_trainer() -> Callable[[Environment], None]:
    """Return a function that installs JobSet's and Trainer's CRDs, and binds our manager's role to a user."""

    async def install(control_plane: Environment) -> None:
        binaries = await Binaries().locate(JOBSET)
        await control_plane.install_crds(*manifests.crds(binaries[JOBSET.name]))
        async with Transport(control_plane.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            await client.create(Namespace.from_dict({"metadata": {"name": manifests.TRAINER_NAMESPACE}}))
            (role,) = [each for each in shipped.manifests("rbac") if each["kind"] == "ClusterRole"]
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
            binding = role_binding(role["metadata"]["name"], user)
            await apply_manifests(client, [role, binding], owner="test")

    return lambda control_plane: anyio.run(install, control_plane)


@pytest.fixture(scope="session")
def trainer_control_plane(
    control_plane: Environment, install_trainer: Callable[[Environment], None]
) -> Environment:
    """Return the API server of the run, with Trainer installed."""
    install_trainer(control_plane)
    return control_plane


@pytest.fixture
async def trainer_config(trainer_control_plane: Environment) -> Config:
    """Return the client configuration of the manager under test."""
    return await trainer_control_plane.add_user(USER)


@asynccontextmanager
async def granted(client: LiveClient, folder: str) -> AsyncIterator[None]:
    """Bind the role of a folder of ``config``, for a feature that is off by default, to the manager under test."""
    (binding,) = [each for each in shipped.manifests(folder) if each["kind"] == "ClusterRoleBinding"]
    name = binding["roleRef"]["name"]
    (role,) = [
        each
        for each in shipped.manifests(folder)
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name
    ]
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    objects = [role, role_binding(name, user)]
    await apply_manifests(client, objects, owner="test")
    yield
    for each in objects:
        await client.delete(Unstructured.wrap(each))


@pytest.fixture
async def may_review(live_client: LiveClient) -> AsyncIterator[None]:
    """Bind the role of ``config/metrics-authorization`` to the manager under test, for the time of one test."""
    async with granted(live_client, "metrics-authorization"):
        yield


@pytest.fixture
async def may_look_at_pods(live_client: LiveClient) -> AsyncIterator[None]:
    """Bind the role of ``config/status-server`` to the manager under test, for the time of one test."""
    async with granted(live_client, "status-server"):
        yield


class Recorded:
    """A transport that records the requests."""

    def __init__(self, transport: Transport, sent: list[Request]) -> None:
        self._transport = transport
        self._sent = sent

    async def send(self, request: Request) -> Response:
        """Record the request and send it."""
        self._sent.append(request)
        return await self._transport.send(request)


@pytest.fixture
def run_manager(trainer_config: Config) -> RunManager:
    """Return a function that runs the program's manager in the test's process: ``async with run_manager() as mgr``.

    Positional arguments are flags of the program, ``pod_grouper`` has keys of the Configuration, and further keywords are
    options of the manager. Every request of the manager is appended to the list ``sent``, if it is given.
    """

    @asynccontextmanager
    async def run(
        *arguments: str,
        webhooks: bool = False,
        sent: list[Request] | None = None,
        status_port: int = 0,
        version: str = "2.1",
        client_config: Config = trainer_config,
        pod_grouper: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Manager]:
        parsed = flags.parse(arguments)
        cfg = config.with_feature_gates(config.load(), parsed.feature_gates)
        cfg.compatibility_version = version
        cfg.cert_management.enable = not webhooks
        cfg.cert_management.webhook_secret_name = f"webhook-cert-{secrets.token_hex(4)}"
        cfg.webhook.host, cfg.status_server.port = "127.0.0.1", status_port
        for key, value in (pod_grouper or {}).items():
            setattr(cfg.pod_grouper, key, value)
        settings = dataclasses.replace(
            program.options(parsed, cfg),
            **{"metrics_bind_address": "0", "health_probe_bind_address": "0", "webhook_port": 0, **options},
        )
        unthrottled = dataclasses.replace(client_config, qps=0)
        async with Transport(unthrottled) as transport, anyio.create_task_group() as tasks:
            recorded = None if sent is None else Recorded(transport, sent)
            mgr = Manager(unthrottled, settings, transport=recorded)
            await program.setup(mgr, parsed, cfg)
            tasks.start_soon(mgr.start)
            with anyio.fail_after(30):
                await mgr.elected.wait()
            yield mgr
            mgr.stop()

    return run


@pytest.fixture
async def namespace(namespace: str, live_client: LiveClient) -> AsyncIterator[str]:
    """Yield a new namespace; its TrainJobs are deleted after the test, so that later managers do not find them."""
    yield namespace
    try:
        jobs = await live_client.list(TrainJob, namespace=namespace)
    except (NoKindMatchError, NotFoundError):
        return  # no test has installed the kind
    for job in jobs:
        await live_client.delete(job)


@pytest.fixture
def start_manager(
    trainer_control_plane: Environment, tmp_path: Path
) -> Iterator[Callable[..., processes.Process]]:
    """Yield a function that starts our manager with further flags and keys; it is killed after the test."""
    started: list[processes.Process] = []
    certificates = {"webhookSecretName": f"webhook-cert-{secrets.token_hex(4)}"}

    def start(*arguments: str, **configuration: Any) -> processes.Process:
        user = trainer_control_plane.kubeconfig_for(USER)
        flags = processes.manager_flags(
            tmp_path, user, **{"certManagement": certificates, "compatibilityVersion": "2.1", **configuration}
        )
        started.append(processes.start_manager([*flags, *arguments], tmp_path / "manager.log"))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
async def torch_runtime(trainer_control_plane: Environment, live_client: LiveClient, namespace: str) -> str:
    """Create a copy of the shipped torch-distributed for this test; return its name."""
    del trainer_control_plane
    (original,) = [
        each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == "torch-distributed"
    ]
    original["metadata"]["name"] = f"torch-{namespace}"[:63].rstrip("-")
    await live_client.create(ClusterTrainingRuntime.from_dict(original))
    return str(original["metadata"]["name"])
