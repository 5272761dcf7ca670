# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules by which an API server stores objects of any kind, as plain JSON.

This module implements resourceVersion, uid, generation, optimistic locking, generateName, finalizers, grace periods,
propagation, the status subresource, field owners and watch events as a real server does. It does not implement schemas
(defaults, validation, pruning), admission, garbage collection or permissions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from controller_runtime.machinery import GVK, JSON, NamespacedName, errors, structural
from controller_runtime.machinery.meta import format_time
from controller_runtime.machinery.patch import same

from . import checks, ownership, subresources
from .checks import FOREGROUND, ORPHAN
from .tables import Change, Document, FieldManager, Stored, Table, key_of

_SERVERS_OWN: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_NEVER_STORED: Final = ("managedFields", "selfLink")


_OF: Final = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": None}
_LONGEST_BASE: Final = 58
"""The server cuts a ``generateName`` to this length, so that the name has at most 63 characters."""
_GRACE: Final = 30
"""Grace period in seconds for pods that do not set one."""


@dataclass(frozen=True, slots=True)
class DeletionSettings:
    """The options of a delete."""

    propagation: str | None = None
    grace_period_seconds: int | None = None
    preconditions: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False


def _counting(pattern: str) -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: pattern.format(next(counter))


class Storage:
    """The rules for writing objects, and the resourceVersion counter."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] | None = None,
        new_uid: Callable[[], str] | None = None,
        new_suffix: Callable[[], str] | None = None,
    ) -> None:
        self.now = now or (lambda: datetime.now(UTC))
        self._new_uid = new_uid or _counting("00000000-0000-4000-8000-{:012d}")
        self._new_suffix = new_suffix or _counting("{:05d}")
        self._version = 999
        self.complete: Callable[[Table, Document], Document] = lambda _, document: document
        self.schemas: dict[GVK, structural.Schema] = {}
        """The schemas of the CustomResourceDefinitions, against which writes are validated."""
        """Called before an object is stored; returns it with defaults and with the changes of webhooks."""
        self.prepared: Callable[[], Document] | None = None
        """Stores the result of the last dry run. Call it only if the object has not changed since the dry run."""

    @property
    def version(self) -> str:
        """The newest resourceVersion."""
        return str(self._version)

    def seed(self, table: Table, document: Document) -> None:
        """Store an object as it is, except that managedFields are dropped and a missing resourceVersion is set.

        AlreadyExistsError if the object exists.
        """
        metadata = document.setdefault("metadata", {})
        metadata.setdefault("resourceVersion", self.version)
        key = key_of(document)
        if key in table.rows:
            raise table.exists(key)
        metadata.pop("managedFields", None)
        owners = {FieldManager("seed", "Update"): ownership.fields_of(document, table.properties.schema)}
        table.rows[key] = Stored(document, owners)

    def create(self, table: Table, document: Document, manager: str, *, dry_run: bool) -> Document:
        """Store a new object and return it."""
        metadata = document.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:_LONGEST_BASE] + self._new_suffix()
        if not metadata.get("name"):
            text = "Required value: name or generateName is required"
            raise table.invalid("", "metadata.name", text, reason="FieldValueRequired")
        key = _scoped_key(table, document)
        if metadata.get("resourceVersion"):
            raise errors.ServerError("resourceVersion should not be set on objects to be created")
        if key in table.rows:
            raise table.exists(key)
        owners = {
            FieldManager(manager, "Update"): ownership.fields_of(
                _main_part(table, document), table.properties.schema
            )
        }
        return self._insert(table, document, owners, dry_run=dry_run)

    def update(
        self, table: Table, document: Document, manager: str, *, subresource: str = "", dry_run: bool
    ) -> Document:
        """Replace an object, or its subresource, and return it."""
        key = _scoped_key(table, document)
        row = table.find(key)
        metadata, live = document["metadata"], row.document["metadata"]
        if not metadata.get("resourceVersion") and table.properties.needs_version:
            text = "Invalid value: 0: must be specified for an update"
            raise table.invalid(key.name, "metadata.resourceVersion", text, by_kind=False)
        checks.check_version(table, document, row.document)
        uid = metadata.get("uid")
        if uid and uid != live.get("uid", uid):
            raise table.conflict(
                key.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['uid']}",
            )
        return self.rewrite(table, row, document, manager, subresource=subresource, dry_run=dry_run)

    def patched(
        self,
        table: Table,
        row: Stored,
        document: Document,
        manager: str,
        *,
        subresource: str = "",
        dry_run: bool,
    ) -> Document:
        """Store the result of a patch, and return it."""
        checks.check_version(table, document, row.document)
        checks.check_uid(table, document, row.document)
        return self.rewrite(table, row, document, manager, subresource=subresource, dry_run=dry_run)

    def rewrite(
        self, table: Table, row: Stored, document: Document, manager: str, *, subresource: str, dry_run: bool
    ) -> Document:
        """Replace an object with a checked document, and return it."""
        schema = table.properties.schema
        checks.check_deletion(table, document, row.document)
        if subresource == subresources.APPROVAL:
            document = subresources.decided(row.document, document, self.now())
        after = _combined(table, row.document, document, subresource)
        checks.check_finalizers(table, row.document, after)
        written, removed = ownership.difference(row.document, after, schema)
        lost = written | removed
        owners = {who: fields - lost for who, fields in row.owners.items()} if lost else dict(row.owners)
        if written:
            who = FieldManager(manager, "Update", subresource)
            owners[who] = owners.get(who, frozenset()) | written
        return self._replace(table, key_of(row.document), row, Stored(after, owners), dry_run=dry_run)

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
        """Apply a configuration: set its fields, and remove the manager's earlier fields that no other manager owns."""
        key, schema = _scoped_key(table, config), table.properties.schema
        who = FieldManager(manager, "Apply", subresource)
        if key not in table.rows and not subresource:
            return self._apply_new(table, config, who, dry_run=dry_run)
        row = table.find(key)
        checks.check_version(table, config, row.document)
        checks.check_uid(table, config, row.document)
        config = subresources.configured_by(subresource, config, own_status=table.properties.status)
        mine = ownership.fields_of(config, schema)
        others = {other: fields for other, fields in row.owners.items() if other != who}
        differing = _differing(table, row.document, config, mine)
        disputed = {other: taken for other, fields in others.items() if (taken := fields & differing)}
        if disputed and not force:
            raise checks.apply_conflict(disputed, str(row.document.get("apiVersion")))
        others = {other: fields - differing for other, fields in others.items()}
        kept = mine.union(*others.values())
        after: Document = ownership.remove(row.document, row.owners.get(who, frozenset()) - kept, kept=kept)
        after = ownership.merge(
            after, {k: v for k, v in config.items() if k not in ("apiVersion", "kind")}, schema
        )
        if subresource in subresources.POD_PARTS:
            after = subresources.pod_after(subresource, row.document, after)
        elif subresource == subresources.APPROVAL:
            after = subresources.decided(row.document, after, self.now())
        after["metadata"] = {**after.get("metadata", {}), **_servers_metadata(row.document)}
        checks.check_finalizers(table, row.document, after)
        return self._replace(table, key, row, Stored(after, others | {who: mine}), dry_run=dry_run)

    def delete(self, table: Table, key: NamespacedName, options: DeletionSettings) -> Document | None:
        """Delete an object. If it has finalizers or a grace period, only set its deletionTimestamp.

        Return the object that remains, or None if it was deleted.
        """
        row = table.find(key)
        checks.check_preconditions(table, row.document, options.preconditions)
        left = _marked(table, row.document, options, self.now())
        if left is None:
            if not options.dry_run:
                self.drop(table, key, row.document)
        elif left is not row.document and not options.dry_run:
            return self._store(table, key, Stored(left, row.owners), "MODIFIED")
        return left

    def _apply_new(self, table: Table, config: Document, who: FieldManager, *, dry_run: bool) -> Document:
        document = _main_part(table, config)
        if uid := document["metadata"].get("uid"):
            raise table.conflict(
                document["metadata"]["name"],
                f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
            )
        owners = {who: ownership.fields_of(document, table.properties.schema)}
        return self._insert(table, document, owners, dry_run=dry_run)

    def _insert(
        self,
        table: Table,
        document: Document,
        owners: dict[FieldManager, ownership.FieldSet],
        *,
        dry_run: bool,
    ) -> Document:
        if table.properties.status:
            document.pop("status", None)
        metadata = document["metadata"]
        kept = {} if table.properties.generation else {k: v for k, v in metadata.items() if k == "generation"}
        metadata = document["metadata"] = _clients_metadata(document) | kept
        document = self.complete(table, document)
        checks.check_name(table, document)
        checks.check_metadata(table, document)
        checks.check_schema(table, self.schemas.get(table.properties.gvk), document)
        metadata = document["metadata"]  # an admission may have replaced it
        metadata["uid"] = self._new_uid()
        metadata["creationTimestamp"] = format_time(self.now())
        if table.properties.generation:
            metadata["generation"] = 1
        row = Stored(document, _owning(owners))
        if dry_run:
            self.prepared = functools.partial(self._store, table, key_of(document), row, "ADDED")
            return document
        return self._store(table, key_of(document), row, "ADDED")

    def _replace(
        self, table: Table, key: NamespacedName, row: Stored, after: Stored, *, dry_run: bool
    ) -> Document:
        """Store ``after`` if it differs from ``row``. If a deleted object has no finalizers left, remove it."""
        after.owners = _owning(after.owners)
        after.document = self.complete(table, after.document)
        checks.check_metadata(table, after.document)
        checks.check_schema(table, self.schemas.get(table.properties.gvk), after.document, row.document)
        metadata = after.document["metadata"]
        if "generation" in metadata and not same(
            _content(table, row.document), _content(table, after.document)
        ):
            metadata["generation"] += 1
        if dry_run:
            self.prepared = functools.partial(self._finish, table, key, row, after)
            return after.document
        return self._finish(table, key, row, after)

    def _finish(self, table: Table, key: NamespacedName, row: Stored, after: Stored) -> Document:
        if same(row.document, after.document) and row.owners == after.owners:
            return row.document
        if _is_due(after.document["metadata"]):
            self.drop(table, key, after.document)
            return after.document
        return self._store(table, key, after, "MODIFIED")

    def _store(self, table: Table, key: NamespacedName, row: Stored, change: str) -> Document:
        self._version += 1
        row.document["metadata"]["resourceVersion"] = self.version
        before = table.rows.get(key)
        table.rows[key] = row
        table.notify(Change(change, row.document, before.document if before else None))
        return row.document

    def drop(self, table: Table, key: NamespacedName, document: Document) -> None:
        """Remove an object; ``document`` is its last state."""
        self._version += 1
        before = table.rows.pop(key)
        last = {**document, "metadata": {**document["metadata"], "resourceVersion": self.version}}
        table.notify(Change("DELETED", last, before.document))


