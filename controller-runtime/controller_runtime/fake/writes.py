# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Writes to an API server in memory: patches, defaults and pruning, admission, and checks of namespaces.

Objects are not validated.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controller_runtime.client import APPLY, MERGE, STRATEGIC
from controller_runtime.client import JSON as JSON_PATCH
from controller_runtime.machinery import GVK, JSON, NamespacedName, errors, openapi
from controller_runtime.machinery import patch as patches

from . import checks, subresources
from .garbage import NAMESPACES
from .requests import ParsedRequest, Tables, checked
from .storage import Storage
from .tables import Document, Table, key_of

Schema = Mapping[str, Any]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_OF_EVERY_OBJECT: Final = ("apiVersion", "kind", "metadata")


def completer(schema: Schema) -> Callable[[Document], Document]:
    """Return a function that sets the defaults of a schema in an object, and drops unknown fields and nulls.

    ``apiVersion``, ``kind`` and ``metadata`` stay as they are.
    """

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
        if schema.get(_PRESERVE):
            items = {**items, _PRESERVE: True}
        return [_value(item, items) for item in value]
    return value


def _object(value: dict[str, JSON], schema: Schema) -> dict[str, JSON]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keeps = bool(schema.get(_PRESERVE)) or others is True
    completed: dict[str, JSON] = {}
    for name, child in value.items():
        below = properties.get(name, others)
        if isinstance(below, Mapping):
            if child is not None or below.get("nullable"):
                completed[name] = _value(child, below)
        elif keeps or (schema.get(_EMBEDDED) and name in _OF_EVERY_OBJECT):
            completed[name] = child
    for name, below in properties.items():
        if name not in completed and "default" in below:
            completed[name] = _value(copy.deepcopy(below["default"]), below)
    return completed


_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}
MakeWrite = Callable[[ParsedRequest, str, bool], Document]
"""Called with a request, the user, and True for a dry run. Returns the object, and stores it unless in a dry run."""
Admit = Callable[["Review"], Awaitable[None]]


@dataclass(slots=True)
class Review:
    """A write that is not stored yet. A reviewer may change ``new``, or raise a StatusError to refuse the write."""

    operation: str
    gvk: GVK
    new: Document | None
    old: Document | None
    user: str
    subresource: str
    dry_run: bool


