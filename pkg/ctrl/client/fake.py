# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""FakeClient: a whole Client in memory, for unit tests and offline use.

Semantics are :mod:`pkg.ctrl.client.memory`'s. To make one call fail, wrap the client with
:mod:`pkg.ctrl.client.interceptor`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar, cast

import msgspec

from pkg.apis.machinery import errors, labels, strategicpatch
from pkg.apis.machinery import patch as patches
from pkg.apis.machinery.base import JSON
from pkg.apis.machinery.gvk import GVK, NamespacedName, Resource
from pkg.apis.machinery.object import Object

from . import interfaces
from .client import decode, is_metadata
from .memory import Change, Document, Follower, Memory, Table
from .patch import APPLY, MERGE, STRATEGIC
from .patch import JSON as JSON_PATCH

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)

DEFAULT_OWNER: Final = "fake-client"
Indexes = Mapping[tuple[type[Object], str], Callable[[Any], Iterable[str]]]

_SELECTABLE: Final[Mapping[str, frozenset[str]]] = {
    "Pod": frozenset(
        {"spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase", "status.podIP"}
    ),
    "Event": frozenset(
        {"involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "reason", "type"}
    ),
    "Secret": frozenset({"type"}),
    "Job": frozenset({"status.successful"}),
    "Node": frozenset({"spec.unschedulable"}),
}
"""Fields that servers can select by, beside ``metadata.name`` and ``metadata.namespace``."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was made, also when it was refused."""

    verb: str
    kind: GVK
    key: NamespacedName
    body: JSON = None
    subresource: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_write(self) -> bool:
        """Whether the call can change anything."""
        return self.verb not in ("get", "list")


@dataclass(frozen=True, slots=True)
class Event:
    """A watch event with the object decoded."""

    type: str
    object: Object


class FakeClient:
    """A Client over objects in memory; also a FieldIndexer.

    ``objects`` are stored as they are, status included; what is created later gets what a server gives it.
    ``indexes`` maps (kind, field) to the function that extracts the values, as a cache has them.
    ``with_status`` names the kinds whose status is a subresource; None means every kind.
    """

    def __init__(
        self,
        *objects: Object,
        indexes: Indexes | None = None,
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
        for (kind, name), extract in (indexes or {}).items():
            self._indexes[kind.gvk, name] = (kind, extract)
        for obj in objects:
            self.add(obj)

    @property
    def writes(self) -> list[Call]:
        """The calls that are no reads."""
        return [call for call in self.calls if call.is_write]

    @property
    def status(self) -> FakeSubResource:
        """The writer of ``status``."""
        return FakeSubResource(self, "status")

    def subresource(self, name: str) -> FakeSubResource:
        """Return one subresource: ``status``, or ``eviction`` of a Pod, which deletes it; intercept the others."""
        return FakeSubResource(self, name)

    def add(self, obj: Object) -> None:
        """Store an object as it is, past the rules for creating one; not logged as a call."""
        self.memory.seed(self._table(type(obj)), _document(obj))

    def watch(self, kind: type[T], *, namespace: str = "") -> FakeWatch:
        """Return the changes of ``kind`` from now on. Close it when done."""
        table = self._table(kind)
        follower = Follower(table.followers.remove)
        table.followers.append(follower)
        return FakeWatch(kind, follower, namespace)

    async def index_field(self, kind: type[K], field: str, extract: interfaces.IndexerFunc[K]) -> None:
        """Add an index; ValueError when the kind has one of that name."""
        if (kind.gvk, field) in self._indexes:
            raise ValueError(f"{kind.gvk}: an index named {field} exists")
        self._indexes[kind.gvk, field] = (kind, extract)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError when there is none."""
        key = NamespacedName(*key)
        self._log("get", kind, key)
        return _object(kind, self._table(kind).find(key).document)

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        labels: interfaces.LabelSelectorLike | None = None,
        fields: Mapping[str, str] | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> interfaces.ObjectList[T]:
        """Return the objects that the selectors pick, by namespace and name.

        A field is looked up in an index of that name first, then as servers select.
        """
        options = {"namespace": namespace, "labels": labels, "fields": fields, "limit": limit}
        self._log("list", kind, NamespacedName(namespace, ""), options=options)
        picked = self._pick(kind, namespace, labels, fields)
        start = int(continue_token) if continue_token else 0
        end = start + limit if limit else len(picked)
        page = interfaces.ObjectList([_object(kind, document) for document in picked[start:end]])
        page.resource_version = self.memory.version
        if end < len(picked):
            page.continue_token, page.remaining = str(end), len(picked) - end
        return page

    async def create(self, obj: T, *, field_owner: str = "", dry_run: bool = False) -> T:
        """Create ``obj``; AlreadyExistsError when its name is taken."""
        document = _document(obj)
        self._log("create", type(obj), obj.key, document, options=_given(field_owner, dry_run=dry_run))
        table = self._table(type(obj))
        _check_namespace(table, obj)
        stored = self.memory.create(table, document, field_owner or DEFAULT_OWNER, dry_run=dry_run)
        return _object(type(obj), stored)

    async def update(self, obj: T, *, field_owner: str = "", dry_run: bool = False) -> T:
        """Replace the stored object; ConflictError when ``resourceVersion`` is not the newest."""
        return self._update(obj, "", field_owner=field_owner, dry_run=dry_run)

    async def patch(
        self,
        obj: T,
        patch: interfaces.Patch,
        *,
        field_owner: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        return self._patch(obj, patch, "", field_owner=field_owner, force=force, dry_run=dry_run)

    async def apply(self, obj: T, *, field_owner: str, force: bool = False, dry_run: bool = False) -> T:
        """Server-side apply exactly the fields that are set."""
        return self._apply(obj, _document(obj), "", field_owner=field_owner, force=force, dry_run=dry_run)

    async def delete(
        self,
        obj: Object,
        *,
        propagation: interfaces.Propagation | None = None,
        grace_period_seconds: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the object, or mark it while it has finalizers; dependents stay."""
        await self.remove(
            obj,
            propagation=propagation,
            grace_period_seconds=grace_period_seconds,
            preconditions=preconditions,
            dry_run=dry_run,
        )

    async def remove(self, obj: T, **options: Any) -> T | None:
        """Delete as :meth:`delete` does; return the object while it still exists, None once it is gone."""
        self._log("delete", type(obj), obj.key, options={k: v for k, v in options.items() if v})
        table = self._table(type(obj))
        left = self.memory.delete(
            table, obj.key, options.get("preconditions") or {}, dry_run=bool(options.get("dry_run"))
        )
        return None if left is None else _object(type(obj), left)

    async def delete_all_of(
        self,
        kind: type[Object],
        *,
        namespace: str = "",
        labels: interfaces.LabelSelectorLike | None = None,
        fields: Mapping[str, str] | None = None,
        propagation: interfaces.Propagation | None = None,
    ) -> None:
        """Delete what the selectors pick, each as :meth:`delete` does."""
        options = {"labels": labels, "fields": fields, "propagation": propagation}
        self._log("delete_all_of", kind, NamespacedName(namespace, ""), options=options)
        for document in self._pick(kind, namespace, labels, fields):
            metadata = document["metadata"]
            key = NamespacedName(metadata.get("namespace") or "", metadata["name"])
            self.memory.delete(self._table(kind), key, {}, dry_run=False)

    def _update(self, obj: T, subresource: str, *, field_owner: str, dry_run: bool) -> T:
        document = _document(obj)
        options = _given(field_owner, dry_run=dry_run)
        self._log("update", type(obj), obj.key, document, subresource, options)
        stored = self.memory.update(
            self._writable(type(obj), subresource),
            document,
            field_owner or DEFAULT_OWNER,
            subresource=subresource,
            dry_run=dry_run,
        )
        return _object(type(obj), stored)

    def _apply(
        self, obj: T, config: Document, subresource: str, *, field_owner: str, force: bool, dry_run: bool
    ) -> T:
        options = _given(field_owner, force=force, dry_run=dry_run)
        self._log("apply", type(obj), obj.key, config, subresource, options)
        if not field_owner:
            raise errors.InvalidError(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
                code=422,
                reason="Invalid",
            )
        table = self._writable(type(obj), subresource)
        _check_namespace(table, obj)
        stored = self.memory.apply(
            table, config, field_owner, subresource=subresource, force=force, dry_run=dry_run
        )
        return _object(type(obj), stored)

    def _patch(
        self,
        obj: T,
        patch: interfaces.Patch,
        subresource: str,
        *,
        field_owner: str,
        force: bool,
        dry_run: bool,
    ) -> T:
        body: Any = msgspec.json.decode(patch.data(obj))
        if patch.content_type == APPLY:
            return self._apply(obj, body, subresource, field_owner=field_owner, force=force, dry_run=dry_run)
        options = _given(field_owner, force=force, dry_run=dry_run) | {"type": patch.content_type}
        self._log("patch", type(obj), obj.key, body, subresource, options)
        table = self._writable(type(obj), subresource)
        before = table.find(obj.key).document
        after = _patched(table, copy.deepcopy(before), copy.deepcopy(body), patch.content_type)
        if table.status and not subresource:
            after.pop("status", None)
        stored = self.memory.update(
            table, after, field_owner or DEFAULT_OWNER, subresource=subresource, dry_run=dry_run
        )
        return _object(type(obj), stored)

    def _pick(
        self,
        kind: type[Object],
        namespace: str,
        selector: interfaces.LabelSelectorLike | None,
        fields: Mapping[str, str] | None,
    ) -> Sequence[Document]:
        matcher = labels.selector(selector)
        table = self._table(kind)
        documents = [
            row.document
            for key, row in sorted(table.rows.items())
            if (not namespace or key.namespace == namespace)
            and matcher.matches(row.document["metadata"].get("labels"))
        ]
        for path, value in (fields or {}).items():
            documents = [document for document in documents if self._has(table, kind, document, path, value)]
        return documents

    def _has(self, table: Table, kind: type[Object], document: Document, path: str, value: str) -> bool:
        index = self._indexes.get((kind.gvk, path))
        if index is not None:
            indexed_kind, extract = index
            return value in extract(_object(indexed_kind, document))
        if path not in ("metadata.name", "metadata.namespace") and path not in _SELECTABLE.get(
            table.kind, ()
        ):
            raise errors.BadRequestError(f"field label not supported: {path}", code=400, reason="BadRequest")
        found: JSON = document
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        return _field_text(found) == value

    def _table(self, kind: type[Object]) -> Table:
        table = self._tables.get(kind.gvk)
        if table is None:
            status = self._with_status is None or kind.gvk in self._with_status
            resource = kind.resource or _guess(kind.gvk)
            table = self._tables[kind.gvk] = Table(resource, kind.gvk.kind, status=status)
        elif kind.resource is not None:
            table.resource = kind.resource
        return table

    def _writable(self, kind: type[Object], subresource: str) -> Table:
        table = self._table(kind)
        if subresource and (subresource != "status" or not table.status):
            raise _no_such_resource()
        return table

    def _log(
        self,
        verb: str,
        kind: type[Object],
        key: NamespacedName,
        body: JSON = None,
        subresource: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.calls.append(Call(verb, kind.gvk, key, copy.deepcopy(body), subresource, options or {}))


def _no_such_resource() -> errors.NotFoundError:
    return errors.NotFoundError(
        "the server could not find the requested resource", code=404, reason="NotFound"
    )


class FakeSubResource:
    """Writes one subresource of a FakeClient's objects."""

    def __init__(self, client: FakeClient, name: str) -> None:
        self._client = client
        self._name = name

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj``: of ``status``, the whole object."""
        self._client._log("get", type(obj), obj.key, subresource=self._name)
        return _object(into, self._client._writable(type(obj), self._name).find(obj.key).document)

    async def create(self, obj: Object, body: T) -> T:
        """Post ``body`` to the subresource of ``obj``."""
        document = body.to_dict()
        self._client._log("create", type(obj), obj.key, document, self._name)
        if (type(obj).gvk.kind, self._name) != ("Pod", "eviction"):
            raise _no_such_resource()
        preconditions = (document.get("deleteOptions") or {}).get("preconditions") or {}
        self._client.memory.delete(self._client._table(type(obj)), obj.key, preconditions, dry_run=False)
        return body

    async def update(self, obj: T, *, field_owner: str = "", dry_run: bool = False) -> T:
        """Replace the subresource."""
        return self._client._update(obj, self._name, field_owner=field_owner, dry_run=dry_run)

    async def patch(
        self,
        obj: T,
        patch: interfaces.Patch,
        *,
        field_owner: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Patch the subresource."""
        return self._client._patch(
            obj, patch, self._name, field_owner=field_owner, force=force, dry_run=dry_run
        )

    async def apply(self, obj: T, *, field_owner: str, force: bool = False, dry_run: bool = False) -> T:
        """Server-side apply the subresource."""
        return self._client._apply(
            obj, _document(obj), self._name, field_owner=field_owner, force=force, dry_run=dry_run
        )


class FakeWatch:
    """The changes of a kind, decoded: ``async for event in watch``, until it is closed."""

    def __init__(self, kind: type[Object], follower: Follower, namespace: str) -> None:
        self._kind = kind
        self._follower = follower
        self._namespace = namespace

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for change in self._follower:
            if not self._namespace or _namespace_of(change) == self._namespace:
                yield Event(change.type, _object(self._kind, change.document))

    def close(self) -> None:
        """Stop following."""
        self._follower.close()


def _document(obj: Object) -> Document:
    # Through JSON, so that nothing is shared with the caller's object.
    document = cast("Document", msgspec.json.decode(obj.to_json()))
    document.setdefault("metadata", {}).pop("managedFields", None)
    return document


def _object(kind: type[T], document: Document) -> T:
    if is_metadata(kind):
        document = {"metadata": document["metadata"]}
    return decode(kind, msgspec.json.encode(document))


def _patched(table: Table, document: Document, body: Any, content_type: str) -> Document:
    name = document["metadata"]["name"]
    try:
        if content_type == MERGE:
            result = patches.apply_merge_patch(document, body)
        elif content_type == JSON_PATCH:
            result = patches.apply_json_patch(document, body)
        elif content_type == STRATEGIC and (schema := strategicpatch.SCHEMAS.get(table.kind)):
            result = strategicpatch.strategic_merge_patch(document, body, schema)
        else:
            raise errors.StatusError(
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON_PATCH}, {MERGE}, {APPLY}",
                code=415,
                reason="UnsupportedMediaType",
            )
    except (patches.PatchError, strategicpatch.StrategicMergeError) as error:
        raise errors.InvalidError(str(error), code=422, reason="Invalid") from error
    changed = result.get("metadata", {}).get("name")
    if changed != name:
        raise errors.BadRequestError(
            f"the name of the object ({changed}) does not match the name on the URL ({name})",
            code=400,
            reason="BadRequest",
        )
    return cast("Document", result)


def _check_namespace(table: Table, obj: Object) -> None:
    if type(obj).resource is not None and table.resource.namespaced and not obj.namespace:
        raise ValueError(f"{table.resource.group_resource}: the namespace may not be empty")


def _guess(gvk: GVK) -> Resource:
    name = gvk.kind.lower()
    if name.endswith("y"):
        plural = f"{name[:-1]}ies"
    else:
        plural = f"{name}es" if name.endswith(("s", "x", "ch")) else f"{name}s"
    return Resource(gvk.group, gvk.version, plural, True)


def _given(field_owner: str, **flags: bool) -> dict[str, Any]:
    given: dict[str, Any] = {"field_owner": field_owner} if field_owner else {}
    return given | {name: True for name, value in flags.items() if value}


def _field_text(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _namespace_of(change: Change) -> str:
    return change.document["metadata"].get("namespace") or ""
