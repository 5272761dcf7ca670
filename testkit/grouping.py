# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The world of the pod grouper: pods and their owners, a server with owners whose watches' events the test sends.

Factories of objects come first, then the grouper's results for them with an in-memory client, then the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import anyio
from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import Client, Reader, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, LazyObject, Object, Unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError

from pkg.podgrouper import DirectOwners, PodGrouper, PodReconciler, Rules, Settings, fixed, new_plugins_hub
from pkg.podgrouper.podgroup import Handler, Metadata
from testkit.recorder import Recorder


def make_object(
    api_version: str, kind: str, name: str, *owners: Unstructured, spec: Any = None, **metadata: Any
) -> Unstructured:
    """Return an object in the namespace ``team-a``, by default with a UID that is made of its name."""
    data = {"apiVersion": api_version, "kind": kind, "metadata": _metadata(name, owners, metadata)}
    return Unstructured.wrap(data if spec is None else {**data, "spec": spec})


def make_pod(name: str, *owners: Unstructured, spec: Any = None, **metadata: Any) -> Pod:
    """Return a pod of KAI's scheduler with one container, with metadata as :func:`make_object` sets it."""
    whole = {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}], **(spec or {})}
    return Pod.from_dict({"metadata": _metadata(name, owners, metadata), "spec": whole})


def _metadata(name: str, owners: tuple[Unstructured, ...], more: dict[str, Any]) -> dict[str, Any]:
    references = [reference(owner).to_dict() for owner in owners]
    named = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", **more}
    return {**named, "ownerReferences": references} if references else named


def make_pod_group(name: str, *owners: Unstructured, **spec: Any) -> Unstructured:
    """Return a PodGroup of KAI."""
    return make_object("scheduling.run.ai/v2alpha2", "PodGroup", name, *owners, spec=spec)


async def group_of(pod: Pod, *objects: Object, rules: Rules = Rules.V0_13) -> Metadata:
    """Return the group of a pod in a cluster with this pod and ``objects``."""
    cluster = FakeClient(pod, *objects)
    return await (await pod_grouper(cluster).get_pod_owners(pod, rules)).metadata(pod)


def sub_group_of(metadata: Metadata, pod: str = "p") -> str | None:
    """Return the name of the subgroup of a pod."""
    found = metadata.find_sub_group_for_pod("team-a", pod)
    return None if found is None else found.name


def make_reconciler(
    client: Client,
    options: Settings | None = None,
    rules: Rules = Rules.V0_13,
    *,
    recorder: Recorder | None = None,
    **more: Any,
) -> PodReconciler:
    """Return the reconciler of pods with our groupers only; ``more`` are other arguments of the reconciler."""
    options, recorder = options or Settings(), recorder or Recorder()
    keys = {"node_pool_key": options.node_pool_label_key, "queue_key": "kai.scheduler/queue"}
    handler = Handler(client, client, **keys)
    return PodReconciler(client, recorder, pod_grouper(client), handler, options, rules=fixed(rules), **more)


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


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


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
