# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Access to the Secret and the webhook configurations: reads from the server, writes, and watches of these objects."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from controller_runtime import cache, client, rest
from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from controller_runtime.apis.apiextensions.v1 import CustomResourceDefinition
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, StatusError

from .pki import DEFAULT_SUBJECTS, Subjects

ConfigurationKind = (
    type[ValidatingWebhookConfiguration] | type[MutatingWebhookConfiguration] | type[CustomResourceDefinition]
)
SINCE: Final = "controller-runtime/webhook-authority-since"
"""Default name of the annotation of a configuration with the time when the newest authority was added.

It is removed when no other authority is trusted.
"""
UNTIL_PERMITTED: Final = 60.0
"""Seconds between two attempts to read a configuration while the role does not permit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The objects that contain the certificates, and the delays."""

    namespace: str
    """The namespace of the Secret and of the Service."""
    secret: str
    """Name of the Secret, which is created if it is missing."""
    service: str
    """Name of the Service by which the API server reaches the webhooks."""
    validating: tuple[str, ...] = ()
    """Names of ValidatingWebhookConfigurations."""
    mutating: tuple[str, ...] = ()
    """Names of MutatingWebhookConfigurations."""
    conversions: tuple[str, ...] = ()
    """Names of CustomResourceDefinitions with a conversion webhook."""
    may_be_denied: tuple[type[Object], ...] = ()
    """Kinds of configurations that the role need not permit to read."""
    subjects: Subjects = DEFAULT_SUBJECTS
    since: str = SINCE
    """The annotation with the time when the newest authority was added."""
    propagation_delay: float = 10.0
    """Seconds between adding a new authority to the webhook configuration and serving with it."""
    period: float = 3600.0
    """Maximum number of seconds between two passes, if no change is reported."""

    def configurations(self) -> Iterator[tuple[ConfigurationKind, str]]:
        """Yield kind and name of each configuration."""
        yield from ((ValidatingWebhookConfiguration, name) for name in self.validating)
        yield from ((MutatingWebhookConfiguration, name) for name in self.mutating)
        yield from ((CustomResourceDefinition, name) for name in self.conversions)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The connection to the Secret and the webhook configurations."""

    client: client.ReaderWriter
    """The client. It reads from the server, not from a cache."""
    transport: rest.RoundTripper
    options: Options

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever one of the objects may have changed, until cancelled.

        A role that does not permit reading one of the kinds in ``may_be_denied`` may be replaced later. The watch of
        such an object therefore begins only when a read is no longer forbidden: a watch would log each of its failures.
        """
        # A cache has one selection of objects for each kind, so a second name of a kind needs a cache of its own.
        caches: list[dict[type[Object], str]] = [{Secret: self.options.secret}]
        for kind, name in self.options.configurations():
            names = next((names for names in caches if kind not in names), None)
            if names is None:
                caches.append(names := {})
            names[kind] = name

        def notify(*_: object) -> None:
            changed()

        async def add(watched: cache.Cache, of: type[Object], name: str) -> None:
            if of in self.options.may_be_denied:
                while not await self._may_read(of, name):  # noqa: ASYNC110 - no watch reports a new role
                    await anyio.sleep(UNTIL_PERMITTED)
            informer = await watched.get_informer(of)
            informer.add_event_handler(cache.EventHandlerFuncs(notify, notify, notify))

        async with anyio.create_task_group() as tasks:
            for names in caches:
                selected = {
                    of: cache.ByObject(
                        namespaces=(self.options.namespace,) if of is Secret else None,
                        fields={"metadata.name": name},
                    )
                    for of, name in names.items()
                }
                watched = cache.Cache(self.transport, options=cache.Options(by_object=selected))
                for of, name in names.items():
                    if of in self.options.may_be_denied:
                        tasks.start_soon(add, watched, of, name)
                    else:
                        await add(watched, of, name)
                tasks.start_soon(watched.start)

    async def _may_read(self, kind: type[Object], name: str) -> bool:
        try:
            await self.client.get(kind, ("", name))
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
