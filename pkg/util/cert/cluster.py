# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Access to the Secret and the webhook configurations: reads from the server, writes, and watches of these objects."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
"""Seconds between two attempts to read the MutatingWebhookConfiguration while the role does not permit it."""
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def operator_namespace(folder: Path = _SERVICE_ACCOUNT) -> str:
    """Return the pod's namespace, or ``kubeflow-system`` if the process does not run in a pod."""
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The objects that contain the certificates, and the delays."""

    namespace: str
    secret: str
    service: str
    configuration: str = "validator.trainer.kubeflow.org"
    """Name of the ValidatingWebhookConfiguration."""
    mutating: str = "defaulter.trainer.kubeflow.org"
    """Name of the MutatingWebhookConfiguration."""
    settle: float = 10.0
    """Seconds between adding a new authority to the webhook configuration and serving with it."""
    period: float = 3600.0
    """Maximum number of seconds between two passes, if no change is reported."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The connection to the Secret and the webhook configurations."""

    client: client.ReaderWriter
    """The client. It reads from the server, not from a cache."""
    transport: rest.RoundTripper
    options: Options

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever one of the objects may have changed, until cancelled.

        The role of Trainer v2.1 does not grant access to the MutatingWebhookConfiguration, but the role may be replaced
        later. The watch of this object therefore begins only when a read is no longer forbidden: a watch would log each
        of its failures.
        """
        names: dict[type[Object], cache.ByObject] = {
            Secret: cache.ByObject(
                namespaces=(self.options.namespace,), fields={"metadata.name": self.options.secret}
            ),
            ValidatingWebhookConfiguration: cache.ByObject(
                fields={"metadata.name": self.options.configuration}
            ),
            MutatingWebhookConfiguration: cache.ByObject(fields={"metadata.name": self.options.mutating}),
        }
        watched = cache.Cache(self.transport, options=cache.Options(by_object=names))

        def notify(*_: object) -> None:
            changed()

        async def add(kind: type[Object]) -> None:
            informer = await watched.get_informer(kind)
            informer.add_event_handler(cache.EventHandlerFuncs(notify, notify, notify))

        async def add_once_permitted() -> None:
            while not await self._may_read_mutating():  # noqa: ASYNC110 - no watch reports a new role
                await anyio.sleep(UNTIL_PERMITTED)
            await add(MutatingWebhookConfiguration)

        await add(Secret)
        await add(ValidatingWebhookConfiguration)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add_once_permitted)
            await watched.start()

    async def _may_read_mutating(self) -> bool:
        try:
            await self.client.get(MutatingWebhookConfiguration, ("", self.options.mutating))
        except ForbiddenError:
            return False
        except (StatusError, rest.RestError):
            pass
        return True


@asynccontextmanager
async def connect(config: rest.Config, options: Options) -> AsyncIterator[Cluster]:
    """Provide a connection for certificates. The controllers' rate limit does not delay its requests."""
    async with rest.Transport(dataclasses.replace(config, qps=0)) as transport:
        live = client.LiveClient(transport, rest.RESTMapper(transport))
        yield Cluster(live, transport, options)
