# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of one kind in memory, and the errors of a server about them. Followers are notified of each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from controller_runtime.machinery import JSON, NamespacedName, Resource, errors
from controller_runtime.machinery.gojson import quote
from controller_runtime.rest import InvalidRequestError

from . import ownership
from .kinds import KindProperties

Document = dict[str, JSON]


class FieldManager(NamedTuple):
    """A field manager as in managedFields: its name, ``Apply`` or ``Update``, and the subresource that it writes."""

    name: str
    operation: str
    subresource: str = ""


class Change(NamedTuple):
    """A watch event: ``ADDED``, ``MODIFIED`` or ``DELETED``, and the object after the change or before its deletion."""

    type: str
    document: Document
    before: Document | None = None
    """The state before the change, if the object existed."""


@dataclass(slots=True)
class Stored:
    """An object and the owners of its fields."""

    document: Document
    owners: dict[FieldManager, ownership.FieldSet] = field(default_factory=dict)


class Table:
    """The objects of one kind, by key."""

    def __init__(self, properties: KindProperties) -> None:
        self.properties = properties
        self.rows: dict[NamespacedName, Stored] = {}
        self.followers: list[Callable[[Change], None]] = []

    @property
    def resource(self) -> Resource:
        return self.properties.resource

    def set_properties(self, properties: KindProperties) -> None:
        """Replace the properties of the kind.

        For objects with a single field manager, the fields that it owns are computed again with the new schema.
        """
        self.properties = properties
        for row in self.rows.values():
            if len(row.owners) == 1:
                row.owners = {who: ownership.fields_of(row.document, properties.schema) for who in row.owners}

    def key(self, namespace: str, name: str) -> NamespacedName:
        """Return the key of an object; it has no namespace if the kind is cluster-scoped.

        Raises:
            InvalidRequestError: the name is empty, or the kind is namespaced and the namespace is empty.
        """
        if not name:
            raise InvalidRequestError(f"{self.resource.group_resource}: an object's name may not be empty")
        if not self.properties.scope_is_known:
            return NamespacedName(namespace, name)
        if not self.resource.namespaced:
            return NamespacedName("", name)
        if not namespace:
            raise InvalidRequestError(
                f"{self.resource.group_resource} {name}: the namespace may not be empty"
            )
        return NamespacedName(namespace, name)

    def documents(self) -> list[Document]:
        """Return the objects, sorted by namespace and name."""
        return [row.document for _, row in sorted(self.rows.items())]

    def find(self, key: NamespacedName) -> Stored:
        """Return the object and its owners; raise NotFoundError with the message of a server."""
        row = self.rows.get(key)
        if row is None:
            raise self.error(errors.NotFoundError, key.name, 404, "NotFound", "not found")
        return row

    def notify(self, change: Change) -> None:
        """Report a change to the followers."""
        for follower in self.followers:
            follower(change)

    def error(
        self, cls: type[errors.StatusError], name: str, code: int, reason: str, text: str
    ) -> errors.StatusError:
        """Return an error that names the object."""
        message = f"{self.resource.group_resource} {quote(name)} {text}"
        return cls(message, code=code, reason=reason, details=self._details(name, self.resource.plural))

    def exists(self, key: NamespacedName) -> errors.StatusError:
        """Return the AlreadyExistsError for a create."""
        error = self.error(errors.AlreadyExistsError, key.name, 409, "AlreadyExists", "already exists")
        if not self.rows[key].document["metadata"].get("deletionTimestamp"):
            return error
        message = f"object is being deleted: {error.message}"
        return errors.AlreadyExistsError(message, code=409, reason="AlreadyExists", details=error.details)

    def conflict(self, name: str, text: str, *, by_kind: bool = False) -> errors.StatusError:
        """Return a ConflictError with the message of a server."""
        subject = str(self.properties.gvk.group_kind) if by_kind else self.resource.group_resource
        message = f'Operation cannot be fulfilled on {subject} "{name}": {text}'
        details = self._details(name, self.properties.gvk.kind if by_kind else self.resource.plural)
        return errors.ConflictError(message, code=409, reason="Conflict", details=details)

    def invalid(
        self, name: str, path: str, text: str, *, reason: str = "FieldValueInvalid", by_kind: bool = True
    ) -> errors.StatusError:
        """Return an InvalidError about one field."""
        subject = str(self.properties.gvk.group_kind) if by_kind else self.resource.group_resource
        details = self._details(name, self.properties.gvk.kind)
        details["causes"] = [{"reason": reason, "message": text, "field": path}]
        return errors.InvalidError(
            f'{subject} "{name}" is invalid: {path}: {text}', code=422, reason="Invalid", details=details
        )

    def no_subresource(self, name: str) -> errors.StatusError:
        """Return the NotFoundError for a subresource that the kind does not have."""
        if self.properties.custom:
            return self.error(errors.NotFoundError, name, 404, "NotFound", "not found")
        return not_served()

    def _details(self, name: str, kind: str) -> dict[str, JSON]:
        return {"name": name, "group": self.resource.group, "kind": kind}


def not_served() -> errors.NotFoundError:
    """Return the refusal of a request for a kind, or a subresource, that is not served."""
    return errors.NotFoundError(
        "the server could not find the requested resource", code=404, reason="NotFound"
    )


def key_of(document: Mapping[str, JSON]) -> NamespacedName:
    """Return the key in a document's metadata."""
    metadata: dict[str, str] = document.get("metadata") or {}
    return NamespacedName(metadata.get("namespace") or "", metadata.get("name") or "")
