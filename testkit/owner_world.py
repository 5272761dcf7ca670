# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A server with the owners of pods, watches whose events the test sends, and a recorder of pods' events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
from controller_runtime import cache
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import Reader, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, LazyObject, Object, Unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError

from pkg.podgrouper import DirectOwners, PodGrouper, Settings, new_plugins_hub

JOB = GVK("batch", "v1", "Job")
MakeObject = Callable[..., Unstructured]


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Recorder:
    """Records the name of the object, type, reason and message of each event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, obj: Any, event_type: str, reason: str, message: str) -> None:
        self.events.append((obj.name, event_type, reason, message))


class Informer:
    """An informer whose events a test sends."""

    def __init__(self) -> None:
        self.has_synced = True
        self.problem: str | None = None
        self.handlers: list[cache.LazyHandlerFuncs[Any]] = []
        self.gone: set[tuple[str, str]] = set()

    def has(self, key: tuple[str, str]) -> bool:
        return key not in self.gone

    def add_event_handler(self, handler: cache.LazyHandlerFuncs[Any]) -> None:
        self.handlers.append(handler)


class OwnerServer:
    """The server's objects, the objects that watches have reported, and a record of the reads."""

    def __init__(self) -> None:
        self.server, self.watched = FakeClient(), FakeClient()
        self.informers: dict[GVK, Informer] = {}
        self.now = 100.0
        self.denied = False
        self.answer_delay = 0.0
        self.meanwhile: list[Callable[[], None]] = []
        """Functions, of which each read calls one: after the server has answered, and before the answer arrives."""

    async def get_informer(self, kind: type[Any]) -> Any:
        self.kind = kind
        return self.informers.setdefault(kind.gvk, Informer())

    async def put(self, obj: Object, *, reported: bool = True) -> None:
        for client in (self.server, self.watched) if reported else (self.server,):
            with contextlib.suppress(NotFoundError):
                await client.delete(obj, propagation="Background")
            client.add(obj)
        if reported:
            self.report(obj)

    def delete(self, obj: Object) -> None:
        """Remove the object, and let the watch of its kind report the deletion."""
        for client in (self.server, self.watched):
            client.table(type(obj)).rows.pop(obj.key)
        for handler in self.informers[type(obj).gvk].handlers:
            handler.on_delete(LazyObject(self.kind, obj.to_json()), False)

    def report(self, obj: Object) -> None:
        if (informer := self.informers.get(type(obj).gvk)) is not None:
            changed: LazyObject[Any] = LazyObject(self.kind, obj.to_json())
            for handler in informer.handlers:
                handler.on_update(changed, changed)

    @property
    def reads(self) -> list[str]:
        return [call.kind.kind for call in self.server.calls if not call.is_write]


class DirectClient:
    """The client that reads the server directly; the test can deny all reads of this client."""

    def __init__(self, cluster: OwnerServer) -> None:
        self._cluster = cluster

    async def get(self, kind: type[Any], key: Any) -> Any:
        found = await self._cluster.server.get(kind, key)
        if self._cluster.denied:
            raise ForbiddenError("no", code=403, reason="Forbidden")
        if self._cluster.answer_delay:
            await anyio.sleep(self._cluster.answer_delay)
        if self._cluster.meanwhile:
            self._cluster.meanwhile.pop(0)()
        return found

    async def list(self, kind: type[Any], **options: Any) -> Any:
        return await self._cluster.server.list(kind, **options)


def pod_grouper(owners: Reader, reader: Reader | None = None, options: Settings | None = None) -> PodGrouper:
    """Return a pod grouper with our groupers only. It reads owners from ``owners``, and other objects from ``reader``."""
    hub = new_plugins_hub(reader or owners, options, found=[])
    return PodGrouper(DirectOwners(owners, owners), hub)


def reference(owner: Object) -> OwnerReference:
    return OwnerReference(
        api_version=owner.gvk.api_version, kind=owner.gvk.kind, name=owner.name, uid=owner.metadata.uid or ""
    )


def refusing(client: FakeClient, kind: str = "StatefulSet") -> Any:
    """Return the client, with an error for all reads of a kind, which may be given with its group."""

    async def get(within: FakeClient, wanted: Any, key: Any) -> Any:
        if kind in (wanted.gvk.kind, str(wanted.gvk.group_kind)):
            raise ForbiddenError("no", code=403, reason="Forbidden")
        return await within.get(wanted, key)

    return interceptor.wrap(client, interceptor.Funcs(get=get))
