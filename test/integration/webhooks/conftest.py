# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager whose webhooks the API server calls for a test's objects, and clients with a user agent."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import Config, Request, RESTMapper, Transport
from trainerctl.localcluster import manifests

from testkit.builders import replicated, written_runtime, written_train_job


@pytest.fixture
def admitting_manager(
    trainer_control_plane: Environment,
    run_manager: Callable[..., Any],
    live_client: LiveClient,
    namespace: str,
    tmp_path: Path,
) -> Callable[..., AbstractAsyncContextManager[None]]:
    """Return a function that runs a manager whose webhooks the API server calls for this test's objects."""
    authority = trainer_control_plane.control_plane.authority
    authority.server("webhooks", ["127.0.0.1", "localhost"]).write(tmp_path)

    async def refuses() -> bool:
        try:
            await live_client.create(replicated(written_runtime(namespace, "bad"), 2), dry_run=True)
        except StatusError as error:
            return "always must be 1" in str(error)
        return False

    async def mutates() -> bool:
        beyond = written_train_job(namespace, "any", kind=None, trainer={"numProcPerNode": str(2**31)})
        try:
            await live_client.create(beyond, dry_run=True)
        except StatusError as error:
            return "defaulter.trainjob.trainer.kubeflow.org" in str(error)
        return False

    @asynccontextmanager
    async def run(
        *arguments: str, sent: list[Request] | None = None, version: str = "2.1"
    ) -> AsyncIterator[None]:
        serving = {"webhook_cert_dir": str(tmp_path), "webhook_host": "127.0.0.1", "webhook_port": 0}
        async with run_manager(*arguments, webhooks=True, sent=sent, version=version, **serving) as mgr:
            url = f"https://127.0.0.1:{mgr.webhook_server.port}"
            inside = f"has(request.namespace) && request.namespace == '{namespace}'"
            ours = f"({inside}) || request.name.startsWith('{namespace[:20]}')"
            made = []
            for manifest in manifests.trainer_webhooks(url, authority.certificate):
                manifest["metadata"]["name"] = namespace
                for hook in manifest["webhooks"]:
                    hook.setdefault("matchConditions", []).append({"name": "ours", "expression": ours})
                    hook["timeoutSeconds"] = (
                        30  # a machine with other work may take longer than the shipped 10
                    )
                made.append(await live_client.create(Unstructured.wrap(manifest)))
            try:
                await eventually(refuses, reason="the API server asks the validating webhook")
                await eventually(mutates, reason="the API server asks the mutating webhook")
                yield
            finally:
                for each in made:
                    await live_client.delete(each)

    return run


@pytest.fixture
def acting_as(rest_config: Config) -> Callable[[str], AbstractAsyncContextManager[LiveClient]]:
    """Return a function that yields a client with a user agent, which the API server uses as its field manager."""

    @asynccontextmanager
    async def client(agent: str) -> AsyncIterator[LiveClient]:
        async with Transport(dataclasses.replace(rest_config, user_agent=f"{agent}/1.0")) as transport:
            yield LiveClient(transport, RESTMapper(transport))

    return client
