# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for caches: they get every change, agree with the server, tell their handlers, and resume their watches.

If the server refuses a watch for a short time, the cache must continue where it stopped; it must not list again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import anyio

from controller_runtime.cache import LazyHandlerFuncs
from controller_runtime.cache.codec import CachedObject
from controller_runtime.cache.informer import SharedInformer
from controller_runtime.cache.reflector import MAX_RESUMES
from controller_runtime.cache.store import Entry
from controller_runtime.fake.tables import Table
from controller_runtime.machinery import LazyObject, NamespacedName
from controller_runtime.rest import Request, Response

from .loop import Process
from .network import Observer
from .server import SimulatedServer

_Versions = dict[NamespacedName, str]
_DENIED: Final = 403
_MEMORY: Final = 300.0
"""Seconds for which requests that resume a watch are remembered.

A cache may list again after ``MAX_RESUMES`` failed attempts. Each remembered request may have been such an attempt,
because a watch that ends after a few seconds counts as failed, too.
"""
_Watch = tuple[Process, str, str]
_State = tuple[str, str]
"""The uid and the resourceVersion of an object."""


def disagreements(server: SimulatedServer, informer: SharedInformer) -> Iterator[str]:
    """Yield a description of each difference between a cache and the server. In a cluster at rest there is none."""
    table = _table_of(server, informer)
    if not informer.has_synced or not is_unselective(informer) or table is None:
        return
    kind, store = informer.gvk.kind, informer.store
    stored = {key: row.document["metadata"]["resourceVersion"] for key, row in table.rows.items()}
    for key, has, entry in _compared(stored, informer):
        if (entry.resource_version if entry is not None else None) != has:
            yield f"a cache differs from the server: {kind} {key.name}"
        elif entry is not None:
            values = informer.index_values(CachedObject(informer.kind, entry))
            for field, indexed in store.values_of(key).items():
                if indexed != values.get(field, ()):
                    yield f"an index is wrong: {kind} {key.name} by {field}"
    for key in sorted(store.unconfirmed_keys()):
        yield f"a cache keeps our own write after the watch has confirmed it: {kind} {key.name}"


def missed(server: SimulatedServer, informer: SharedInformer) -> Iterator[str]:
    """Yield a description of each change that a cache does not have although its watch has got past that version."""
    table, inner = _table_of(server, informer), informer.informers.get("")
    if table is None or inner is None or not inner.synced or inner.is_listing:
        return
    reached = inner.version
    if not is_unselective(informer) or not reached:
        return
    objects = server.history.at(table, int(reached))
    if objects is None:
        return
    versions = {key: document["metadata"]["resourceVersion"] for key, document in objects.items()}
    for key, had, entry in _compared(versions, informer):
        # A list may contain newer states than the version that it names.
        if (entry is None) != (had is None) or (entry and had and int(entry.resource_version) < int(had)):
            yield f"a watch has skipped a change: {informer.gvk.kind} {key.name}"


def is_ghost(informer: SharedInformer, key: NamespacedName) -> bool:
    """Return True if reads return our own write although the watch got past its version without reporting it."""
    inner, write = informer.informers.get(""), informer.store.unconfirmed(key)
    return (
        inner is not None
        and not inner.is_listing
        and write is not None
        and write.entry is not None
        and inner.covers(write.version)
    )


def is_readable(informer: SharedInformer) -> bool:
    """Return True if reads of a cache must succeed, because it was filled and its kind is served."""
    inner = informer.informers.values()
    return bool(inner) and all(namespace.synced and namespace.missing_since is None for namespace in inner)


def held_back(informer: SharedInformer) -> Iterator[tuple[NamespacedName, int]]:
    """Yield the key of the object and the id of each change that is kept from handlers."""
    for key, change in informer.processor.delayed():
        yield key, id(change)


def _compared(
    versions: _Versions, informer: SharedInformer
) -> Iterator[tuple[NamespacedName, str | None, Entry | None]]:
    store = informer.store
    cached = {key: store.observed(key) for key in store.observed_keys()}
    for key in sorted(versions.keys() | cached.keys()):
        yield key, versions.get(key), cached.get(key)


def _table_of(server: SimulatedServer, informer: SharedInformer) -> Table | None:
    return next((table for table in server.tables.values() if table.properties.gvk == informer.gvk), None)