def _scoped_key(table: Table, document: Document) -> NamespacedName:
    """Return the key of a document. If the kind is cluster-scoped, remove the namespace from the document."""
    key = table.key(*key_of(document))
    if not key.namespace:
        document["metadata"].pop("namespace", None)
    return key


def _owning(owners: Mapping[FieldManager, ownership.FieldSet]) -> dict[FieldManager, ownership.FieldSet]:
    return {who: fields for who, fields in owners.items() if fields}


def _differing(
    table: Table, live: Document, config: Document, fields: ownership.FieldSet
) -> ownership.FieldSet:
    """Return the paths in ``fields`` whose values would change if ``config`` were applied."""
    merged = ownership.merge(live, config, table.properties.schema)
    return frozenset(
        path for path in fields if not same(ownership.value_at(live, path), ownership.value_at(merged, path))
    )


def _content(table: Table, document: Document) -> Document:
    """Return the fields of an object in which a change increases ``metadata.generation``."""
    uncounted = ("metadata", "status") if table.properties.status else ("metadata",)
    return {k: v for k, v in document.items() if k not in uncounted}


def _main_part(table: Table, document: Document) -> Document:
    """Return the object without its status if the status is a subresource."""
    return {k: v for k, v in document.items() if k != "status"} if table.properties.status else document