class Writes:
    """Makes the writes that clients request: sets defaults, calls the reviewers, and stores the object."""

    def __init__(self, storage: Storage, tables: Tables, *, check_namespaces: bool = False) -> None:
        self._check_namespaces = check_namespaces
        self.admit: dict[GVK, list[Admit]] = {}
        self.admit_subresource: dict[tuple[GVK, str], list[Admit]] = {}
        self.complete: dict[GVK, Callable[[Document], Document]] = {}
        self._storage = storage
        self._tables = tables
        self._admitted: Document = {}
        storage.complete = self._complete

    def unreviewed(self, parsed: ParsedRequest, user: str) -> Document:
        """Make a write without a review. Return the stored object, a Status or, for a deleted collection, a list."""
        match parsed.verb:
            case "create" if parsed.subresource:
                return self._posted(parsed, user)
            case "create":
                return self._created(parsed, user, self._creation(parsed, user).new)
            case "delete":
                return self._deleted(parsed)
            case "deletecollection":
                return self._all_deleted(parsed)
            case _:
                return self._write_of(parsed)(parsed, user, parsed.dry_run)

    async def reviewed(self, parsed: ParsedRequest, user: str) -> Document:
        """Call the reviewers, then make the write. Return the same as :meth:`unreviewed`."""
        match parsed.verb:
            case "create" if not parsed.subresource:
                review = self._creation(parsed, user)
                await self._admit(parsed, review)
                return self._created(parsed, user, review.new)
            case "delete":
                old = parsed.table.find(parsed.key).document
                review = Review("DELETE", parsed.gvk, None, old, user, "", parsed.dry_run)
                await self._admit(parsed, review)
                return self._deleted(parsed)
            case "update" | "patch":
                return await self._changed(parsed, user, self._write_of(parsed))
            case _:
                return self.unreviewed(parsed, user)

    def _creation(self, parsed: ParsedRequest, user: str) -> Review:
        """Return the review for the creation of an object."""
        document = parsed.document()
        self._check_namespace(parsed)
        document["metadata"] = document.get("metadata") or {}
        if parsed.table.resource.namespaced:
            document["metadata"].setdefault("namespace", parsed.key.namespace)
        document = self._complete(parsed.table, document)
        return Review("CREATE", parsed.gvk, document, None, user, parsed.subresource, parsed.dry_run)

    def _created(self, parsed: ParsedRequest, user: str, document: Document | None) -> Document:
        assert document is not None  # noqa: S101 -- a create has an object
        return self._storage.create(parsed.table, document, parsed.manager(user), dry_run=parsed.dry_run)

    def _posted(self, parsed: ParsedRequest, user: str) -> Document:
        """Evict a pod, bind it to a node, or return a token of a ServiceAccount."""
        self._check_namespace(parsed)
        kind, body = (parsed.gvk.group, parsed.gvk.kind, parsed.subresource), parsed.body()
        if kind == ("", "ServiceAccount", "token"):
            account = parsed.table.find(parsed.key).document
            return subresources.issued(account, body, self._storage.now())
        if kind == ("", "Pod", subresources.BINDING):
            subresources.check_name(body.get("metadata") or {}, parsed.key.name)
            row = parsed.table.find(parsed.key)
            after = subresources.bound(row.document, body, self._storage.now())
            self._storage.rewrite(
                parsed.table,
                row,
                after,
                parsed.manager(user),
                subresource=subresources.BINDING,
                dry_run=parsed.dry_run,
            )
            return dict(_SUCCESS)
        if kind != ("", "Pod", "eviction"):
            raise parsed.table.no_subresource(parsed.key.name)
        if (body.get("metadata") or {}).get("name") != parsed.key.name:
            text = "name in URL does not match name in Eviction object"
            raise errors.BadRequestError(text, code=400, reason="BadRequest")
        options = parsed.delete_options(body.get("deleteOptions") or {})
        pod = parsed.table.find(parsed.key).document
        budgets = self._tables.get(subresources.BUDGETS)
        spent = subresources.budget_after(pod, budgets, self._storage.now())
        if spent is not None and budgets is not None:
            row, after = spent
            manager, dry_run = parsed.manager(user), options.dry_run
            self._storage.rewrite(budgets, row, after, manager, subresource="status", dry_run=dry_run)
        self._storage.delete(parsed.table, parsed.key, options)
        return dict(_SUCCESS)

    def _write_of(self, parsed: ParsedRequest) -> MakeWrite:
        """Return the function that makes an update, a patch or an apply."""
        parsed.check_subresource()
        if parsed.key not in parsed.table.rows:
            self._check_namespace(parsed)
        return self._updated if parsed.verb == "update" else self._patched

    async def _changed(self, parsed: ParsedRequest, user: str, make: MakeWrite) -> Document:
        """Compute the object after a write, call the reviewers, and store it.

        If another write changes the object during the review, start again.
        """
        while True:
            before = parsed.table.rows.get(parsed.key)
            wanted = make(parsed, user, True)
            finish = self._storage.prepared
            old = before.document if before is not None else None
            operation = "UPDATE" if before is not None else "CREATE"
            encoded = msgspec.json.encode(wanted)
            new = msgspec.json.decode(encoded)
            review = Review(operation, parsed.gvk, new, old, user, parsed.subresource, parsed.dry_run)
            await self._admit(parsed, review)
            if parsed.table.rows.get(parsed.key) is before:
                assert review.new is not None  # noqa: S101 -- not a deletion
                if msgspec.json.encode(review.new) == encoded:
                    return wanted if parsed.dry_run or finish is None else finish()
                self._admitted = patches.merge_patch_diff(wanted, review.new)
                try:
                    return make(parsed, user, parsed.dry_run)
                finally:
                    self._admitted = {}

    def _updated(self, parsed: ParsedRequest, user: str, dry_run: bool) -> Document:
        document = parsed.document()
        manager = parsed.manager(user)
        if parsed.subresource == "scale":
            live = parsed.table.find(parsed.key).document
            document = subresources.rescaled(parsed.table, live, document)
        return self._storage.update(
            parsed.table, document, manager, subresource=parsed.subresource, dry_run=dry_run
        )

    def _patched(self, parsed: ParsedRequest, user: str, dry_run: bool) -> Document:
        manager = parsed.manager(user)
        if parsed.is_apply:
            checks.check_manager(parsed.query.get("fieldManager", ""))
            config = parsed.document()
            if parsed.subresource == "scale":
                live = parsed.table.find(parsed.key).document
                subresources.check_apply(parsed.table)
                config = subresources.configuration_of(parsed.table, live, config)
            return self._storage.apply(
                parsed.table,
                config,
                manager,
                subresource=parsed.subresource,
                force=parsed.query.get("force") == "true",
                dry_run=dry_run,
            )
        row = parsed.table.find(parsed.key)
        before = parsed.representation(row.document) if parsed.subresource == "scale" else row.document
        after = patched(parsed.table, before, parsed.body(), parsed.content_type)
        if parsed.subresource == "scale":
            after = subresources.rescaled(parsed.table, row.document, after)
        return self._storage.patched(
            parsed.table, row, after, manager, subresource=parsed.subresource, dry_run=dry_run
        )

    def _deleted(self, parsed: ParsedRequest) -> Document:
        """Delete an object; return it if finalizers or a grace period keep it, otherwise a Status."""
        left = self._storage.delete(parsed.table, parsed.key, parsed.delete_options(parsed.body()))
        return dict(_SUCCESS) if left is None else left

    def _all_deleted(self, parsed: ParsedRequest) -> Document:
        """Delete the objects that a request selects."""
        options = parsed.delete_options(parsed.body())
        for document in [row.document for row in parsed.table.rows.values()]:
            if parsed.picks(document):
                self._storage.delete(parsed.table, key_of(document), options)
        return parsed.collection([], int(self._storage.version))

    def _complete(self, table: Table, document: Document) -> Document:
        """Return an object as it is stored: completed by its schema, with the changes of admission."""
        complete: Callable[[Document], Document] = self.complete.get(
            table.properties.gvk, lambda given: given
        )
        document = complete(document)
        # Fields that a webhook added are completed by the schema, too.
        return complete(patches.apply_merge_patch(document, self._admitted)) if self._admitted else document

    def _check_namespace(self, parsed: ParsedRequest) -> None:
        """Raise NotFoundError if the namespace does not exist, or ForbiddenError if the namespace is being deleted."""
        namespace = parsed.key.namespace
        if not self._check_namespaces or not parsed.table.resource.namespaced or not namespace:
            return
        row = self._tables[NAMESPACES].find(NamespacedName("", namespace))
        if row.document["metadata"].get("deletionTimestamp"):
            text = (
                f'{parsed.table.resource.group_resource} "{parsed.key.name}" is forbidden: unable to create new '
                f"content in namespace {namespace} because it is being terminated"
            )
            causes = [
                {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            ]
            raise errors.ForbiddenError(text, code=403, reason="Forbidden", details={"causes": causes})

    def reviewers(self, gvk: GVK, subresource: str) -> Sequence[Admit]:
        """Return the functions that review writes of a kind or, unless it is empty, of a subresource."""
        return self.admit_subresource.get((gvk, subresource), ()) if subresource else self.admit.get(gvk, ())

    async def _admit(self, parsed: ParsedRequest, review: Review) -> None:
        for admit in self.reviewers(parsed.gvk, parsed.subresource):
            await admit(review)


def patched(table: Table, document: Document, body: JSON, content_type: str) -> Document:
    """Return a copy of ``document`` with the patch ``body`` applied.

    Raises:
        BadRequestError: the patch changes the name or the namespace, or its body is not an object (for a JSON patch:
            not a list).
        InvalidError: the patch cannot be applied to the object, or changes its apiVersion or kind, or the result has
            malformed metadata.
        StatusError: the kind does not support patches of this type.
        NotImplementedError: the patch is a strategic merge patch, and this Kubernetes kind's schema is not recorded
            here.
    """
    _check_type(table, body, content_type)
    try:
        result: JSON
        if content_type == MERGE:
            result = patches.apply_merge_patch(document, body)
        elif content_type == JSON_PATCH:
            result = patches.apply_json_patch(document, body)
        else:
            result = patches.strategic_merge_patch(
                copy.deepcopy(document), copy.deepcopy(body), table.properties.schema
            )
        after = checked(result)
    except ValueError as error:
        raise errors.InvalidError(str(error), code=422, reason="Invalid") from error
    _check_identity(document, after)
    return after


def _check_type(table: Table, body: JSON, content_type: str) -> None:
    custom = table.properties.custom
    if (
        content_type == STRATEGIC
        and not custom
        and openapi.merge_schema_of_kind(table.properties.gvk) is None
    ):
        raise NotImplementedError(
            f"{table.properties.gvk}: strategic merge patches are not supported for this kind in memory"
        )
    if content_type not in (MERGE, JSON_PATCH) and (content_type != STRATEGIC or custom):
        message = "415: Unsupported Media Type"
        if custom:
            message = (
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON_PATCH}, {MERGE}, {APPLY}"
            )
        raise errors.StatusError(message, code=415, reason="UnsupportedMediaType")
    if not isinstance(body, list if content_type == JSON_PATCH else dict):
        expected = "a list of operations" if content_type == JSON_PATCH else "an object"
        raise errors.BadRequestError(f"the patch must be {expected}", code=400, reason="BadRequest")


def _check_identity(before: Document, after: Document) -> None:
    if any(after.get(name) != before.get(name) for name in ("apiVersion", "kind")):
        raise errors.InvalidError(
            "the patch changes the apiVersion or the kind of the object", code=422, reason="Invalid"
        )
    old, new = key_of(before), key_of(after)
    if new.name != old.name:
        raise errors.BadRequestError(
            f"the name of the object ({new.name}) does not match the name on the URL ({old.name})",
            code=400,
            reason="BadRequest",
        )
    if new.namespace and new.namespace != old.namespace:
        raise errors.BadRequestError(
            "the namespace of the provided object does not match the namespace sent on the request",
            code=400,
            reason="BadRequest",
        )
