# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of an object in memory: its content, its status, and the metadata of clients and of the server."""

from __future__ import annotations

from typing import Final

from .tables import Document, Table

_SERVERS_OWN: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_NEVER_STORED: Final = ("managedFields", "selfLink")


def content(table: Table, document: Document) -> Document:
    """Return the part of an object whose changes increase its generation."""
    uncounted = ("metadata", "status") if table.facts.status else ("metadata",)
    return {k: v for k, v in document.items() if k not in uncounted}


def main_part(table: Table, document: Document) -> Document:
    """Return the object without a status that is a subresource."""
    return {k: v for k, v in document.items() if k != "status"} if table.facts.status else document


def combined(table: Table, old: Document, new: Document, subresource: str) -> Document:
    """Return ``old`` after a PUT of ``new``, which sets either the status or all but the status and server fields."""
    if subresource:
        result = {k: v for k, v in old.items() if k != "status"}
        result["metadata"] = dict(old["metadata"])
        return {**result, "status": new["status"]} if "status" in new else result
    result = dict(new)
    if table.facts.status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    result["metadata"] = clients_metadata(new) | servers_metadata(old)
    return result


def servers_metadata(document: Document) -> Document:
    """Return the metadata that only the server writes."""
    metadata = document["metadata"]
    return {name: metadata[name] for name in (*_SERVERS_OWN, "resourceVersion") if name in metadata}


def clients_metadata(document: Document) -> Document:
    """Return the metadata that clients may write."""
    dropped = (*_SERVERS_OWN, *_NEVER_STORED, "resourceVersion")
    return {name: value for name, value in document["metadata"].items() if name not in dropped}
