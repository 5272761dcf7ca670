# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Access to the Secret and the webhook configurations: reads from the server, writes, and watches of these objects."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import anyio
from controller_runtime import cache, client, rest
from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, StatusError

DEFAULT_NAMESPACE: Final = "kubeflow-system"
UNTIL_PERMITTED: Final = 60.0
"""Seconds until a configuration that the role denies is tried again."""
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def operator_namespace(folder: Path = _SERVICE_ACCOUNT) -> str:
    """Return the pod's namespace; ``kubeflow-system`` outside of pods."""
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


class Cluster(Protocol):
    """The connection to the Secret and the webhook configurations."""

    @property
    def client(self) -> client.ReaderWriter:
        """The client. It reads from the server, not from a cache."""
        ...

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever one of them may have changed, until cancelled."""
        ...


@dataclasses.dataclass(frozen=True)
class _Connected:
    client: client.ReaderWriter
    transport: rest.RoundTripper
    selection: cache.Options
    mutating: str

    async def watch(self, changed: Callable[[], None]) -> None:
        def notify(*_: object) -> None:
            changed()

        watched = cache.Cache(self.transport, options=self.selection)
        handler: cache.EventHandlerFuncs[Object] = cache.EventHandlerFuncs(notify, notify, notify)

        async def add(kind: type[Object]) -> None:
            informer = await watched.get_informer(kind)
            informer.add_event_handler(handler)

        await add(Secret)
        await add(ValidatingWebhookConfiguration)

        async def add_once_permitted() -> None:
            while True:
                await anyio.sleep(UNTIL_PERMITTED)
                if await self._may_read_mutating():
                    return await add(MutatingWebhookConfiguration)

        async with anyio.create_task_group() as tasks:
            if await self._may_read_mutating():
                await add(MutatingWebhookConfiguration)
            else:
                tasks.start_soon(add_once_permitted)
            await watched.start()

    async def _may_read_mutating(self) -> bool:
        """Return False if the role denies it, as that of Trainer v2.1 does: a watch would log its failures.

        The role may be replaced later, and the manager need not be started again then.
        """
        try:
            await self.client.get(MutatingWebhookConfiguration, ("", self.mutating))
        except ForbiddenError:
            return False
        except (StatusError, rest.RestError):
            return True
        return True


@asynccontextmanager
async def connect(
    config: rest.Config, *, namespace: str, secret: str, configuration: str, mutating: str
) -> AsyncIterator[Cluster]:
    """Provide a separate connection for certificates: they do not wait for the controllers' requests."""
    selection = cache.Options(
        by_object={
            Secret: cache.ByObject(namespaces=(namespace,), fields={"metadata.name": secret}),
            ValidatingWebhookConfiguration: cache.ByObject(fields={"metadata.name": configuration}),
            MutatingWebhookConfiguration: cache.ByObject(fields={"metadata.name": mutating}),
        }
    )
    async with rest.Transport(dataclasses.replace(config, qps=0)) as transport:
        live = client.LiveClient(transport, rest.RESTMapper(transport))
        yield _Connected(live, transport, selection, mutating)