def _combined(table: Table, old: Document, new: Document, subresource: str) -> Document:
    """Return the object after a PUT of ``new`` over ``old``.

    A PUT to the status sets only the status, and one to a part of a pod sets only that part. An approval and a binding
    set all fields of ``new``. Any other PUT sets all fields that clients may write; if the status is a subresource, the
    old status stays.
    """
    if subresource == "status":
        result = {k: v for k, v in old.items() if k != "status"}
        result["metadata"] = dict(old["metadata"])
        return {**result, "status": new["status"]} if "status" in new else result
    if subresource in subresources.POD_PARTS:
        return subresources.pod_after(subresource, old, new)
    result = dict(new)
    if table.properties.status and subresource not in (subresources.APPROVAL, subresources.BINDING):
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    result["metadata"] = _clients_metadata(new) | _servers_metadata(old)
    return result


def _servers_metadata(document: Document) -> Document:
    """Return the metadata that only the server writes."""
    metadata = document["metadata"]
    return {name: metadata[name] for name in (*_SERVERS_OWN, "resourceVersion") if name in metadata}


def _clients_metadata(document: Document) -> Document:
    """Return the metadata that clients may write."""
    dropped = (*_SERVERS_OWN, *_NEVER_STORED, "resourceVersion")
    return {name: value for name, value in document["metadata"].items() if name not in dropped}


