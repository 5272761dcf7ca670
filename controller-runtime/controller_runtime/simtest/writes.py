# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Writes to a simulated server: defaults and pruning, admission, namespaces that end, and the write itself.

Objects are not validated.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import GVK, NamespacedName
from controller_runtime.apis.machinery.patch import apply_merge_patch, merge_patch_diff
from controller_runtime.client import deletion, patching
from controller_runtime.client.memory import Memory
from controller_runtime.client.tables import Document, Table, key_of

from .messages import Place

Schema = Mapping[str, Any]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_OF_EVERY_OBJECT: Final = ("apiVersion", "kind", "metadata")


def completer(schema: Schema) -> Callable[[Document], Document]:
    """Return the function that completes objects of a schema; objects without a schema stay as they are."""

    def complete(document: Document) -> Document:
        own = {name: value for name, value in document.items() if name in _OF_EVERY_OBJECT}
        properties = {k: v for k, v in (schema.get("properties") or {}).items() if k not in _OF_EVERY_OBJECT}
        rest = {name: value for name, value in document.items() if name not in _OF_EVERY_OBJECT}
        completed: Document = _object(rest, {**schema, "properties": properties})
        return own | completed

    return complete


def _value(value: JSON, schema: Schema) -> JSON:
    if isinstance(value, dict):
        return _object(value, schema)
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [_value(each, items) for each in value]
    return value


def _object(value: dict[str, JSON], schema: Schema) -> dict[str, JSON]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keeps = bool(schema.get(_PRESERVE)) or others is True
    completed: dict[str, JSON] = {}
    for name, held in value.items():
        below = properties.get(name)
        if below is not None:
            if held is not None or below.get("nullable"):
                completed[name] = _value(held, below)
        elif isinstance(others, Mapping):
            completed[name] = _value(held, others)
        elif keeps or (schema.get(_EMBEDDED) and name in _OF_EVERY_OBJECT):
            completed[name] = held
    for name, below in properties.items():
        if name not in completed and "default" in below:
            completed[name] = _value(copy.deepcopy(below["default"]), below)
    return completed


Tables = Mapping[tuple[str, str, str], Table]
_NAMESPACES: Final = ("", "v1", "namespaces")


def _check_namespace(place: Place, tables: Tables) -> None:
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


def empty_namespace(memory: Memory, tables: Tables, namespace: Document) -> None:
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


_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}
Admit = Callable[["Review"], Awaitable[None]]


@dataclass(slots=True)
class Review:
    """A write that is about to happen; who looks at it may change ``new`` or raise a StatusError."""

    operation: str
    gvk: GVK
    new: Document | None
    old: Document | None
    user: str
    subresource: str
    dry_run: bool


