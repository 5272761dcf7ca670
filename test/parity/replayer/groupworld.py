# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster of a pod grouper case: its objects, the two clients for them, and the calls that fail."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, NamespacedName, Object, Unstructured, errors, unstructured
from controller_runtime.machinery.meta import format_time
from controller_runtime.rest import NoKindMatchError

from .world import NOW

Document = dict[str, Any]

_SERVERS_OWN: Final = ("resourceVersion", "generation", "managedFields")


class GroupCluster(FakeClient):
    """The cluster's objects; ``asked`` and ``written`` record the calls of the clients that :meth:`side` returns."""

    def __init__(self, case: Document) -> None:
        super().__init__(now=lambda: NOW)
        self.asked: list[tuple[str, str]] = []
        self.written: list[Document] = []
        self._faults = case.get("faults") or ()
        for document in (*(case.get("objects") or ()), case.get("pod")):
            if document is not None:
                self.put(document)

    def put(self, document: Document) -> None:
        """Store an object unchanged, without a model; it replaces one of the same name."""
        obj = Unstructured.wrap(_as_stored(document))
        self.table(type(obj)).rows.pop(obj.key, None)
        self.add(obj)

    def drop(self, reference: Document) -> None:
        """Delete an object, given the object or a reference; one with finalizers only gets a deletion time."""
        reference = {**reference, **reference.get("metadata", {})}
        version = "/".join(filter(None, (reference.get("group"), reference.get("version"))))
        kind = unstructured(GVK.parse(reference.get("apiVersion", version), reference["kind"]))
        rows, key = self.table(kind).rows, NamespacedName(reference.get("namespace", ""), reference["name"])
        row = rows.get(key)
        if row is not None and row.document["metadata"].get("finalizers"):
            row.document["metadata"].setdefault("deletionTimestamp", format_time(NOW))
        else:
            rows.pop(key, None)

    async def pod(self, document: Document) -> Pod:
        """Return the pod as a client returns it."""
        metadata = document["metadata"]
        return await self.get(Pod, (metadata.get("namespace", ""), metadata["name"]))

    async def stored(self, kind: GVK) -> list[Document]:
        """Return the objects of a kind, sorted by namespace and name."""
        return [copy.deepcopy(row.document) for _, row in sorted(self.table(unstructured(kind)).rows.items())]

    def side(self, name: str) -> interceptor.Intercepted:
        """Return the client of that name: ``direct`` or ``cached``."""

        async def get(inner: client.Client, kind: type[Object], key: NamespacedName) -> Object:
            self.asked.append(("get", kind.gvk.kind))
            self._fail("get", kind, NamespacedName(*key).name, name)
            return await inner.get(kind, key)

        async def list_(inner: client.Client, kind: type[Object], **options: Any) -> Any:
            self.asked.append(("list", kind.gvk.kind))
            self._fail("list", kind, "", name)
            return await inner.list(kind, **options)

        async def create(inner: client.Client, obj: Object, **options: Any) -> Object:
            with self._writing("create", obj, name):
                return await inner.create(obj, **options)

        async def update(inner: client.Client, obj: Object, **options: Any) -> Object:
            with self._writing("update", obj, name):
                return await inner.update(obj, **options)

        async def patch(inner: client.Client, obj: Object, patch: client.Patch, **options: Any) -> Object:
            with self._writing("patch", obj, name, patch=msgspec.json.decode(patch.data(obj))):
                return await inner.patch(obj, patch, **options)

        return interceptor.wrap(
            self, interceptor.Funcs(get=get, list=list_, create=create, update=update, patch=patch)
        )

    @contextlib.contextmanager
    def _writing(self, verb: str, obj: Object, side: str, **more: Any) -> Iterator[None]:
        """Record a write, and whether it failed; mark one that changes nothing, because no answer may contain it."""
        note = {"verb": verb, "kind": obj.kind, "namespace": obj.namespace, "name": obj.name, **more}
        self.asked.append((verb, obj.kind or ""))
        self.written.append(note)
        before = self._content(obj)
        try:
            self._fail(verb, type(obj), obj.name, side)
            yield
        except Exception:
            note["failed"] = True
            raise
        if self._content(obj) == before:
            note["changesNothing"] = True

    def _content(self, obj: Object) -> Document | None:
        row = self.table(type(obj)).rows.get(obj.key)
        if row is None:
            return None
        metadata = {k: v for k, v in row.document["metadata"].items() if k not in _SERVERS_OWN}
        return copy.deepcopy({**row.document, "metadata": metadata})

    def _fail(self, verb: str, kind: type[Object], name: str, side: str) -> None:
        for fault in self._faults:
            if (
                (fault["verb"], fault["group"], fault["kind"]) == (verb, kind.gvk.group, kind.gvk.kind)
                and fault.get("name") in (None, "", name)
                and fault.get("client") in (None, "", side)
            ):
                raise _refusal(
                    fault["error"], kind.gvk, f'{self.table(kind).resource.group_resource} "{name}"'
                )


class Watches:
    """Watches of a cache that are always up to date and never report a change."""

    has_synced = True
    problem = None

    async def get_informer(self, _kind: type[Object]) -> Any:
        """Return the watch of a kind."""
        return self

    def add_event_handler(self, _handler: object) -> None:
        """Ignore the handler."""


def _as_stored(value: Any) -> Any:
    """Return a copy in which whole numbers are integers, because Go writes 4.0 as 4."""
    if isinstance(value, dict):
        return {key: _as_stored(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_as_stored(held) for held in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


def _refusal(which: str, kind: GVK, what: str) -> Exception:
    match which:
        case "forbidden":
            message = f"{what} is forbidden: access denied by the test"
            return errors.ForbiddenError(message, code=403, reason="Forbidden")
        case "notfound":
            return errors.NotFoundError(f"{what} not found", code=404, reason="NotFound")
        case "alreadyexists":
            return errors.AlreadyExistsError(f"{what} already exists", code=409, reason="AlreadyExists")
        case "conflict":
            message = f"Operation cannot be fulfilled on {what}: the object has been modified"
            return errors.ConflictError(message, code=409, reason="Conflict")
        case "nomatch":
            return NoKindMatchError(kind)
        case _:
            message = "Internal error occurred: injected by the test"
            return errors.ServerError(message, code=500, reason="InternalError")
