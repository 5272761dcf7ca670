# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of a cluster for objects in memory; it runs only when called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import NamespacedName

from . import deletion
from .memory import Memory
from .tables import Document, Table

_OWNER = "garbage-collector"
Found = tuple[Table, NamespacedName, Document]


def collect(memory: Memory, tables: Iterable[Table]) -> None:
    """Delete dependents without existing owners and complete Foreground and Orphan deletions, until nothing changes."""
    tables = list(tables)
    before = None
    while before != memory.version:
        before = memory.version
        uids = {document["metadata"].get("uid") for _, _, document in _objects(tables)}
        for table, key, _ in list(_objects(tables)):
            if (row := table.rows.get(key)) is not None:
                _attend(memory, tables, (table, key, row.document), uids)


def _attend(memory: Memory, tables: list[Table], found: Found, uids: set[JSON]) -> None:
    table, key, document = found
    metadata: dict[str, JSON] = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if metadata.get("deletionTimestamp") and deletion.ORPHAN in finalizers:
        for child in _dependents(tables, metadata.get("uid")):
            left = [each for each in _owners(child[2]) if each.get("uid") != metadata.get("uid")]
            _set_metadata(memory, child, "ownerReferences", left)
        _set_metadata(memory, found, "finalizers", [each for each in finalizers if each != deletion.ORPHAN])
    elif metadata.get("deletionTimestamp") and deletion.FOREGROUND in finalizers:
        blocking = False
        for child in _dependents(tables, metadata.get("uid")):
            blocking |= any(
                each.get("uid") == metadata.get("uid") and each.get("blockOwnerDeletion")
                for each in _owners(child[2])
            )
            if not child[2]["metadata"].get("deletionTimestamp"):
                memory.delete(child[0], child[1], deletion.Options("Foreground"))
        if not blocking:
            _set_metadata(
                memory, found, "finalizers", [each for each in finalizers if each != deletion.FOREGROUND]
            )
    elif (
        (owners := _owners(document))
        and not metadata.get("deletionTimestamp")
        and not any(each.get("uid") in uids for each in owners)
    ):
        memory.delete(table, key, deletion.Options("Background"))


def _objects(tables: list[Table]) -> Iterator[Found]:
    for table in tables:
        for key, row in table.rows.items():
            yield table, key, row.document


def _dependents(tables: list[Table], uid: str | None) -> list[Found]:
    return [each for each in _objects(tables) if any(owner.get("uid") == uid for owner in _owners(each[2]))]


def _owners(document: Document) -> list[dict[str, JSON]]:
    owners: list[dict[str, JSON]] = document["metadata"].get("ownerReferences") or []
    return owners


def _set_metadata(memory: Memory, found: Found, field: str, value: list[JSON]) -> None:
    table, key, _ = found
    row = table.rows[key]
    metadata = {name: held for name, held in row.document["metadata"].items() if name != field}
    after = {**row.document, "metadata": metadata | ({field: value} if value else {})}
    memory.rewrite(table, row, after, _OWNER, subresource="", dry_run=False)
