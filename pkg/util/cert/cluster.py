# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Access to the Secret and the webhook configuration: reads from the server, writes, and watches of the two objects."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from controller_runtime import cache, client, rest
from controller_runtime.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.apis.machinery.object import Object

DEFAULT_NAMESPACE: Final = "kubeflow-system"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def operator_namespace(folder: Path = _SERVICE_ACCOUNT) -> str:
    """Return the pod's namespace; ``kubeflow-system`` outside of pods."""
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


class Cluster(Protocol):
    """The connection to the Secret and the webhook configuration."""

    @property
    def client(self) -> client.ReaderWriter:
        """The client. It reads from the server, not from a cache."""
        ...

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever one of the two may have changed, until cancelled."""
        ...


@dataclasses.dataclass(frozen=True)
class _Connected:
    client: client.ReaderWriter
    transport: rest.Transport
    selection: cache.Options

    async def watch(self, changed: Callable[[], None]) -> None:
        def notify(*_: object) -> None:
            changed()

        watched = cache.Cache(self.transport, options=self.selection)
        handler: cache.EventHandlerFuncs[Object] = cache.EventHandlerFuncs(notify, notify, notify)
        for kind in (Secret, ValidatingWebhookConfiguration):
            informer = await watched.get_informer(kind)
            informer.add_event_handler(handler)
        await watched.start()


@asynccontextmanager
async def connect(
    config: rest.Config, *, namespace: str, secret: str, configuration: str
) -> AsyncIterator[Cluster]:
    """Provide a separate connection for certificates: they do not wait for the controllers' requests."""
    selection = cache.Options(
        by_object={
            Secret: cache.ByObject(namespaces=(namespace,), fields={"metadata.name": secret}),
            ValidatingWebhookConfiguration: cache.ByObject(fields={"metadata.name": configuration}),
        }
    )
    async with rest.Transport(dataclasses.replace(config, qps=0)) as transport:
        live = client.LiveClient(transport, rest.RESTMapper(transport))
        yield _Connected(live, transport, selection)
