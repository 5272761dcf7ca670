# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""FakeClient: the client of an API server in memory, for unit tests and offline use.

To make one call fail, wrap the client with :mod:`controller_runtime.client.interceptor`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack, cast

import msgspec

from controller_runtime import client, rest
from controller_runtime.client import subresources
from controller_runtime.client.live import SubResource
from controller_runtime.machinery import GVK, JSON, LazyObject, NamespacedName, Object, Resource, arguments

from . import garbage, kinds
from .server import Server
from .storage import Storage
from .tables import Document, Table
from .watches import History

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)

_KEPT_CHANGES: Final = 1000
_USER: Final = "fake-client"
Indexes = Mapping[tuple[type[Object], str], Callable[[Any], Iterable[str]]]


@dataclass(frozen=True, slots=True)
class Call:
    """A recorded call; rejected calls are recorded, too."""

    verb: str
    kind: GVK
    key: NamespacedName
    body: JSON = None
    subresource: str = ""
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_write(self) -> bool:
        """True if the call can change objects."""
        return self.verb not in ("get", "list")


class FakeClient(client.LiveClient):
    """A LiveClient for an API server in memory. It records its calls, and is also a FieldIndexer.

    These subresources work without an interceptor: ``status``; ``scale`` of Kubernetes' own kinds and of custom kinds
    whose CRD declares it; ``eviction``, which deletes the Pod unless a PodDisruptionBudget forbids it; ``token`` of a
    ServiceAccount; ``log``, which returns the texts in :attr:`logs`; ``resize``, ``ephemeralcontainers`` and
    ``binding`` of a Pod; and ``approval`` of a CertificateSigningRequest.

    ``objects`` are stored as they are, including their status, but without ``managedFields``. If an object has no
    resourceVersion, it gets one. Other fields that a server sets, such as ``uid``, are set only on objects that are
    created later by calls of the client.

    ``indexes`` has, for each (kind, field), the function that returns an object's values, as in a cache. A list uses
    the index if its field selector contains that field.

    ``crds`` are CustomResourceDefinitions. The client reads from them whether a kind is namespaced, whether it has a
    status subresource, which lists in its objects are merged by key, which defaults its objects get and which fields
    are dropped. Writes are validated against the schema, except its CEL rules and formats. ``with_status`` contains the
    custom kinds without a CRD whose status is a subresource. If it is None, the model decides: its ``crd_kind`` markers
    or, without markers, whether it has a ``status`` field. A kind without a model then has the subresource.
    """

    def __init__(
        self,
        *objects: Object,
        indexes: Indexes | None = None,
        crds: Iterable[Object | Mapping[str, JSON]] = (),
        with_status: Collection[type[Object]] | None = None,
        now: Callable[[], datetime] | None = None,
        new_uid: Callable[[], str] | None = None,
        new_suffix: Callable[[], str] | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.storage = Storage(now=now, new_uid=new_uid, new_suffix=new_suffix)
        self._server = Server(self.storage, History(keep=_KEPT_CHANGES))
        self._kinds = _Kinds(self._server, with_status)
        super().__init__(_InProcess(self._server), self._kinds)
        self._indexes: dict[tuple[GVK, str], tuple[type[Object], Callable[[Any], Iterable[str]]]] = {}
        for crd in crds:
            definition = crd.to_dict() if isinstance(crd, Object) else crd
            for properties in kinds.properties_of_crd(definition):
                self._kinds.add(properties)
            self._server.serve_crds([definition])
        for (kind, name), extract in (indexes or {}).items():
            self._indexes[kind.gvk, name] = (kind, extract)
        for obj in objects:
            self.add(obj)

    @property
    def writes(self) -> list[Call]:
        """The recorded calls that can change objects."""
        return [call for call in self.calls if call.is_write]

    @property
    def status(self) -> FakeSubResource:
        """The writer of ``status``."""
        return FakeSubResource(self, "status")

    def _subresource(self, name: str) -> FakeSubResource:
        return FakeSubResource(self, name)

    def _logs(self) -> subresources.Logs:
        return _FakeLogs(self)

    @property
    def logs(self) -> dict[tuple[str, str, str], str]:
        """The logs of containers, by namespace, pod and container; a container that is not in it has no output."""
        return self._server.logs

    def add(self, obj: Object) -> None:
        """Store an object without checks and without recording a call; AlreadyExistsError if it exists."""
        self.storage.seed(self._kinds.table(*_target(obj)), _document_of(obj))

    def table(self, kind: type[Object]) -> Table:
        """Return the stored objects of a kind; a test may inspect them, or change them without a server's checks."""
        return self._kinds.table(kind)

    def collect_garbage(self) -> None:
        """Run the garbage collector of a cluster until it has no more work.

        It deletes dependents whose owners no longer exist, and completes Foreground and Orphan deletions.
        """
        garbage.collect(self.storage, self._server.tables.values())

    async def index_field(
        self,
        kind: type[K],
        field: str,
        extract: client.IndexerFunc[K],
        *,
        reads: type[msgspec.Struct] | None = None,
    ) -> None:
        """Add an index; ValueError if the kind already has one of that name. ``extract`` gets whole objects."""
        del reads
        arguments.must_be_plain(extract)
        arguments.must_take(extract, "obj")
        if (kind.gvk, field) in self._indexes:
            raise ValueError(f"{kind.gvk}: an index named {field} exists")
        self._indexes[kind.gvk, field] = (kind, extract)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        self.record("get", kind, NamespacedName.of(key))
        return await super().get(kind, key)

    async def list(self, kind: type[T], **options: Unpack[client.ListOptions]) -> client.ObjectList[T]:
        """Return the objects that match the selectors, ordered by namespace and name.

        A field in a selector is looked up in the index of that name. Without such an index, only the fields that an API
        server supports are allowed.
        """
        client.check_kind(kind)
        client.check_options(client.ListOptions, options)
        namespace = options.get("namespace") or ""
        logged = {"labels": None, "fields": None, "limit": None, **options, "namespace": namespace}
        logged.pop("continue_token", None)
        self.record("list", kind, NamespacedName(namespace, ""), options=logged)
        fields = options.get("fields")
        wanted = {
            name: value
            for name, value in (fields.items() if isinstance(fields, Mapping) else ())
            if (kind.gvk, name) in self._indexes
        }
        if not wanted:
            return await super().list(kind, **options)
        selected = await self._indexed(kind.gvk, wanted)
        options["fields"] = {name: value for name, value in fields.items() if name not in wanted}  # type: ignore[union-attr]  # a mapping
        if options.get("continue_token"):
            raise ValueError(
                f"{kind.gvk.group_kind}: a list by an index cannot be continued: it is the cache's"
            )
        limit = max(0, options.pop("limit", None) or 0)
        listed = await super().list(kind, **options)
        matching = [obj for obj in listed if obj.key in selected]
        listed[:] = matching[: limit or None]
        if len(listed) < len(matching):
            listed.continue_token = "continue-not-supported"  # noqa: S105 -- as the cache says
        return listed

    async def _indexed(self, gvk: GVK, wanted: Mapping[str, str]) -> set[NamespacedName]:
        """Return the keys of the objects that match all of ``wanted``, which maps the name of an index to a value."""
        matches: list[set[NamespacedName]] = []
        for name, value in wanted.items():
            kind, extract = self._indexes[gvk, name]
            objects = await super().list(kind)
            values = {obj.key: extract(obj) for obj in objects}
            if any(isinstance(texts, str) for texts in values.values()):
                raise TypeError(f"index {name!r}: the function returns a text, not a list of texts")
            matches.append({key for key, texts in values.items() if value in texts})
        return set.intersection(*matches)

    async def create(self, obj: T, **options: Unpack[client.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        self.record("create", *_target(obj), _document_of(obj), options=options)
        return await super().create(obj, **options)

    async def remove(self, obj: T, **options: Unpack[client.DeleteOptions]) -> LazyObject[T] | None:
        """Delete the object. If it has finalizers, only set its deletionTimestamp.

        Dependents stay until :meth:`collect_garbage`.
        """
        self.record("delete", *_target(obj), options=options)
        return await super().remove(obj, **options)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[client.DeleteAllOfOptions]) -> None:
        """Delete each object that matches the selectors, as :meth:`delete` does."""
        logged = {"labels": None, "fields": None, "propagation": None, **options}
        namespace = str(logged.pop("namespace", None) or "")
        self.record("delete_all_of", kind, NamespacedName(namespace, ""), options=logged)
        await super().delete_all_of(kind, **options)

    async def apply_lazily(self, obj: T, **options: Unpack[client.ApplyOptions]) -> LazyObject[T]:
        """Call :meth:`apply`, so that a subclass has to override only that method."""
        return LazyObject.of(await self.apply(obj, **options))

    async def patch_lazily(
        self, obj: T, patch: client.Patch, **options: Unpack[client.PatchOptions]
    ) -> LazyObject[T]:
        """Call :meth:`patch`, so that a subclass has to override only that method."""
        return LazyObject.of(await self.patch(obj, patch, **options))

    async def _update(self, obj: Object, body: T, subresource: str, options: client.UpdateOptions) -> T:
        self.record("update", *_target(obj), _document_of(body), subresource, options)
        return await super()._update(obj, body, subresource, options)

    async def _patch(
        self, obj: Object, body: T, patch: client.Patch, subresource: str, options: client.PatchOptions
    ) -> Any:
        client.check_patch(obj, patch)
        logged, text = dict(options), patch.data(body)
        try:
            sent = msgspec.json.decode(text)
        except msgspec.DecodeError:
            sent = None  # the server refuses the request
        verb = "apply" if patch.content_type == client.APPLY else "patch"
        if verb == "patch":
            logged["type"] = patch.content_type
        self.record(verb, type(obj), obj.key, sent, subresource, logged)
        raw = client.raw_patch(patch.content_type, text)
        return await super()._patch(obj, body, raw, subresource, options)

    def record(
        self,
        verb: str,
        kind: type[Object],
        key: NamespacedName,
        body: JSON = None,
        subresource: str = "",
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Add a call to :attr:`calls`; for subclasses that reject a call without sending it."""
        client.check_kind(kind)
        self._kinds.table(kind, key)
        given = options or {}
        if verb not in ("list", "delete_all_of"):
            given = {name: value for name, value in given.items() if value}
        self.calls.append(Call(verb, kind.gvk, key, body, subresource, given))


class FakeSubResource(SubResource):
    """Reads and writes one subresource of a FakeClient's objects."""

    _client: FakeClient

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj``. For ``status`` this is the whole object, as on a real server."""
        self._client.record("get", *_target(obj), subresource=self._name)
        return await super().get(obj, into)

    async def create(self, obj: Object, body: T, **options: Unpack[client.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj``."""
        client.check_object(body, "body")
        self._client.record("create", *_target(obj), body.to_dict(), self._name, options)
        return await super().create(obj, body, **options)

    async def patch_lazily(
        self, obj: T, patch: client.Patch, **options: Unpack[client.PatchOptions]
    ) -> LazyObject[T]:
        """Call :meth:`patch`, so that a subclass has to override only that method."""
        return LazyObject.of(await self.patch(obj, patch, **options))

    async def apply_lazily(self, obj: T, **options: Unpack[client.ApplyOptions]) -> LazyObject[T]:
        """Call :meth:`apply`, so that a subclass has to override only that method."""
        return LazyObject.of(await self.apply(obj, **options))


class _FakeLogs(subresources.Logs):
    _client: FakeClient

    async def _response(
        self, pod: Object, options: client.LogOptions, *, stream: bool = False, follow: bool = False
    ) -> rest.Response:
        logged = {**options, "follow": follow}
        self._client.record("get", *_target(pod, "pod"), subresource=subresources.LOG, options=logged)
        return await super()._response(pod, options, stream=stream, follow=follow)


class _InProcess:
    """Sends requests to a server in this process."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def send(self, request: rest.Request) -> rest.Response:
        return await self._server.handle(request, _USER)


class _Kinds(rest.RESTMapper):
    """Adds a kind to the server when a call first uses the kind."""

    def __init__(self, server: Server, with_status: Collection[type[Object]] | None) -> None:
        self._server = server
        self._tables: dict[GVK, Table] = {}
        self._with_status = None if with_status is None else {kind.gvk for kind in with_status}

    def add(self, properties: kinds.KindProperties) -> None:
        self._tables[properties.gvk] = self._server.add(properties)

    def table(self, kind: type[Object], key: NamespacedName | None = None) -> Table:
        """Return the objects of a kind.

        If neither a CRD nor the model declares the scope, the kind is namespaced if the first key has a namespace.
        """
        gvk = kind.gvk
        if gvk not in self._tables:
            self.add(self._properties(kind))
        table = self._tables[gvk]
        if not table.properties.scope_is_known:
            if kind.resource is not None:  # the scope was guessed for a kind that does not declare it
                self._server.replace(table, self._properties(kind))
            elif key is not None and key.name and not table.rows:
                guessed = table.resource._replace(namespaced=bool(key.namespace))
                table.set_properties(replace(table.properties, resource=guessed))
        return table

    async def resource_for(self, kind: type[Object] | GVK) -> Resource:
        if isinstance(kind, GVK):
            return self._tables[kind].resource
        return self.table(kind).resource

    def _properties(self, kind: type[Object]) -> kinds.KindProperties:
        status = None if self._with_status is None else kind.gvk in self._with_status
        return kinds.properties_of(kind, status=status)


def _target(obj: Object, argument: str = "obj") -> tuple[type[Object], NamespacedName]:
    """Return the kind and the key of an argument; TypeError if it is not an object of a kind."""
    client.check_object(obj, argument)
    return type(obj), obj.key


def _document_of(obj: Object) -> Document:
    """Return ``obj`` as the JSON document that is stored."""
    # Through JSON, so that the document shares no value with the caller's object.
    document = cast("Document", msgspec.json.decode(obj.to_json()))
    document.setdefault("metadata", {}).pop("managedFields", None)
    return document
