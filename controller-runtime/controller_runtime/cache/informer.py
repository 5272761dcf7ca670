# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Informer: one kind's store, kept current by reflectors, with handlers that receive each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.lowlevel

from controller_runtime import log, metrics, rest
from controller_runtime.apis.machinery import labels as selectors
from controller_runtime.apis.machinery.gvk import GVK, NamespacedName, Resource
from controller_runtime.apis.machinery.object import Object, PartialObjectMetadata

from . import codec, errors
from .delivery import CachedObject, EventHandlerFuncs, LazyHandlerFuncs, Registration
from .echoes import Echoes
from .feed import Feed
from .options import ByObject, Options
from .outage import Outage
from .reflector import STEP, Reflector, Target
from .store import Store

T = TypeVar("T", bound=Object)
Args = TypeVarTuple("Args")
_log = log.logger_from("cache")
MAX_REPORTED: Final = 1024
"""Undecodable objects of a kind whose last report is remembered, so that it is not repeated."""


class Engine:
    """The store of a kind, full or metadata only, shared by every class that names the kind."""

    def __init__(self, kind: type[Object], options: Options, outage: Outage) -> None:
        self.kind = kind
        self.gvk: GVK = kind.gvk
        self.metadata_only = issubclass(kind, PartialObjectMetadata)
        self.selection: ByObject = options.for_kind(kind)
        self.store = Store()
        self.outage = outage
        self.skipped = 0
        self._reported: dict[NamespacedName, str] = {}
        self.scope = anyio.CancelScope()
        self._options = options
        self._indexers: dict[str, tuple[type[Object], Callable[[Any], Iterable[str]]]] = {}
        self._registrations: list[Registration] = []
        self._feeds = {namespace: Feed(self, namespace) for namespace in self.selection.namespaces or ("",)}
        self._changed = anyio.Event()
        self._backlog = anyio.Event()
        self._echoes = Echoes()

    # Lifecycle.

    async def run(self, transport: rest.RoundTripper, resource: Callable[[], Awaitable[Resource]]) -> None:
        """List, watch and notify handlers until cancelled or :attr:`scope` is."""
        options, selection = self._options, self.selection
        with self.scope:
            async with anyio.create_task_group() as tasks:
                for namespace, feed in self._feeds.items():
                    picked = selection.within(namespace)
                    target = Target(
                        namespace=namespace,
                        labels=picked.labels,
                        fields=picked.fields,
                        metadata_only=self.metadata_only,
                        transform=selection.transform,
                        limits=selection.limits or options.limits,
                        page_size=options.page_size,
                    )
                    reflector = Reflector(
                        transport,
                        partial(self._resource_for, feed, resource),
                        target,
                        feed,
                        stream_lists=options.stream_lists,
                        random=options.random,
                    )
                    tasks.start_soon(reflector.run)
                tasks.start_soon(self._deliver_backlog)
                if options.resync_period > 0:
                    tasks.start_soon(self._resync)

    def leave(self) -> None:
        """Stop reporting to the shared outage."""
        for feed in self._feeds.values():
            self.outage.leave(feed)

    async def _resource_for(self, feed: Feed, resource: Callable[[], Awaitable[Resource]]) -> Resource:
        """Return where to list the objects of ``feed``; a single feed follows a kind without namespaces."""
        found = await resource()
        if not found.namespaced and "" not in self._feeds:
            feed.widen()
            self.leave()
            self._feeds = {"": feed}
            self.outage.join(feed)
            self.changed()
        if feed not in self._feeds.values():
            await anyio.sleep_forever()
        return found

    @property
    def has_synced(self) -> bool:
        """Whether every existing object was reported once."""
        return all(feed.synced for feed in self._feeds.values())

    @property
    def problem(self) -> str | None:
        """Why the server refuses this kind, while it does."""
        return next((feed.problem for feed in self._feeds.values() if feed.problem is not None), None)

    def changed(self) -> None:
        """Wake the tasks that wait for ``has_synced`` or ``problem``."""
        metrics.CACHE_DEGRADED.labels(*self.gvk).set(0 if self.problem is None else 1)
        self._changed.set()
        self._changed = anyio.Event()

    def feeds_of(self, namespace: str) -> Collection[Feed]:
        """Return the feeds that know the objects of a namespace, or of all that are cached.

        Raises:
            NamespaceNotCachedError: no feed covers the namespace.
        """
        if not namespace:
            return self._feeds.values()
        feed = self._feeds.get("") or self._feeds.get(namespace)
        if feed is None:
            raise errors.NamespaceNotCachedError(self.gvk, namespace)
        return (feed,)

    async def readable(self, namespace: str, timeout: float) -> None:
        """Return when the stored objects of a namespace, or of all, may be read.

        Raises:
            CacheDegradedError: the kind is missing, or it was denied before everything was listed once.
            CacheSyncTimeoutError: that took too long.
            NamespaceNotCachedError: the namespace is not cached.
        """
        if all(feed.readable for feed in self.feeds_of(namespace)):
            return
        await self.wait_for_sync(timeout, or_problem=True, namespace=namespace)
        for feed in self.feeds_of(namespace):
            if not feed.readable and feed.problem is not None:
                raise errors.CacheDegradedError(self.gvk, feed.problem)

    async def wait_for_sync(
        self, timeout: float | None = None, *, or_problem: bool = False, namespace: str = ""
    ) -> None:
        """Return when every existing object was reported once, or with ``or_problem`` when the kind is refused.

        Raises:
            CacheSyncTimeoutError: that took too long.
        """
        with anyio.move_on_after(timeout):
            while not all(
                feed.synced or (or_problem and feed.problem is not None) for feed in self.feeds_of(namespace)
            ):
                await self._changed.wait()
            return
        feeds = self.feeds_of(namespace)
        why = next((feed.problem or str(feed.last_error) for feed in feeds if feed.last_error), "")
        reason = f": {why}" if why else ""
        raise errors.CacheSyncTimeoutError(f"{self.gvk.group_kind}: no list within {timeout:g} s{reason}")

    # Changes.

    def put(self, entry: codec.Entry, *, initial: bool, listed: bool = False) -> None:
        """Store an object and notify the handlers, unless it is unchanged."""
        key = entry.key
        observed = self.store.observed(key)
        if (
            observed is not None
            and observed.resource_version == entry.resource_version
            and observed.uid == entry.uid
        ):
            return
        if observed is not None and observed.uid != entry.uid:
            # Deleted and created again between two observations: report the deletion of the old object.
            self.remove(key, entry.resource_version)
        ours, written = self.store.written(key), self.store.wrote(entry)
        # A list shows the last of several changes: with ours it may bring another writer's, of which no event follows.
        new = CachedObject(self.kind, entry)
        new.own_write = written is not None and not listed
        if entry.refused and (observed is None or observed.uid != entry.uid or not observed.refused):
            self.skip(errors.UndecodableObjectError(self.gvk, key, entry.refused))
        before = self.store.put(entry, self._index(new) if written is None else written)
        if before is None and ours is not None and ours.uid != entry.uid and not self.store.written(key):
            self._report_ended(ours)
        if self._registrations:
            old = CachedObject(self.kind, before) if before is not None else None
            self._echoes.deliver(key, None if listed else new, partial(self._notify_put, new, old, initial))

    def remove(self, key: NamespacedName, version: str, final: codec.Entry | None = None) -> None:
        """Drop an object deleted at ``version``, and report its ``final`` state or the last known one."""
        before = self.store.remove(key, version)
        if before is None:
            return
        last = CachedObject(self.kind, final or before)
        self._echoes.deliver(key, None, partial(self._notify_deleted, last, final is None))

    def settle(self, version: str, namespace: str) -> None:
        """Forget our writes up to ``version``; objects that they made and the watch never delivered are deleted."""
        for entry in self.store.settle(version, namespace):
            if self.store.observed(entry.key) is None:
                self._report_ended(entry)

    def _report_ended(self, entry: codec.Entry) -> None:
        """Report the end of an object that readers saw because we wrote it, and that the watch never delivered."""
        made, ended = CachedObject(self.kind, entry), CachedObject(self.kind, entry)
        made.own_write = True
        self._echoes.deliver(entry.key, None, partial(self._notify_put, made, None, False))
        self._echoes.deliver(entry.key, None, partial(self._notify_deleted, ended, True))

    def _notify_put(self, new: CachedObject[Object], old: CachedObject[Object] | None, initial: bool) -> None:
        for registration in tuple(self._registrations):
            self._guard(registration.on_put, new, old, initial)

    def _notify_deleted(self, last: CachedObject[Object], unknown: bool) -> None:
        for registration in tuple(self._registrations):
            self._guard(registration.on_gone, last, unknown)

    def skip(self, error: errors.CacheError) -> None:
        """Count and report an object that cannot be read; the others go on."""
        self.count_skipped()
        if isinstance(error, errors.UndecodableObjectError) and not self._is_news(error.key, str(error)):
            return
        _log.warning("Object skipped", kind=str(self.gvk.group_kind), reason=str(error))

    def _is_news(self, key: NamespacedName, reason: str) -> bool:
        """Return True if this was not the last report about the object: every read of it fails in the same way."""
        news = self._reported.pop(key, None) != reason
        self._reported[key] = reason
        if len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        return news

    def count_skipped(self) -> None:
        """Count an object that cannot be read; the reader reports it."""
        self.skipped += 1
        metrics.CACHE_SKIPPED_OBJECTS.labels(*self.gvk).inc()

    def _guard(self, notify: Callable[[Unpack[Args]], None], *args: *Args) -> None:
        try:
            notify(*args)
        except errors.UndecodableObjectError as error:
            self.skip(error)
        except Exception as error:  # a failed handler must not stop others or the watch
            _log.error("Handler failed", kind=str(self.gvk.group_kind), error=error)

    # Indices.

    def add_index(self, kind: type[T], field: str, extract: Callable[[T], Iterable[str]]) -> None:
        """Index by the values that ``extract`` returns for each object, of class ``kind``."""
        if field in self._indexers:
            raise ValueError(f"{self.gvk.group_kind}: an index with name {field!r} is registered already")
        if len(self.store) or self.has_synced:
            raise ValueError(
                f"{self.gvk.group_kind}: index {field!r} is too late: objects are cached already"
            )
        self._indexers[field] = (kind, extract)
        self.store.add_index(field)

    def _index(self, obj: CachedObject[Object]) -> Mapping[str, tuple[str, ...]]:
        values: dict[str, tuple[str, ...]] = {}
        if obj.entry.refused:
            return values
        for field, (kind, extract) in self._indexers.items():
            try:
                values[field] = tuple(dict.fromkeys(extract(obj.seen_as(kind).object)))
            except errors.UndecodableObjectError as error:
                self.skip(error)
            except Exception as error:  # the caller's code: its failure on one object must not end the watch
                reason = f"index {field!r}: {type(error).__name__}: {error}"
                self.skip(errors.UndecodableObjectError(self.gvk, obj.key, reason))
        return values

    # Own writes.

    def writing(self, key: NamespacedName) -> AbstractContextManager[None]:
        """Report changes of ``key`` when the body is done: by then our own writes are known."""
        return self._echoes.writing(key)

    def remember(self, text: bytes, obj: Object | None, now: float) -> None:
        """Read an object, by the text the server returned, until the watch has caught up; ``obj`` if it is decoded."""
        transform = self.selection.transform
        try:
            text = codec.outline(text) if self.metadata_only else text
            entry = codec.entry_of(text, transform, self.selection.limits or self._options.limits)
        except errors.BadObjectError:
            return  # undecodable; a reader of the response gets the error
        if not entry.resource_version:
            return
        self._echoes.answered(entry.key, entry.uid, entry.resource_version)
        if entry.ended:
            self.store.remember(entry, {}, now)
        elif self._selects(entry):
            known = None if transform is not None else obj
            made = CachedObject(self.kind if known is None else type(known), entry, known)
            self.store.remember(entry, self._index(made), now)

    def _selects(self, entry: codec.Entry) -> bool:
        """Return True if the watch is going to deliver ``entry``."""
        feed = self._feeds.get(entry.namespace) or self._feeds.get("")
        if feed is None or feed.covers(entry.resource_version):
            return False
        here = self.selection.within(entry.namespace)
        if here.labels and not selectors.selector(here.labels).matches(entry.labels):
            return False
        # Only the server evaluates a field selector; an object that matched before is expected to match again.
        return not here.fields or self.store.observed(entry.key) is not None

    # Handlers.

    def register(self, kind: type[T], handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report every existing object, and every change, to ``handler``."""
        self._echoes.release_all()  # the new handler must not receive stored objects twice
        registration = Registration(kind, handler, self._unregister)
        registration.bind(lambda: self.has_synced)
        registration.backlog = dict.fromkeys(self.store.observed_keys(), True)
        self._registrations.append(registration)
        self._backlog.set()
        return registration

    def _unregister(self, registration: Registration) -> None:
        if registration in self._registrations:
            self._registrations.remove(registration)
        registration.backlog.clear()

    async def _deliver_backlog(self) -> None:
        while True:
            await self._backlog.wait()
            self._backlog = anyio.Event()
            for registration in tuple(self._registrations):
                await self._work_off(registration)

    async def _work_off(self, registration: Registration) -> None:
        number = 0
        while registration.backlog:
            # Iterate over a copy: taking the first key each time would walk past all deleted slots of the dict.
            for key in tuple(registration.backlog):
                self._echoes.release(key)
                if (adding := registration.backlog.get(key)) is None:
                    continue
                if (entry := self.store.observed(key)) is not None:
                    obj = CachedObject(self.kind, entry)
                    self._guard(registration.on_put, obj, None if adding else obj, True)
                registration.backlog.pop(key, None)
                number += 1
                if number % STEP == 0:
                    await anyio.lowlevel.checkpoint()

    async def _resync(self) -> None:
        period = self._options.resync_period
        while True:
            await anyio.sleep(period * (0.9 + 0.2 * self._options.random()))
            for registration in self._registrations:
                for key in self.store.observed_keys():
                    registration.backlog.setdefault(key, False)
            self._backlog.set()


class Informer(Generic[T]):
    """One kind in a cache, seen as one class."""

    def __init__(self, kind: type[T], engine: Engine) -> None:
        self.kind = kind
        self.engine = engine

    @property
    def has_synced(self) -> bool:
        """Whether every existing object has been listed, and handlers notified."""
        return self.engine.has_synced

    @property
    def problem(self) -> str | None:
        """Why the server refuses this kind, while it does; the cache keeps retrying."""
        return self.engine.problem

    @property
    def skipped(self) -> int:
        """How many objects could not be read."""
        return self.engine.skipped

    def keys(self, namespace: str = "") -> Iterator[NamespacedName]:
        """Yield the keys that the watch has reported, in one namespace or all; nothing is decoded for that."""
        return self.engine.store.observed_keys(namespace)

    def add_event_handler(self, handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report every existing object to ``handler``, then changes, in order."""
        return self.engine.register(self.kind, handler)

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        """Return when every existing object has been listed, or with ``or_problem`` when the kind is refused.

        Raises:
            CacheSyncTimeoutError: that took too long; without ``or_problem`` a refused kind is waited for, too.
        """
        await self.engine.wait_for_sync(timeout, or_problem=or_problem)
