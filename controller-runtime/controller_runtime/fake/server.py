# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server in memory: like a real server, it gets requests and returns responses as bytes.

Objects are stored by the rules of :mod:`.storage`. This module adds the other parts of a server: paths, discovery,
lists with pages, watches with bookmarks and streaming lists, compaction, and kinds that are added or changed later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio

from controller_runtime.machinery import GVK, NamespacedName, Object, errors
from controller_runtime.rest import CompleteResponse, Request, Response

from . import kinds, requests, subresources
from .requests import ParsedRequest
from .storage import Storage
from .tables import Document, Table, not_served
from .watches import Current, History, View, Watches
from .writes import Writes, completer

_POD: Final = GVK("", "v1", "Pod")
_READS: Final = ("get", "list", "watch")
_TOO_NEW: Final = 3.0
"""Maximum seconds that a list waits for its view to show the resourceVersion in the request."""


class Server:
    """The objects of a cluster, and the responses to requests about them.

    ``complete[kind]`` is called with each object before it is stored, to set defaults and to drop unknown fields. A
    second call with its result must change nothing. The functions in ``admit[kind]`` are called one after the other for
    each write of an object, and those in ``admit_subresource[kind, name]`` for each write of that subresource. With
    ``check_namespaces``, an object can be created only in a namespace that exists and is not being deleted.
    """

    def __init__(
        self,
        storage: Storage,
        history: History | None = None,
        watches: Watches | None = None,
        *,
        check_namespaces: bool = False,
    ) -> None:
        self.storage = storage
        self.tables: dict[tuple[str, str, str], Table] = {}
        self.history = history or History()
        self.watches = watches or Watches(self.history)
        self.writes = Writes(storage, self.tables, check_namespaces=check_namespaces)
        self.admit = self.writes.admit
        self.admit_subresource = self.writes.admit_subresource
        self.complete = self.writes.complete
        self.logs: dict[tuple[str, str, str], str] = {}
        """The logs of containers, by namespace, pod and container."""
        self._current = Current(self.history, storage)

    # Kinds.

    def serve(self, *kinds_: type[Object]) -> None:
        """Serve kinds as their models describe them."""
        for kind in kinds_:
            self.add(kinds.properties_of(kind))

    def serve_crds(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Serve custom kinds as CustomResourceDefinitions describe them, with the defaults of their schemas."""
        for crd in crds:
            for properties, version in zip(
                kinds.properties_of_crd(crd), crd["spec"]["versions"], strict=True
            ):
                self.add(properties)
                if schema := (version.get("schema") or {}).get("openAPIV3Schema"):
                    self.complete[properties.gvk] = completer(schema)
                    self.storage.schemas[properties.gvk] = schema

    def add(self, properties: kinds.KindProperties) -> Table:
        """Serve a kind, and return the table of its objects."""
        key = table_key(properties)
        if (table := self.tables.get(key)) is None:
            table = self.tables[key] = Table(properties)
            self.history.follow(table)
        return table

    def replace(self, table: Table, properties: kinds.KindProperties) -> None:
        """Replace the properties of a kind, including its resource, and keep its objects."""
        del self.tables[table_key(table.properties)]
        table.set_properties(properties)
        self.tables[table_key(properties)] = table

    # Requests.

    async def handle(self, request: Request, user: str, view: View | None = None) -> Response:
        """Return the response to a request.

        ``view`` is used by watches and by lists with a resourceVersion; they may see an older state there. All other
        reads see the stored objects, and so do all reads if ``view`` is None.
        """
        view = view or self._current
        try:
            parsed = self._understood(request, user)
            if isinstance(parsed, ParsedRequest):
                await _reach(parsed, view)
                if parsed.verb not in _READS and self.writes.reviewers(parsed.gvk, parsed.subresource):
                    known = parsed.key in parsed.table.rows
                    return _written(parsed, await self.writes.reviewed(parsed, user), known=known)
            return self._answer(parsed, user, view)
        except (errors.StatusError, ValueError) as error:
            return _refusal(error)

    def handle_at_once(self, request: Request, user: str, view: View) -> Response:
        """Return the response without waiting: a list does not wait for ``view``, and writes are not reviewed."""
        try:
            return self._answer(self._understood(request, user), user, view)
        except (errors.StatusError, ValueError) as error:
            return _refusal(error)

    def _understood(self, request: Request, user: str) -> ParsedRequest | CompleteResponse:
        """Parse a request and check the user's permission. For a discovery request, return the response instead."""
        tables = self.served_to(user)
        if (document := requests.discovery(request.path, tables)) is not None:
            return requests.success(document)
        parsed = requests.parse_request(request, self.tables)
        if len(tables) < len(self.tables) and parsed.table not in tables.values():
            raise not_served()
        self.check_permission(parsed, user)
        return parsed

    def _answer(self, parsed: ParsedRequest | CompleteResponse, user: str, view: View) -> Response:
        if isinstance(parsed, CompleteResponse):
            return parsed
        match parsed.verb:
            case "get" if parsed.subresource == "log" and parsed.gvk == _POD:
                pod = parsed.table.find(parsed.key).document
                text = subresources.log_of(pod, parsed.query, self.logs)
                return CompleteResponse(200, text.encode(), {"Content-Type": "text/plain"})
            case "get":
                parsed.check_subresource()
                return requests.success(parsed.representation(parsed.table.find(parsed.key).document))
            case "list":
                return self._list(parsed, view)
            case "watch":
                return self.watches.open(parsed, view, self.storage.version)
            case _:
                known = parsed.key in parsed.table.rows
                return _written(parsed, self.writes.unreviewed(parsed, user), known=known)

    def served_to(self, user: str) -> requests.Tables:
        """Return the tables of the kinds that are served to a user: all of them, unless a subclass hides some."""
        del user
        return self.tables

    def check_permission(self, parsed: ParsedRequest, user: str) -> None:
        """Raise ForbiddenError if the user may not make the request; this class allows every request."""

    # Reads.

    def _list(self, parsed: ParsedRequest, view: View) -> Response:
        query, first = parsed.query, 0
        version = query.get("resourceVersion", "")
        documents: list[Document]
        if token := query.get("continue", ""):
            documents, at, first = self._rest(parsed.table, token)
        elif query.get("resourceVersionMatch") == "Exact":
            documents, at = self._at(parsed.table, version), int(version)
        elif not version:
            documents, at = parsed.table.documents(), int(self.storage.version)
        else:
            documents, at = view.documents(parsed.table), view.applied
        picked = [document for document in documents if parsed.picks(document)][first:]
        limit = 0 if version else max(0, int(query.get("limit") or 0))
        page = picked[:limit] if limit else picked
        left = len(picked) - len(page)
        return requests.success(parsed.collection(page, at, f"{at}:{first + limit}" if left else "", left))

    def _rest(self, table: Table, token: str) -> tuple[list[Document], int, int]:
        """Return the objects of a list that is continued, its version, and the number of items in its earlier pages."""
        at, _, first = token.partition(":")
        if not (at.isdecimal() and first.isdecimal()):
            text = "invalid continue token: continue key is not valid"
            raise errors.BadRequestError(text, code=400, reason="BadRequest")
        if (objects := self.history.at(table, int(at))) is None:
            text = "The provided continue parameter is too old to display a consistent list result."
            raise errors.ExpiredError(text, code=410, reason="Expired")
        return _sorted(objects), int(at), int(first)

    def _at(self, table: Table, version: str) -> list[Document]:
        """Return the objects of a kind as they were at ``version``, sorted by namespace and name."""
        if version in ("", "0"):
            raise errors.BadRequestError(
                'resourceVersionMatch: Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"',
                code=400,
                reason="BadRequest",
            )
        if int(version) > int(self.storage.version):
            raise _too_new(int(version), int(self.storage.version))
        objects = self.history.at(table, int(version))
        if objects is None:
            text = f"The provided resource version {version} is too old."
            raise errors.ExpiredError(text, code=410, reason="Expired")
        return _sorted(objects)


def _sorted(objects: Mapping[NamespacedName, Document]) -> list[Document]:
    return [document for _, document in sorted(objects.items())]


async def _reach(parsed: ParsedRequest, view: View) -> None:
    """Wait until the view shows the resourceVersion in a list request; ServerTimeoutError if that takes too long."""
    version = parsed.query.get("resourceVersion", "")
    exact = parsed.query.get("resourceVersionMatch") == "Exact"
    if parsed.verb != "list" or version == "" or exact or parsed.query.get("continue"):
        return
    with anyio.move_on_after(_TOO_NEW):
        while view.applied < int(version):
            await view.change()
    if view.applied < int(version):
        raise _too_new(int(version), view.applied)


def _written(parsed: ParsedRequest, document: Document, *, known: bool) -> Response:
    """Return the response to a write; ``known`` is True if the object existed before the write."""
    if parsed.verb not in ("create", "update", "patch"):
        return requests.success(document)
    created = parsed.verb == "create" or (parsed.verb == "patch" and not known)
    return requests.success(parsed.representation(document), 201 if created else 200)


def _refusal(error: errors.StatusError | ValueError) -> Response:
    if isinstance(error, errors.StatusError):
        return requests.refusal(error)
    return requests.refusal(errors.BadRequestError(str(error), code=400, reason="BadRequest"))


def _too_new(version: int, current: int) -> errors.StatusError:
    text = f"Too large resource version: {version}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    details = {"causes": causes, "retryAfterSeconds": 1}
    return errors.ServerTimeoutError(text, code=504, reason="Timeout", details=details)


def table_key(properties: kinds.KindProperties) -> tuple[str, str, str]:
    """Return the group, the version and the resource of a kind."""
    return properties.resource.group, properties.resource.version, properties.resource.plural
