# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server in memory, on plain JSON: what the in-memory client stands on.

Kept as a real server keeps it: resourceVersion, uid, generation, optimistic locking, generateName, finalizers
and deletionTimestamp, the separate status, field owners, watches. Not kept: schemas (defaults, validation,
pruning), admission, garbage collection, permissions.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import anyio

from pkg.apis.machinery import errors
from pkg.apis.machinery.base import JSON
from pkg.apis.machinery.gvk import NamespacedName, Resource
from pkg.apis.machinery.patch import same
from pkg.apis.machinery.time import format_time

from . import ownership

Document = dict[str, JSON]
_SERVERS_OWN: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)


class Manager(NamedTuple):
    """Who owns fields: a name, the way it writes, and the subresource it writes to."""

    name: str
    operation: str
    subresource: str = ""


class Change(NamedTuple):
    """A watch event: ``ADDED``, ``MODIFIED`` or ``DELETED``, and the object after (or last) seen."""

    type: str
    document: Document


@dataclass(slots=True)
class Stored:
    """An object and who owns which of its fields."""

    document: Document
    owners: dict[Manager, ownership.FieldSet] = field(default_factory=dict)


class Follower:
    """The changes of one kind since it was made: an asynchronous iterator that ends when closed."""

    def __init__(self, forget: Callable[[Follower], None]) -> None:
        self._pending: deque[Change] = deque()
        self._news = anyio.Event()
        self._closed = False
        self._forget = forget

    def tell(self, change: Change) -> None:
        """Add a change."""
        self._pending.append(change)
        self._news.set()

    def close(self) -> None:
        """End the iteration once what is pending has been read."""
        self._closed = True
        self._forget(self)
        self._news.set()

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Change:
        while not self._pending:
            if self._closed:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        return self._pending.popleft()


class Table:
    """The objects of one kind, by key."""

    def __init__(self, resource: Resource, kind: str, *, status: bool) -> None:
        self.resource = resource
        self.kind = kind
        self.status = status
        self.rows: dict[NamespacedName, Stored] = {}
        self.followers: list[Follower] = []

    def find(self, key: NamespacedName) -> Stored:
        """Return the row, or raise NotFoundError as a server words it."""
        row = self.rows.get(key)
        if row is None:
            raise self.error(errors.NotFoundError, key.name, 404, "NotFound", "not found")
        return row

    def error(
        self, cls: type[errors.StatusError], name: str, code: int, reason: str, text: str
    ) -> errors.StatusError:
        """Return a refusal that names the object."""
        details = {"name": name, "group": self.resource.group, "kind": self.resource.plural}
        message = f'{self.resource.group_resource} "{name}" {text}'
        return cls(message, code=code, reason=reason, details=details)

    def conflict(self, name: str, text: str) -> errors.StatusError:
        """Return a ConflictError as a server words it."""
        error = self.error(errors.ConflictError, name, 409, "Conflict", "")
        message = f'Operation cannot be fulfilled on {self.resource.group_resource} "{name}": {text}'
        return errors.ConflictError(message, code=409, reason="Conflict", details=error.details)

    def invalid(self, name: str, path: str, text: str) -> errors.StatusError:
        """Return an InvalidError about one field."""
        cause = {"reason": "FieldValueInvalid", "message": text, "field": path}
        details = {"name": name, "group": self.resource.group, "kind": self.kind, "causes": [cause]}
        kind = f"{self.kind}.{self.resource.group}" if self.resource.group else self.kind
        return errors.InvalidError(
            f'{kind} "{name}" is invalid: {path}: {text}', code=422, reason="Invalid", details=details
        )


def _default_now() -> datetime:
    return datetime.now(UTC)


def _counting(pattern: str) -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: pattern.format(next(counter))


