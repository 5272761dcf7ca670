# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server in memory that is spoken to in bytes, as the real one is: requests come in, answers go out.

Objects are kept by the rules of :mod:`controller_runtime.client.memory`, which the fake client shares. This module adds
the parts of a server above them: paths, discovery, lists with pages, watches with bookmarks and streaming lists,
compaction, replicas that are behind, admission, permissions, kinds that come and go, namespaces that end.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio

from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client import garbage, kinds
from controller_runtime.client.memory import Memory
from controller_runtime.client.tables import Document, Table
from controller_runtime.rest import Request, Response

from . import messages
from .history import Event, History, Replica, Watches
from .messages import Place
from .writes import Writes, completer, empty_namespace

MANAGER: Final = "manager"
"""The user of the managers under test."""
_TOO_NEW: Final = 3.0
"""Seconds for which a replica waits to reach the version that a list names."""


class Server:
    """The objects of a cluster, and the answers to requests about them.

    ``complete`` has, by kind, functions that get each object before it is stored: they set defaults and drop unknown
    fields, and leave a completed object as it is. ``admit`` has, by kind, functions that are called one after the
    other for each write of an object, and ``admit_subresource``, by kind and name, those for its subresources.
    """

    def __init__(self, memory: Memory, rng: random.Random, *, replicas: int = 2) -> None:
        self.memory = memory
        self.tables: dict[tuple[str, str, str], Table] = {}
        self.history = History()
        version = int(memory.version)
        self.replicas = [Replica(self.history, rng, version=version) for _ in range(replicas)]
        self.watches = Watches(self.history, rng)
        self._writes = Writes(memory, self.tables)
        self.admit = self._writes.admit
        self.admit_subresource = self._writes.admit_subresource
        self.complete = self._writes.complete
        self.denied: set[tuple[str, str, str]] = set()
        """User, verb and group resource that are refused with 403."""
        self.missing: set[str] = set()
        """Group resources that managers do not find."""
        self._has_garbage = True
        self._sorted: dict[Table, list[Document]] = {}
        """The objects of kinds that have not changed since, by namespace and name."""
        self._by_owner: dict[Table, dict[str, list[Document]]] = {}
        """The same objects by the uid of their controller."""
        self._by_uid: dict[Table, dict[str, Document]] = {}
        self.history.listeners.append(self._look_for_garbage)
        self._pages: dict[str, tuple[list[Document], int]] = {}
        self.serve(Namespace)

    # Kinds.

    def serve(self, *kinds_: type[Object]) -> None:
        """Serve kinds by their models."""
        for kind in kinds_:
            self._add(kinds.facts_for(kind))

    def serve_crds(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Serve custom kinds as CustomResourceDefinitions describe them, with the defaults of their schemas."""
        for crd in crds:
            for facts, version in zip(kinds.facts_of_crd(crd), crd["spec"]["versions"], strict=True):
                self._add(facts)
                if schema := (version.get("schema") or {}).get("openAPIV3Schema"):
                    self.complete[facts.gvk] = completer(schema)

    def withdraw(self, kind: type[Object]) -> None:
        """Serve a kind no longer: its objects are gone, its watches end."""
        if (table := self.tables.pop(_place_of(kind), None)) is not None:
            self.watches.cut(lambda watch: watch.table is table)

    def table(self, kind: type[Object]) -> Table:
        """Return the objects of a kind."""
        return self.tables[_place_of(kind)]

    def objects(self, kind: type[Object]) -> list[Document]:
        """Return the stored objects of a kind, by namespace and name."""
        table = self.table(kind)
        if (found := self._sorted.get(table)) is None:
            found = self._sorted[table] = [row.document for _, row in sorted(table.rows.items())]
        return found.copy()

    def controlled(self, kind: type[Object], uid: str) -> list[Document]:
        """Return the stored objects of a kind whose controller has a uid, by namespace and name."""
        table = self.table(kind)
        if (index := self._by_owner.get(table)) is None:
            index = self._by_owner[table] = {}
            for document in self.objects(kind):
                for reference in document["metadata"].get("ownerReferences") or ():
                    if reference.get("controller"):
                        index.setdefault(reference["uid"], []).append(document)
                        break
        return index.get(uid, []).copy()

    def with_uid(self, kind: type[Object], uid: str) -> Document | None:
        """Return the stored object of a kind that has a uid, or None."""
        table = self.table(kind)
        if (index := self._by_uid.get(table)) is None:
            documents = (row.document for row in table.rows.values())
            index = self._by_uid[table] = {each["metadata"]["uid"]: each for each in documents}
        return index.get(uid)

    def collect_garbage(self) -> None:
        """Run the garbage collector and the namespace controller until they have nothing left to do."""
        if not self._has_garbage:
            return
        self._has_garbage = False
        for namespace in self.objects(Namespace):
            if namespace["metadata"].get("deletionTimestamp"):
                empty_namespace(self.memory, self.tables, namespace)
        garbage.collect(self.memory, self.tables.values())

    def _look_for_garbage(self, event: Event) -> None:
        """Note that an object ended or is about to, or that its owners changed."""
        for known in (self._sorted, self._by_owner, self._by_uid):
            known.pop(event.table, None)
        metadata = event.document["metadata"]
        before = event.before["metadata"] if event.before is not None else {}
        ends = event.type == "DELETED" or bool(metadata.get("deletionTimestamp"))
        owned = metadata.get("ownerReferences") != before.get("ownerReferences")
        self._has_garbage = self._has_garbage or ends or owned

    # Requests.

    async def handle(self, request: Request, user: str, replica: Replica) -> Response:
        """Return the answer to a request."""
        try:
            return await self._answer(request, user, replica)
        except errors.StatusError as error:
            return messages.refusal(error)
        except ValueError as error:
            bad = errors.BadRequestError(str(error), code=400, reason="BadRequest")
            return messages.refusal(bad)

    def may_wait(self, request: Request) -> bool:
        """Return True if the answer may take time: a list waits for a version, a write for admission."""
        if request.method == "GET":
            names = {name for name, _ in request.query}
            return "resourceVersion" in names and "watch" not in names
        if not (self.admit or self.admit_subresource):
            return False
        gvk, subresource = messages.part_of(request.path, self.tables)
        return gvk is not None and self._writes.waits(gvk, subresource)

    async def _answer(self, request: Request, user: str, replica: Replica) -> Response:
        tables = self._served(user)
        if (found := messages.discovery(request.path, tables)) is not None:
            return messages.success(found)
        place = messages.place_of(request, self.tables)
        if len(tables) < len(self.tables) and place.table not in tables.values():
            raise messages.not_served()
        self._check_permission(place, user)
        match place.verb:
            case "get":
                return messages.success(place.shown(self._find(place).document))
            case "list":
                return await self._list(place, replica)
            case "watch":
                return await self.watches.open(place, replica, self.memory.version)
            case "create":
                return messages.success(place.shown(await self._writes.create(place, user)), 201)
            case "update":
                return messages.success(place.shown(await self._writes.update(place, user)))
            case "patch":
                known = place.key in place.table.rows
                document = await self._writes.patch(place, user)
                return messages.success(place.shown(document), 200 if known else 201)
            case "delete":
                return messages.success(await self._writes.delete(place, user))
            case _:
                return messages.success(self._writes.delete_all(place))

    def _served(self, user: str) -> messages.Tables:
        """Return the kinds that a user finds."""
        if not self.missing or user != MANAGER:
            return self.tables
        return {
            place: table
            for place, table in self.tables.items()
            if table.resource.group_resource not in self.missing
        }

    def _check_permission(self, place: Place, user: str) -> None:
        resource = place.table.resource.group_resource
        if (user, place.verb, resource) in self.denied or (user, "*", resource) in self.denied:
            plural = place.table.resource.plural
            text = f'{resource} is forbidden: User "{user}" cannot {place.verb} resource "{plural}"'
            raise errors.ForbiddenError(text, code=403, reason="Forbidden")

    def _find(self, place: Place) -> Any:
        return place.table.find(place.key)

    # Reads.

    async def _list(self, place: Place, replica: Replica) -> Response:
        query = place.query
        version = query.get("resourceVersion", "")
        if token := query.get("continue", ""):
            return self._page(place, token)
        documents: list[Document]
        if query.get("resourceVersionMatch") == "Exact":
            documents, at = self._at(place.table, version), int(version)
        elif version in ("", None):
            documents = [row.document for _, row in sorted(place.table.rows.items())]
            at = int(self.memory.version)
        else:
            await self._reach(replica, int(version))
            documents, at = replica.documents(place.table), replica.applied
        picked = [each for each in documents if place.picks(each)]
        limit = int(query.get("limit") or 0)
        if limit and not version and len(picked) > limit:
            token = f"{at}-{len(self._pages)}"
            self._pages[token] = (picked, at)
            return self._page(place, f"{token}:0")
        return messages.success(place.collection(picked, at))

    def _page(self, place: Place, token: str) -> Response:
        name, _, start = token.partition(":")
        documents, at = self._pages.get(name, ([], -1))
        if at < self.history.floor:
            text = "The provided continue parameter is too old to display a consistent list result."
            raise errors.ExpiredError(text, code=410, reason="Expired")
        first, limit = int(start), int(place.query.get("limit") or 500)
        page = documents[first : first + limit]
        left = len(documents) - first - len(page)
        return messages.success(
            place.collection(page, at, f"{name}:{first + limit}" if left > 0 else "", left)
        )

    def _at(self, table: Table, version: str) -> list[Document]:
        """Return the objects of a kind at exactly a version, by namespace and name."""
        if version in ("", "0"):
            raise errors.BadRequestError(
                'resourceVersionMatch: Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"',
                code=400,
                reason="BadRequest",
            )
        if int(version) > int(self.memory.version):
            raise _too_new(int(version), int(self.memory.version))
        found = self.history.at(table, int(version))
        if found is None:
            text = f"The provided resource version {version} is too old."
            raise errors.ExpiredError(text, code=410, reason="Expired")
        return [document for _, document in sorted(found.items())]

    async def _reach(self, replica: Replica, version: int) -> None:
        """Wait until a replica knows of a version."""
        with anyio.move_on_after(_TOO_NEW):
            while replica.applied < version:
                await replica.change()
        if replica.applied < version:
            raise _too_new(version, replica.applied)

    def _add(self, facts: kinds.Facts) -> None:
        place = (facts.resource.group, facts.resource.version, facts.resource.plural)
        if place not in self.tables:
            table = self.tables[place] = Table(facts)
            self.history.follow(table)


@functools.lru_cache(maxsize=256)
def _place_of(kind: type[Object]) -> tuple[str, str, str]:
    """Return the group, the version and the resource of a kind."""
    resource = kinds.facts_for(kind).resource
    return resource.group, resource.version, resource.plural


def _too_new(version: int, current: int) -> errors.StatusError:
    text = f"Too large resource version: {version}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    details = {"causes": causes, "retryAfterSeconds": 1}
    return errors.ServerTimeoutError(text, code=504, reason="Timeout", details=details)