class Writes:
    """Stores what requests write, once it is complete and admitted."""

    def __init__(self, memory: Memory, tables: Mapping[tuple[str, str, str], Table]) -> None:
        self.admit: dict[GVK, list[Admit]] = {}
        self.admit_subresource: dict[tuple[GVK, str], list[Admit]] = {}
        self.complete: dict[GVK, Callable[[Document], Document]] = {}
        self._memory = memory
        self._tables = tables
        self._admitted: Document = {}
        memory.complete = self._complete

    async def create(self, place: Place, user: str) -> Document:
        """Store a new object, and return it."""
        document = place.body()
        _check_namespace(place, self._tables)
        document.setdefault("metadata", {})
        if place.table.resource.namespaced:
            document["metadata"].setdefault("namespace", place.key.namespace)
        if place.subresource == "eviction":
            self._memory.delete(place.table, place.key, deletion.Options())
            return dict(_SUCCESS)
        document = self._complete(place.table, document)
        review = Review("CREATE", place.gvk, document, None, user, place.subresource, place.dry_run)
        await self._admit(place, review)
        assert review.new is not None  # noqa: S101 -- a create has an object
        return self._memory.create(place.table, review.new, place.manager(user), dry_run=place.dry_run)

    async def update(self, place: Place, user: str) -> Document:
        """Replace an object, and return it as it is stored."""
        return await self._write(place, user, self._updated)

    async def patch(self, place: Place, user: str) -> Document:
        """Patch or apply an object, and return it as it is stored."""
        return await self._write(place, user, self._patched)

    async def _write(
        self, place: Place, user: str, write: Callable[[Place, str, bool], Document]
    ) -> Document:
        """Compute the object after a write, have it admitted, and store it; again when it changed meanwhile."""
        if place.subresource not in ("", "status") or (place.subresource and not place.table.facts.status):
            raise place.table.no_subresource(place.key.name)
        if place.key not in place.table.rows:
            _check_namespace(place, self._tables)
        if not self._reviewers(place):
            return write(place, user, place.dry_run)
        while True:
            before = place.table.rows.get(place.key)
            wanted = write(place, user, True)
            finish = self._memory.prepared
            old = before.document if before is not None else None
            operation = "UPDATE" if before is not None else "CREATE"
            encoded = msgspec.json.encode(wanted)
            new = msgspec.json.decode(encoded)
            review = Review(operation, place.gvk, new, old, user, place.subresource, place.dry_run)
            await self._admit(place, review)
            if place.table.rows.get(place.key) is before:
                assert review.new is not None  # noqa: S101 -- not a deletion
                if msgspec.json.encode(review.new) == encoded:
                    return wanted if place.dry_run or finish is None else finish()
                self._admitted = merge_patch_diff(wanted, review.new)
                try:
                    return write(place, user, place.dry_run)
                finally:
                    self._admitted = {}

    def _updated(self, place: Place, user: str, dry_run: bool) -> Document:
        document = place.body()
        manager = place.manager(user)
        return self._memory.update(
            place.table, document, manager, subresource=place.subresource, dry_run=dry_run
        )

    def _patched(self, place: Place, user: str, dry_run: bool) -> Document:
        body, manager = place.body(), place.manager(user)
        if place.is_apply:
            return self._memory.apply(
                place.table,
                body,
                manager,
                subresource=place.subresource,
                force=place.query.get("force") == "true",
                dry_run=dry_run,
            )
        row = place.table.find(place.key)
        after = patching.patched(place.table, row.document, body, place.content_type)
        return self._memory.patched(
            place.table, row, after, manager, subresource=place.subresource, dry_run=dry_run
        )

    async def delete(self, place: Place, user: str) -> Document:
        """Delete an object; return it while it waits for its end."""
        row = place.table.find(place.key)
        review = Review("DELETE", place.gvk, None, row.document, user, "", place.dry_run)
        await self._admit(place, review)
        options = place.delete_options()
        left = self._memory.delete(place.table, place.key, options)
        return dict(_SUCCESS) if left is None else left

    def delete_all(self, place: Place) -> Document:
        """Delete the objects that a request selects."""
        options = place.delete_options()
        for document in [row.document for row in place.table.rows.values()]:
            if place.picks(document):
                self._memory.delete(place.table, key_of(document), options)
        return place.collection([], int(self._memory.version))

    def _complete(self, table: Table, document: Document) -> Document:
        """Return an object as it is stored: as its schema has it, with the changes of admission."""
        complete = self.complete.get(table.facts.gvk, _unchanged)
        document = complete(document)
        # What a webhook added passes the schema, too.
        return complete(apply_merge_patch(document, self._admitted)) if self._admitted else document

    def waits(self, gvk: GVK, subresource: str) -> bool:
        """Return True if writes of a kind, or of a subresource, are reviewed."""
        return bool(self.admit_subresource.get((gvk, subresource)) if subresource else self.admit.get(gvk))

    def _reviewers(self, place: Place) -> Sequence[Admit]:
        if place.subresource:
            return self.admit_subresource.get((place.gvk, place.subresource), ())
        return self.admit.get(place.gvk, ())

    async def _admit(self, place: Place, review: Review) -> None:
        for admit in self._reviewers(place):
            await admit(review)


def _unchanged(document: Document) -> Document:
    return document