def _marked(table: Table, document: Document, options: DeletionSettings, now: datetime) -> Document | None:
    """Return the object with a deletionTimestamp, or None if the object is removed at once.

    If the object is already marked in the same way, ``document`` itself is returned.
    """
    metadata: dict[str, JSON] = dict(document["metadata"])
    finalizers = _finalizers(table, metadata, options.propagation)
    grace = _grace(table, document, options.grace_period_seconds)
    if not finalizers and not grace:
        return None
    waiting = metadata.get("deletionTimestamp")
    before = metadata.get("deletionGracePeriodSeconds") or 0
    if not waiting or grace < before:
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    if not waiting and "generation" in metadata:
        metadata["generation"] += 1
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    return document if metadata == document["metadata"] else {**document, "metadata": metadata}


def _is_due(metadata: Mapping[str, JSON]) -> bool:
    """Return True if the object is being deleted and has neither finalizers nor a grace period."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def _finalizers(table: Table, metadata: Mapping[str, JSON], propagation: str | None) -> list[str]:
    present = list(metadata.get("finalizers") or ())
    if propagation is not None:
        wanted = _OF[propagation]
    elif ORPHAN in present or FOREGROUND in present:
        wanted = ORPHAN if ORPHAN in present else FOREGROUND
    else:
        wanted = ORPHAN if table.properties.orphans else None
    if wanted in present:
        return [
            finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND) or finalizer == wanted
        ]
    return [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)] + (
        [wanted] if wanted else []
    )


def _grace(table: Table, document: Document, given: int | None) -> int:
    """Return the grace period in seconds; only pods that are bound to a node and still run get one.

    A second delete of a pod keeps the period or makes it shorter.
    """
    if table.properties.gvk[::2] != ("", "Pod"):
        return 0
    metadata, spec = document["metadata"], document.get("spec") or {}
    if metadata.get("deletionTimestamp"):
        before: int = metadata.get("deletionGracePeriodSeconds") or 0
        return before if given is None else min(given, before)
    if not spec.get("nodeName") or (document.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    period: int = spec.get("terminationGracePeriodSeconds", _GRACE) if given is None else given
    return max(period, 0)
