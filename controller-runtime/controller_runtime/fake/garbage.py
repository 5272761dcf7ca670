# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The garbage collector and the namespace controller of a cluster in memory; they run only when called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller_runtime.machinery import JSON, NamespacedName

from .checks import FOREGROUND, ORPHAN
from .storage import DeletionSettings, Storage
from .tables import Document, Table

_OWNER = "garbage-collector"
NAMESPACES: Final = ("", "v1", "namespaces")
Tables = Mapping[tuple[str, str, str], Table]
Stored = tuple[Table, NamespacedName, Document]


def collect(storage: Storage, tables: Iterable[Table]) -> None:
    """Delete dependents whose owners no longer exist; complete Foreground and Orphan deletions. Repeat until done."""
    tables = list(tables)
    before = None
    while before != storage.version:
        before = storage.version
        uids = {document["metadata"].get("uid") for _, _, document in _objects(tables)}
        for table, key, _ in list(_objects(tables)):
            if (row := table.rows.get(key)) is not None:
                _attend(storage, tables, (table, key, row.document), uids)


def _attend(storage: Storage, tables: list[Table], stored: Stored, uids: set[JSON]) -> None:
    table, key, document = stored
    metadata: dict[str, JSON] = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if metadata.get("deletionTimestamp") and ORPHAN in finalizers:
        for child in _dependents(tables, metadata.get("uid")):
            left = [owner for owner in _owners(child[2]) if owner.get("uid") != metadata.get("uid")]
            _set_metadata(storage, child, "ownerReferences", left)
        _set_metadata(
            storage, stored, "finalizers", [finalizer for finalizer in finalizers if finalizer != ORPHAN]
        )
    elif metadata.get("deletionTimestamp") and FOREGROUND in finalizers:
        blocking = False
        for child in _dependents(tables, metadata.get("uid")):
            others = [owner for owner in _owners(child[2]) if owner.get("uid") != metadata.get("uid")]
            if any(owner.get("uid") in uids for owner in others):
                _set_metadata(storage, child, "ownerReferences", others)
                continue
            blocking |= any(
                owner.get("uid") == metadata.get("uid") and owner.get("blockOwnerDeletion")
                for owner in _owners(child[2])
            )
            if not child[2]["metadata"].get("deletionTimestamp"):
                storage.delete(child[0], child[1], DeletionSettings("Foreground"))
        if not blocking:
            _set_metadata(
                storage,
                stored,
                "finalizers",
                [finalizer for finalizer in finalizers if finalizer != FOREGROUND],
            )
    elif (
        (owners := _owners(document))
        and not metadata.get("deletionTimestamp")
        and not any(owner.get("uid") in uids for owner in owners)
    ):
        storage.delete(table, key, DeletionSettings("Background"))


def _objects(tables: list[Table]) -> Iterator[Stored]:
    for table in tables:
        for key, row in table.rows.items():
            yield table, key, row.document


def _dependents(tables: list[Table], uid: str | None) -> list[Stored]:
    return [
        child for child in _objects(tables) if any(owner.get("uid") == uid for owner in _owners(child[2]))
    ]


def _owners(document: Document) -> list[dict[str, JSON]]:
    owners: list[dict[str, JSON]] = document["metadata"].get("ownerReferences") or []
    return owners


def _set_metadata(storage: Storage, stored: Stored, field: str, value: list[JSON]) -> None:
    table, key, _ = stored
    row = table.rows[key]
    metadata = {name: other for name, other in row.document["metadata"].items() if name != field}
    after = {**row.document, "metadata": metadata | ({field: value} if value else {})}
    storage.rewrite(table, row, after, _OWNER, subresource="", dry_run=False)


def empty_namespace(storage: Storage, tables: Tables, namespace: Document) -> None:
    """Delete the objects of a terminating namespace; when none is left, remove the namespace's finalizers."""
    name, is_empty = namespace["metadata"]["name"], True
    for table in tables.values():
        for key in [key for key in table.rows if key.namespace == name]:
            left = storage.delete(table, key, DeletionSettings("Background", grace_period_seconds=0))
            is_empty = is_empty and left is None
    table = tables[NAMESPACES]
    row = table.rows.get(NamespacedName("", name))
    if is_empty and row is not None:
        metadata = {k: v for k, v in namespace["metadata"].items() if k != "finalizers"}
        after = {**namespace, "metadata": metadata}
        storage.rewrite(table, row, after, "namespace-controller", subresource="", dry_run=False)
