# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An in-memory cluster with the Secret and the webhook configuration, which replicas share on a virtual clock."""

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
import pytest

from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.certrotation import Certificates, Cluster, Material, Options
from controller_runtime.fake import FakeClient, FakeRecorder
from controller_runtime.machinery import Object

NAMESPACE, SECRET, HOOKS, MUTATING = "system", "certs", "validator", "defaulter"
HOST = "manager.system.svc"


def hooks(*urls: str) -> ValidatingWebhookConfiguration:
    service = {"name": "manager", "namespace": NAMESPACE, "path": "/validate"}
    clients: list[dict[str, Any]] = [
        {"service": service},
        {"service": service},
        *({"url": url} for url in urls),
    ]
    return ValidatingWebhookConfiguration.from_dict(
        {
            "metadata": {"name": HOOKS},
            "webhooks": [{"name": f"hook-{i}", "clientConfig": each} for i, each in enumerate(clients)],
        }
    )


@dataclass
class World:
    """The objects, the clock and the events that replicas share."""

    server: FakeClient = field(default_factory=FakeClient)
    client: Any = None
    events: FakeRecorder = field(default_factory=FakeRecorder)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.client = self.client or self.server

    def now(self) -> datetime:
        return self.began + timedelta(seconds=anyio.current_time() - 1000)

    async def watch(self, changed: Callable[[], None]) -> None:
        async def follow(kind: type[Object]) -> None:
            following = self.server.watch(kind, resource_version=self.server.storage.version)
            changed()  # a real watch begins with a list
            async for _ in following:
                changed()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, Secret)
            tasks.start_soon(follow, ValidatingWebhookConfiguration)
            tasks.start_soon(follow, MutatingWebhookConfiguration)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Cluster]:
        yield cast("Cluster", self)

    def replica(self, when_served: Callable[[], None] = lambda: None, **changes: Any) -> Certificates:
        async def at_once(make: Callable[..., Material], *args: Any) -> Material:
            return make(*args)

        given: dict[str, Any] = {
            "namespace": NAMESPACE,
            "secret": SECRET,
            "service": "manager",
            "validating": (HOOKS,),
            "mutating": (MUTATING,),
            "may_be_denied": (MutatingWebhookConfiguration,),
        }
        options = Options(**given | changes)
        return Certificates(
            options, self.connect, self.events, when_served=when_served, now=self.now, make=at_once
        )

    @asynccontextmanager
    async def replicas(self, count: int = 1, **changes: Any) -> AsyncIterator[list[Certificates]]:
        made = [self.replica(**changes) for _ in range(count)]
        async with anyio.create_task_group() as tasks:
            for each in made:
                tasks.start_soon(each.start)
            yield made
            tasks.cancel_scope.cancel()

    async def secret(self) -> Secret:
        found: Secret = await self.client.get(Secret, (NAMESPACE, SECRET))
        return found

    async def material(self) -> Material:
        return Material.from_data((await self.secret()).data or {})

    async def put(self, material: Material | None, **data: str) -> None:
        """Replace the data of the Secret."""
        secret = await self.secret()
        secret.data = ({} if material is None else material.to_data()) | data
        await self.client.update(secret)

    async def bundles(self) -> list[bytes]:
        found = await self.client.get(ValidatingWebhookConfiguration, ("", HOOKS))
        return [base64.b64decode(hook.client_config.ca_bundle or "") for hook in found.webhooks]


@pytest.fixture
def world() -> World:
    made = World()
    made.client.add(Secret.from_dict({"metadata": {"name": SECRET, "namespace": NAMESPACE}}))
    made.client.add(hooks())
    return made


@pytest.fixture
def admits() -> Callable[..., bool]:
    """Return a function that says whether a client that trusts a bundle accepts a replica's certificate for a host."""

    def ask(replica: Certificates, bundle: bytes, name: str = HOST) -> bool:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.load_verify_locations(cadata=bundle.decode())
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = replica.context().wrap_bio(there, back, server_side=True)
        theirs = client.wrap_bio(back, there, server_hostname=name)
        for _ in range(4):
            for side in (theirs, ours):
                try:
                    with contextlib.suppress(ssl.SSLWantReadError):
                        side.do_handshake()
                except ssl.SSLError:
                    return False
        return True

    return ask