class Memory:
    """All tables, one resourceVersion counter."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] | None = None,
        new_uid: Callable[[], str] | None = None,
        new_suffix: Callable[[], str] | None = None,
    ) -> None:
        self._now = now or _default_now
        self._new_uid = new_uid or _counting("00000000-0000-4000-8000-{:012d}")
        self._new_suffix = new_suffix or _counting("{:05d}")
        self._version = 999

    @property
    def version(self) -> str:
        """The newest resourceVersion."""
        return str(self._version)

    def seed(self, table: Table, document: Document) -> None:
        """Store an object as it is given; only a missing resourceVersion is filled in."""
        metadata = document.setdefault("metadata", {})
        metadata.setdefault("resourceVersion", self.version)
        key = _key(document)
        if key in table.rows:
            raise table.error(errors.AlreadyExistsError, key.name, 409, "AlreadyExists", "already exists")
        metadata.pop("managedFields", None)
        table.rows[key] = Stored(document, {Manager("seed", "Update"): ownership.fields_of(document)})

    def create(self, table: Table, document: Document, manager: str, *, dry_run: bool) -> Document:
        """Store a new object and return it."""
        metadata = document.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._new_suffix()
        key = _key(document)
        if not key.name:
            raise table.invalid("", "metadata.name", "Required value: name or generateName is required")
        if metadata.get("resourceVersion"):
            raise errors.BadRequestError(
                "resourceVersion should not be set on objects to be created", code=400, reason="BadRequest"
            )
        if key in table.rows:
            raise table.error(errors.AlreadyExistsError, key.name, 409, "AlreadyExists", "already exists")
        owners = {Manager(manager, "Update"): ownership.fields_of(_main_part(table, document))}
        return self._insert(table, document, owners, dry_run=dry_run)

    def update(
        self, table: Table, document: Document, manager: str, *, subresource: str = "", dry_run: bool
    ) -> Document:
        """Replace an object, or its subresource, and return it."""
        key = _key(document)
        row = table.find(key)
        given = document.get("metadata", {}).get("resourceVersion")
        if given and given != row.document["metadata"]["resourceVersion"]:
            raise table.conflict(
                key.name,
                "the object has been modified; please apply your changes to the latest version and try again",
            )
        uid = document.get("metadata", {}).get("uid")
        if uid and uid != row.document["metadata"].get("uid", uid):
            raise table.conflict(
                key.name,
                f"Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {row.document['metadata']['uid']}",
            )
        after = _combined(table, row.document, document, subresource)
        _check_finalizers(table, row.document, after)
        written = ownership.changed(row.document, after)
        gone = ownership.fields_of(row.document) - ownership.fields_of(after)
        owners = {who: fields - written - gone for who, fields in row.owners.items()}
        if written:
            who = Manager(manager, "Update", subresource)
            owners[who] = owners.get(who, frozenset()) | written
        return self._replace(table, key, row, Stored(after, owners), dry_run=dry_run)

    def apply(
        self,
        table: Table,
        config: Document,
        manager: str,
        *,
        subresource: str = "",
        force: bool,
        dry_run: bool,
    ) -> Document:
        """Apply a configuration: set its fields, and remove those that this manager set before and no longer does."""
        key = _key(config)
        who = Manager(manager, "Apply", subresource)
        if key not in table.rows and not subresource:
            document = _main_part(table, config)
            owners = {who: ownership.fields_of(document)}
            return self._insert(table, document, owners, dry_run=dry_run)
        row = table.find(key)
        given = config.get("metadata", {}).get("resourceVersion")
        if given and given != row.document["metadata"]["resourceVersion"]:
            raise table.conflict(
                key.name,
                "the object has been modified; please apply your changes to the latest version and try again",
            )
        wanted = {"status"} if subresource else config.keys() - ({"status"} if table.status else set())
        config = {name: value for name, value in config.items() if name in wanted}
        mine = ownership.fields_of(config)
        others = {other: fields for other, fields in row.owners.items() if other != who}
        differing = _differing(row.document, config, mine)
        disputed = {other: taken for other, fields in others.items() if (taken := fields & differing)}
        if disputed and not force:
            raise _apply_conflict(disputed, str(row.document.get("apiVersion")))
        others = {other: fields - differing for other, fields in others.items()}
        kept = mine.union(*others.values())
        after = ownership.remove(row.document, row.owners.get(who, frozenset()) - kept, kept=kept)
        after = ownership.merge(after, {k: v for k, v in config.items() if k not in ("apiVersion", "kind")})
        after["metadata"] = {**after.get("metadata", {}), **_unowned(row.document)}
        _check_finalizers(table, row.document, after)
        return self._replace(table, key, row, Stored(after, others | {who: mine}), dry_run=dry_run)

    def delete(
        self, table: Table, key: NamespacedName, preconditions: Mapping[str, str], *, dry_run: bool
    ) -> Document | None:
        """Delete an object, or mark it while it has finalizers; return it while it is there."""
        row = table.find(key)
        metadata = row.document["metadata"]
        for name, field_name in (("uid", "uid"), ("resourceVersion", "resourceVersion")):
            wanted = preconditions.get(name)
            if wanted is not None and wanted != metadata.get(field_name):
                what = "UID" if name == "uid" else "ResourceVersion"
                raise table.conflict(
                    key.name,
                    f"Precondition failed: {what} in precondition: {wanted}, "
                    f"{what} in object meta: {metadata.get(field_name)}",
                )
        if not metadata.get("finalizers"):
            if not dry_run:
                self._drop(table, key, row.document)
            return None
        if not metadata.get("deletionTimestamp") and not dry_run:
            marked = {
                **metadata,
                "deletionTimestamp": format_time(self._now()),
                "deletionGracePeriodSeconds": 0,
            }
            if "generation" in marked:
                marked["generation"] += 1
            return self._store(
                table, key, Stored({**row.document, "metadata": marked}, row.owners), "MODIFIED"
            )
        return row.document

    def _insert(
        self, table: Table, document: Document, owners: dict[Manager, ownership.FieldSet], *, dry_run: bool
    ) -> Document:
        if table.status:
            document.pop("status", None)
        metadata = document["metadata"]
        for name in ("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            metadata.pop(name, None)
        metadata["uid"] = self._new_uid()
        metadata["creationTimestamp"] = format_time(self._now())
        if "spec" in document:
            metadata["generation"] = 1
        if dry_run:
            return document
        return self._store(table, _key(document), Stored(document, _owning(owners)), "ADDED")

    def _replace(
        self, table: Table, key: NamespacedName, row: Stored, after: Stored, *, dry_run: bool
    ) -> Document:
        """Store ``after`` if it differs, and drop the object when its last finalizer went."""
        after.owners = _owning(after.owners)
        content = {k: v for k, v in after.document.items() if k not in ("metadata", "status")}
        before = {k: v for k, v in row.document.items() if k not in ("metadata", "status")}
        metadata = after.document["metadata"]
        if "generation" in metadata and not same(before, content):
            metadata["generation"] += 1
        if dry_run:
            return after.document
        if same(row.document, after.document) and row.owners == after.owners:
            return row.document
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return self._drop(table, key, after.document)
        return self._store(table, key, after, "MODIFIED")

    def _store(self, table: Table, key: NamespacedName, row: Stored, change: str) -> Document:
        self._version += 1
        row.document["metadata"]["resourceVersion"] = self.version
        table.rows[key] = row
        _tell(table, Change(change, row.document))
        return row.document

    def _drop(self, table: Table, key: NamespacedName, document: Document) -> Document:
        self._version += 1
        del table.rows[key]
        last = {**document, "metadata": {**document["metadata"], "resourceVersion": self.version}}
        _tell(table, Change("DELETED", last))
        return last


def _owning(owners: Mapping[Manager, ownership.FieldSet]) -> dict[Manager, ownership.FieldSet]:
    return {who: fields for who, fields in owners.items() if fields}


def _tell(table: Table, change: Change) -> None:
    for follower in table.followers:
        follower.tell(change)


def _key(document: Mapping[str, JSON]) -> NamespacedName:
    metadata: Any = document.get("metadata") or {}
    return NamespacedName(metadata.get("namespace") or "", metadata.get("name") or "")


def _main_part(table: Table, document: Document) -> Document:
    return {k: v for k, v in document.items() if k != "status"} if table.status else document


def _combined(table: Table, old: Document, new: Document, subresource: str) -> Document:
    """What a PUT of ``new`` leaves: the status alone, or all but the status and what is the server's own."""
    if subresource:
        result = {k: v for k, v in old.items() if k != "status"}
        result["metadata"] = dict(old["metadata"])
        return {**result, "status": new["status"]} if "status" in new else result
    result = dict(new)
    if table.status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    result["metadata"] = {
        k: v
        for k, v in new["metadata"].items()
        if k not in (*_SERVERS_OWN, "managedFields", "resourceVersion")
    } | _unowned(old)
    return result


