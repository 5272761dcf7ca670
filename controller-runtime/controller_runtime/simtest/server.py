# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The API servers of a simulated cluster: replicas that lag behind, permissions, missing kinds, garbage collection."""

from __future__ import annotations

import functools
import random
from typing import Final

from controller_runtime import fake
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.fake import garbage, kinds, requests
from controller_runtime.fake.requests import ParsedRequest
from controller_runtime.fake.server import table_key
from controller_runtime.fake.storage import Storage
from controller_runtime.fake.tables import Document, Table
from controller_runtime.fake.watches import Event, History
from controller_runtime.machinery import Object, errors
from controller_runtime.rest import Request

from .replicas import BreakableWatches, Replica

MANAGER: Final = "manager"
"""The user of the managers under test."""


class SimulatedServer(fake.Server):
    """The API server of a simulated cluster, with several replicas."""

    watches: BreakableWatches

    def __init__(self, storage: Storage, rng: random.Random, *, replicas: int = 2) -> None:
        history = History()
        version = int(storage.version)
        self.replicas = [Replica(history, rng, version=version) for _ in range(replicas)]
        super().__init__(storage, history, BreakableWatches(history, rng), check_namespaces=True)
        self.denied: set[tuple[str, str, str]] = set()
        """Requests that are refused with 403, as (user, verb, ``RESOURCE.GROUP``); ``*`` stands for all verbs."""
        self.missing: set[str] = set()
        """Resources that are not served to managers, as ``RESOURCE.GROUP``."""
        self._has_garbage = True
        self._sorted: dict[Table, list[Document]] = {}
        """For each kind, its objects sorted by namespace and name. The list is dropped when one of the objects
        changes."""
        self._by_owner: dict[Table, dict[str, list[Document]]] = {}
        """For each kind, its objects by the uid of their controlling owner, sorted in the same way."""
        self._by_uid: dict[Table, dict[str, Document]] = {}
        self.history.listeners.append(self._look_for_garbage)
        self.serve(Namespace)

    def table(self, kind: type[Object]) -> Table:
        """Return the objects of a kind."""
        return self.tables[_table_key(kind)]

    def objects(self, kind: type[Object]) -> list[Document]:
        """Return the stored objects of a kind, sorted by namespace and name."""
        table = self.table(kind)
        if (documents := self._sorted.get(table)) is None:
            documents = self._sorted[table] = table.documents()
        return documents.copy()

    def controlled(self, kind: type[Object], uid: str) -> list[Document]:
        """Return the stored objects of a kind whose controlling owner has this uid, sorted by namespace and name."""
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
        """Return the stored object with this uid, or None if no object of the kind has it."""
        table = self.table(kind)
        if (index := self._by_uid.get(table)) is None:
            documents = (row.document for row in table.rows.values())
            index = self._by_uid[table] = {document["metadata"]["uid"]: document for document in documents}
        return index.get(uid)

    def collect_garbage(self) -> None:
        """Run the garbage collector and the namespace controller until they have nothing left to do."""
        if not self._has_garbage:
            return
        self._has_garbage = False
        for namespace in self.objects(Namespace):
            if namespace["metadata"].get("deletionTimestamp"):
                garbage.empty_namespace(self.storage, self.tables, namespace)
        garbage.collect(self.storage, self.tables.values())

    def _look_for_garbage(self, event: Event) -> None:
        """Run the garbage collector later if a change may give it work: a deletion, or a change of owners."""
        for known in (self._sorted, self._by_owner, self._by_uid):
            known.pop(event.table, None)
        metadata = event.document["metadata"]
        before = event.before["metadata"] if event.before is not None else {}
        ends = event.type == "DELETED" or bool(metadata.get("deletionTimestamp"))
        owned = metadata.get("ownerReferences") != before.get("ownerReferences")
        self._has_garbage = self._has_garbage or ends or owned

    def may_wait(self, request: Request) -> bool:
        """Return True if the answer may have to wait: a list for a resourceVersion, a write for its reviewers."""
        if request.method == "GET":
            names = {name for name, _ in request.query}
            return "resourceVersion" in names and "watch" not in names
        if not (self.admit or self.admit_subresource):
            return False
        gvk, subresource = requests.part_of(request.path, self.tables)
        return gvk is not None and bool(self.writes.reviewers(gvk, subresource))

    def served_to(self, user: str) -> requests.Tables:
        """Return the tables of the kinds that are served to a user. Managers do not get the kinds in ``missing``."""
        if not self.missing or user != MANAGER:
            return self.tables
        return {
            key: table
            for key, table in self.tables.items()
            if table.resource.group_resource not in self.missing
        }

    def check_permission(self, parsed: ParsedRequest, user: str) -> None:
        """Raise ForbiddenError if the user may not make the request."""
        resource = parsed.table.resource.group_resource
        if (user, parsed.verb, resource) in self.denied or (user, "*", resource) in self.denied:
            plural = parsed.table.resource.plural
            text = f'{resource} is forbidden: User "{user}" cannot {parsed.verb} resource "{plural}"'
            raise errors.ForbiddenError(text, code=403, reason="Forbidden")


@functools.lru_cache(maxsize=256)
def _table_key(kind: type[Object]) -> tuple[str, str, str]:
    return table_key(kinds.properties_of(kind))
