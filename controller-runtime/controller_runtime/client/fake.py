# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""FakeClient: a complete Client in memory, for unit tests and offline use.

:mod:`controller_runtime.client.memory` defines its semantics. To make one call fail, wrap the client with
:mod:`controller_runtime.client.interceptor`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import GVK, NamespacedName
from controller_runtime.apis.machinery.object import Object

from . import deletion, garbage, interfaces, kinds, patching, selection
from . import options as opts
from .calls import Call as Call
from .calls import document_of, given, no_field_owner, object_of, write_of
from .fakewatch import FakeWatch
from .memory import Memory
from .patch import APPLY
from .tables import Document, Table, key_of

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)

_KEPT_CHANGES: Final = 1000
Indexes = Mapping[tuple[type[Object], str], Callable[[Any], Iterable[str]]]


class FakeClient:
    """A Client over objects in memory; also a FieldIndexer.

    ``objects`` are stored unchanged, including their status; fields that a server sets are only set on objects created
    later. ``indexes`` maps (kind, field) to the function that extracts the values, as in a cache.
    ``crds`` are CustomResourceDefinitions, which define a kind's scope, its status subresource and which of its lists
    merge. ``with_status`` lists the other custom kinds whose status is a subresource; None means those whose model
    has a status, and those without a model.
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
        self.memory = Memory(now=now, new_uid=new_uid, new_suffix=new_suffix)
        self._tables: dict[GVK, Table] = {}
        self._with_status = None if with_status is None else {kind.gvk for kind in with_status}
        self._indexes: dict[tuple[GVK, str], tuple[type[Object], Callable[[Any], Iterable[str]]]] = {}
        for crd in crds:
            body = crd.to_dict() if isinstance(crd, Object) else crd
            for facts in kinds.facts_of_crd(body):
                self._tables[facts.gvk] = Table(facts, kept_changes=_KEPT_CHANGES)
        for (kind, name), extract in (indexes or {}).items():
            self._indexes[kind.gvk, name] = (kind, extract)
        for obj in objects:
            self.add(obj)

    @property
    def writes(self) -> list[Call]:
        """The recorded calls except reads."""
        return [call for call in self.calls if call.is_write]

    @property
    def status(self) -> FakeSubResource:
        """The writer of ``status``."""
        return FakeSubResource(self, "status")

    def subresource(self, name: str) -> FakeSubResource:
        """Return a subresource: ``status``, or ``eviction`` of a Pod, which deletes it; intercept any other."""
        return FakeSubResource(self, name)

    def add(self, obj: Object) -> None:
        """Store an object unchanged and unchecked, without recording a call."""
        self.memory.seed(self._table(type(obj)), document_of(obj))

    def watch(self, kind: type[T], **options: Unpack[opts.WatchOptions]) -> FakeWatch[T]:
        """Return the changes of ``kind`` as an endless async iterator, as :meth:`LiveClient.watch` does.

        Without ``resource_version``, the existing objects come first, as ADDED. The last 1,000 changes of a kind are
        kept for watches that begin at an earlier version.

        Iterating raises:
            ExpiredError: the changes since ``resource_version`` are not kept any more.
            BadRequestError: the version or a selector is not valid.
        """
        opts.check_options(opts.WatchOptions, options)
        table, version = self._table(kind), options.get("resource_version", "")
        selects = partial(self._matcher, kind, options)
        return FakeWatch(kind, table, selects, version, self.memory.version)

    async def index_field(self, kind: type[K], field: str, extract: interfaces.IndexerFunc[K]) -> None:
        """Add an index; ValueError if the kind already has one of that name."""
        if (kind.gvk, field) in self._indexes:
            raise ValueError(f"{kind.gvk}: an index named {field} exists")
        self._indexes[kind.gvk, field] = (kind, extract)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        key = NamespacedName.of(key)
        self._log("get", kind, key)
        table = self._table(kind)
        return object_of(kind, table.find(table.key(*key)).document)

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors, ordered by namespace and name.

        A field selector uses the index of that name if there is one, otherwise the rules of an API server.
        """
        opts.check_options(opts.ListOptions, options)
        namespace, limit = options.get("namespace", ""), options.get("limit")
        logged = {"namespace": namespace, "labels": None, "fields": None, "limit": limit, **options}
        logged.pop("continue_token", None)
        self._log("list", kind, NamespacedName(namespace, ""), options=logged)
        picked = self._pick(kind, options)
        start = selection.start_of(options.get("continue_token", ""))
        end = start + limit if limit else len(picked)
        page = interfaces.ObjectList([object_of(kind, document) for document in picked[start:end]])
        page.resource_version = self.memory.version
        if end < len(picked):
            page.continue_token, page.remaining = str(end), len(picked) - end
        return page

    async def create(self, obj: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        opts.check_options(opts.CreateOptions, options)
        document = document_of(obj)
        self._log("create", type(obj), obj.key, document, options=given(options))
        table = self._table(type(obj))
        table.check_namespace(obj.namespace)
        stored = self.memory.create(table, document, **write_of(options))
        return object_of(type(obj), stored)

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is not the newest."""
        return self._update(obj, "", options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        return self._patch(obj, patch, "", options)

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply exactly the fields that are set."""
        opts.check_options(opts.ApplyOptions, options)
        return self._apply(obj, document_of(obj), "", options)

    async def delete(self, obj: Object, **options: Unpack[opts.DeleteOptions]) -> None:
        """Delete the object, or mark it while finalizers keep it; dependents stay until :meth:`collect_garbage`."""
        await self.remove(obj, **options)

    async def remove(self, obj: T, **options: Unpack[opts.DeleteOptions]) -> T | None:
        """Delete as :meth:`delete` does; return the object while it still exists, None once it is deleted."""
        opts.check_options(opts.DeleteOptions, options)
        self._log("delete", type(obj), obj.key, options=given(options))
        table = self._table(type(obj))
        wanted = deletion.Options.of(options, options.get("preconditions"))
        left = self.memory.delete(table, table.key(*obj.key), wanted)
        return None if left is None else object_of(type(obj), left)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[opts.DeleteAllOfOptions]) -> None:
        """Delete each object that matches the selectors, as :meth:`delete` does."""
        opts.check_options(opts.DeleteAllOfOptions, options)
        namespace = options.get("namespace", "")
        logged = {"labels": None, "fields": None, "propagation": None, **options}
        logged.pop("namespace", None)
        self._log("delete_all_of", kind, NamespacedName(namespace, ""), options=logged)
        table = self._table(kind)
        table.check_namespace(namespace)
        for document in self._pick(kind, options):
            self.memory.delete(table, key_of(document), deletion.Options.of(options))

    def collect_garbage(self) -> None:
        """Run the garbage collector of a cluster until it has no more work.

        It deletes dependents whose owners no longer exist, and completes Foreground and Orphan deletions.
        """
        garbage.collect(self.memory, self._tables.values())

    def _update(self, obj: T, subresource: str, options: opts.UpdateOptions) -> T:
        opts.check_options(opts.UpdateOptions, options)
        document = document_of(obj)
        self._log("update", type(obj), obj.key, document, subresource, given(options))
        stored = self.memory.update(
            self._writable(obj, subresource), document, subresource=subresource, **write_of(options)
        )
        return object_of(type(obj), stored)

    def _apply(
        self, obj: T, config: Document, subresource: str, options: opts.PatchOptions | opts.ApplyOptions
    ) -> T:
        self._log("apply", type(obj), obj.key, config, subresource, given(options))
        if not options.get("field_owner"):
            raise no_field_owner()
        table = self._writable(obj, subresource)
        stored = self.memory.apply(
            table, config, subresource=subresource, force=options.get("force", False), **write_of(options)
        )
        return object_of(type(obj), stored)

    def _patch(self, obj: T, patch: interfaces.Patch, subresource: str, options: opts.PatchOptions) -> T:
        opts.check_options(opts.PatchOptions, options)
        body = patching.decoded(patch.data(obj))
        if patch.content_type == APPLY:
            return self._apply(obj, body, subresource, options)
        logged = given(options) | {"type": patch.content_type}
        self._log("patch", type(obj), obj.key, body, subresource, logged)
        table = self._writable(obj, subresource)
        row = table.find(table.key(*obj.key))
        after = patching.patched(table, row.document, body, patch.content_type)
        stored = self.memory.patched(table, row, after, subresource=subresource, **write_of(options))
        return object_of(type(obj), stored)

    def _pick(self, kind: type[Object], options: opts.Selection) -> Sequence[Document]:
        """Return the objects that match the selectors, ordered by namespace and name."""
        matches = self._matcher(kind, options)
        rows = sorted(self._table(kind).rows.items())
        return [row.document for _, row in rows if matches(row.document)]

    def _matcher(self, kind: type[Object], options: opts.Selection) -> Callable[[Document], bool]:
        table, namespace = self._table(kind), options.get("namespace", "")
        labels = selection.matcher_of(options.get("labels"))
        fields = (options.get("fields") or {}).items()
        for path, value in fields:
            if (kind.gvk, path) not in self._indexes:
                selection.has_field(table, {}, path, value)  # refuse it also where no object exists

        def matches(document: Document) -> bool:
            own = key_of(document).namespace
            return (
                (not namespace or not own or own == namespace)
                and labels.matches(document["metadata"].get("labels"))
                and all(self._has(table, kind, document, path, value) for path, value in fields)
            )

        return matches

    def _has(self, table: Table, kind: type[Object], document: Document, path: str, value: str) -> bool:
        index = self._indexes.get((kind.gvk, path))
        if index is None:
            return selection.has_field(table, document, path, value)
        indexed_kind, extract = index
        return value in extract(object_of(indexed_kind, document))

    def _table(self, kind: type[Object]) -> Table:
        table = self._tables.get(kind.gvk)
        if table is None:
            table = self._tables[kind.gvk] = Table(self._facts(kind), kept_changes=_KEPT_CHANGES)
        elif kinds.knows_more(kind, table.facts):
            table.learn(self._facts(kind))
        return table

    def _facts(self, kind: type[Object]) -> kinds.Facts:
        status = None if self._with_status is None else kind.gvk in self._with_status
        return kinds.facts_for(kind, status=status)

    def _writable(self, obj: Object, subresource: str) -> Table:
        table = self._table(type(obj))
        key = table.key(*obj.key)
        if subresource and (subresource != "status" or not table.facts.status):
            raise table.no_subresource(key.name)
        return table

    def _log(
        self,
        verb: str,
        kind: type[Object],
        key: NamespacedName,
        body: JSON = None,
        subresource: str = "",
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.calls.append(Call(verb, kind.gvk, key, copy.deepcopy(body), subresource, options or {}))


class FakeSubResource:
    """Writes one subresource of a FakeClient's objects."""

    def __init__(self, client: FakeClient, name: str) -> None:
        self._client = client
        self._name = name

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj``; for ``status``, the whole object."""
        self._client._log("get", type(obj), obj.key, subresource=self._name)
        table = self._client._writable(obj, self._name)
        return object_of(into, table.find(table.key(*obj.key)).document)

    async def create(self, obj: Object, body: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj``."""
        opts.check_options(opts.CreateOptions, options)
        document = body.to_dict()
        self._client._log("create", type(obj), obj.key, document, self._name, given(options))
        table = self._client._table(type(obj))
        if (type(obj).gvk.kind, self._name) != ("Pod", "eviction"):
            raise table.no_subresource(obj.name)
        evicted = deletion.Options.of_eviction(document, dry_run=options.get("dry_run", False))
        self._client.memory.delete(table, obj.key, evicted)
        return body

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the subresource."""
        return self._client._update(obj, self._name, options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch the subresource."""
        return self._client._patch(obj, patch, self._name, options)

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        opts.check_options(opts.ApplyOptions, options)
        return self._client._apply(obj, document_of(obj), self._name, options)
