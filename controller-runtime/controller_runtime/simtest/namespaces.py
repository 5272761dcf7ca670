# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Namespaces of a simulated server: one that ends takes no new objects, and ends when it is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.client import deletion
from controller_runtime.client.memory import Memory
from controller_runtime.client.tables import Document, Table

from .paths import Place

Tables = Mapping[tuple[str, str, str], Table]
_NAMESPACES: Final = ("", "v1", "namespaces")


def check(place: Place, tables: Tables) -> None:
    """Check that the namespace of a new object exists. Raises NotFoundError; ForbiddenError if it ends."""
    namespace = place.key.namespace
    if not place.table.resource.namespaced or not namespace:
        return
    row = tables[_NAMESPACES].find(NamespacedName("", namespace))
    if row.document["metadata"].get("deletionTimestamp"):
        text = (
            f'{place.table.resource.group_resource} "{place.key.name}" is forbidden: unable to create new '
            f"content in namespace {namespace} because it is being terminated"
        )
        causes = [{"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}]
        raise errors.ForbiddenError(text, code=403, reason="Forbidden", details={"causes": causes})


def empty(memory: Memory, tables: Tables, namespace: Document) -> None:
    """Delete the objects of a namespace, and the namespace itself once it is empty."""
    name, is_empty = namespace["metadata"]["name"], True
    for table in tables.values():
        for key in [key for key in table.rows if key.namespace == name]:
            left = memory.delete(table, key, deletion.Options("Background", grace_period_seconds=0))
            is_empty = is_empty and left is None
    table = tables[_NAMESPACES]
    row = table.rows.get(NamespacedName("", name))
    if is_empty and row is not None:
        metadata = {k: v for k, v in namespace["metadata"].items() if k != "finalizers"}
        after = {**namespace, "metadata": metadata}
        memory.rewrite(table, row, after, "namespace-controller", subresource="", dry_run=False)