def found(informer: SharedInformer, options: dict[str, Any]) -> Iterator[Entry]:
    """Yield the entries that a list with these options must contain: those that a read finds and the options select."""
    store, now = informer.store, anyio.current_time()
    fields = dict(options.get("fields") or {})
    own = {"metadata.namespace": "namespace", "metadata.name": "name"}
    for key in dict.fromkeys(
        [*store.observed_keys(options.get("namespace") or ""), *store.unconfirmed_keys()]
    ):
        entry = store.get(key, now)
        if entry is None or (options.get("namespace") and key.namespace != options["namespace"]):
            continue
        values = informer.index_values(CachedObject(informer.kind, entry))
        if all(
            getattr(entry, own[name]) == value if name in own else value in values.get(name, ())
            for name, value in fields.items()
        ):
            yield entry


def is_unselective(informer: SharedInformer) -> bool:
    """Return True if a cache holds all objects of its kind, not only a selection."""
    selection = informer.selection
    return not (selection.labels or selection.fields) and not any(selection.namespaces or ())


class Told:
    """A handler of a kind, which checks what the handlers are told.

    They must be told of each state once and in order. A change begins with the state that they were told last. If an
    object is replaced, they are first told of the deletion. An object whose deletion they are told of exists for them.
    """

    def __init__(self, informer: SharedInformer, fail: Callable[[str], None]) -> None:
        """``fail`` is called with the description of a broken rule."""
        self._informer = informer
        self._fail = fail
        self._last: dict[NamespacedName, _State] = {}
        handlers = LazyHandlerFuncs[Any](self._add, self._update, self._delete)
        informer.processor.register(informer.kind, handlers)

    def untold(self) -> Iterator[tuple[NamespacedName, _State | None]]:
        """For each object whose newest state handlers were not told, yield the key and the state.

        The state is None if the object is gone. Handlers are told a little later if our own write of the object is
        unanswered.
        """
        store = self._informer.store
        observed = {key: entry for key in store.observed_keys() if (entry := store.observed(key)) is not None}
        for key in sorted(observed.keys() | self._last.keys()):
            entry = observed.get(key)
            state = None if entry is None else (entry.uid, entry.resource_version)
            if state != self._last.get(key):
                yield key, state

    def _add(self, obj: LazyObject[Any], _initial: bool) -> None:
        if obj.key in self._last:
            self._broken("of a creation twice", obj)
        self._last[obj.key] = _state_of(obj)

    def _update(self, old: LazyObject[Any], new: LazyObject[Any]) -> None:
        if self._last.get(new.key) != _state_of(old):
            self._broken("of a change that does not begin with the last state", new)
        if old.uid != new.uid:
            self._broken("that an object became another one", new)
        self._last[new.key] = _state_of(new)

    def _delete(self, obj: LazyObject[Any], _unknown: bool) -> None:
        last = self._last.pop(obj.key, None)
        if last is None or last[0] != obj.uid:
            self._broken("of the deletion of an object that does not exist for them", obj)

    def _broken(self, what: str, obj: LazyObject[Any]) -> None:
        self._fail(f"handlers are told {what}: {self._informer.gvk.kind} {obj.key.name}")


def _state_of(obj: LazyObject[Any]) -> _State:
    return obj.uid, obj.resource_version


class Resumes(Observer):
    """Follows the watches of all processes; ``fail`` is called with the description of a broken rule."""

    def __init__(self, fail: Callable[[str], None], now: Callable[[], float]) -> None:
        self._fail = fail
        self._now = now
        self._sent: dict[_Watch, list[float]] = {}
        """For each watch, the times of the requests that resumed it at a version."""
        self._refused: set[_Watch] = set()
        """Watches whose last request tried to resume them and was refused."""

    def sends(self, process: Process, request: Request) -> None:
        """Remember a request that resumes a watch. Check that a watch which begins with a list may do so."""
        query, watch, now = dict(request.query), _watch(process, request), self._now()
        if query.get("watch") != "true":
            return
        sent = self._sent[watch] = [at for at in self._sent.get(watch, ()) if at > now - _MEMORY]
        if "sendInitialEvents" not in query:
            sent.append(now)
        elif watch in self._refused and len(sent) < MAX_RESUMES:
            self._fail(f"a watch that was refused begins again with a list: {process.name} {request.path}")
        self._refused.discard(watch)

    def answered(self, process: Process, request: Request, response: Response) -> None:
        """Remember that the server refused to resume a watch."""
        query = dict(request.query)
        if query.get("watch") == "true" and "sendInitialEvents" not in query and response.status == _DENIED:
            self._refused.add(_watch(process, request))


def _watch(process: Process, request: Request) -> _Watch:
    return process, request.path, request.headers.get("Accept", "")