def _unowned(document: Document) -> Document:
    """The metadata that only the server writes."""
    metadata = document["metadata"]
    return {name: metadata[name] for name in (*_SERVERS_OWN, "resourceVersion") if name in metadata}


def _differing(live: Document, config: Document, fields: ownership.FieldSet) -> ownership.FieldSet:
    """Which of ``fields`` applying ``config`` would change."""
    merged = ownership.merge(live, config)
    return frozenset(
        path for path in fields if not same(ownership.value_at(live, path), ownership.value_at(merged, path))
    )


def _check_finalizers(table: Table, old: Document, new: Document) -> None:
    if old["metadata"].get("deletionTimestamp"):
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added:
            raise table.invalid(
                _key(old).name,
                "metadata.finalizers",
                f"Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {sorted(added)}",
            )


def _apply_conflict(disputed: Mapping[Manager, ownership.FieldSet], version: str) -> errors.ConflictError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{who.name}" using {version}',
            "field": at,
        }
        for who, paths in disputed.items()
        for at in sorted(map(ownership.text, paths))
    ]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(_by_manager(causes))
    return errors.ConflictError(message, code=409, reason="Conflict", details={"causes": causes})


def _by_manager(causes: list[dict[str, str]]) -> Iterator[str]:
    for message, group in itertools.groupby(causes, key=lambda cause: cause["message"]):
        yield message.replace("conflict with", "conflicts with", 1) + ":"
        yield from (f"- {cause['field']}" for cause in group)
