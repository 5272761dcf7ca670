# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Engine: one kind's store, kept current by reflectors, with handlers that receive each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import TypeVar

import anyio

from controller_runtime import metrics, rest
from controller_runtime.machinery import GVK, NamespacedName, Object, PartialObjectMetadata, Resource
from controller_runtime.machinery import labels as selectors

from . import codec, errors
from .delivery import CachedObject
from .feed import Feed
from .indexers import Indexers
from .options import ByObject, Options
from .outage import Outage
from .processor import Processor
from .reflector import Reflector, Target
from .store import Store
from .unreadable import Unreadable

T = TypeVar("T", bound=Object)


class Engine:
    """The store of a kind, full or metadata only, shared by every class that names the kind."""

    def __init__(self, kind: type[Object], options: Options, outage: Outage) -> None:
        self.kind = kind
        self.gvk: GVK = kind.gvk
        self.metadata_only = issubclass(kind, PartialObjectMetadata)
        self.selection: ByObject = options.for_kind(kind)
        self.store = Store()
        self.outage = outage
        self.unreadable = Unreadable(self.gvk)
        self.skip, self.count_skipped = self.unreadable.skip, self.unreadable.count
        self.scope = anyio.CancelScope()
        self.removed = False
        self._options = options
        self.processor = Processor(kind, self.store, self.unreadable, lambda: self.has_synced)
        self._indexers = Indexers(self.gvk, self.unreadable)
        self._index = self._indexers.values_of
        self._feeds = {namespace: Feed(self, namespace) for namespace in self.selection.namespaces or ("",)}
        self._changed = anyio.Event()

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
                tasks.start_soon(self.processor.deliver_backlog)
                if options.resync_period > 0:
                    tasks.start_soon(self.processor.resync, options.resync_period, options.random)

    def leave(self) -> None:
        """Stop reporting to the shared outage."""
        for feed in self._feeds.values():
            self.outage.leave(feed)

    def end(self) -> None:
        """Stop for good: nothing is reported any more, and tasks that wait for the first list get an error."""
        self.removed = True
        self.leave()
        self.scope.cancel()
        metrics.CACHE_DEGRADED.labels(*self.gvk).set(0)
        self._changed.set()

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

    @property
    def interrupted_since(self) -> float | None:
        """Since when the stored objects may be stale, on the loop's clock; None while every watch is connected."""
        found = [
            feed.interrupted_since for feed in self._feeds.values() if feed.interrupted_since is not None
        ]
        return min(found, default=None)

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

    def is_readable(self, namespace: str) -> bool:
        """Return True if :meth:`readable` would not wait. Raises NamespaceNotCachedError as it does."""
        for feed in self.feeds_of(namespace):  # noqa: SIM110  # without a generator: each read asks
            if not feed.readable:
                return False
        return True

    async def readable(self, namespace: str, timeout: float) -> None:
        """Return when the stored objects of a namespace, or of all, may be read.

        Raises:
            CacheDegradedError: the kind is missing, or it was denied before everything was listed once.
            CacheSyncTimeoutError: that took too long.
            CacheNotStartedError: the informer was removed.
            NamespaceNotCachedError: the namespace is not cached.
        """
        if self.is_readable(namespace):
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
            CacheNotStartedError: the informer was removed before that.
        """
        with anyio.move_on_after(timeout):
            while not all(
                feed.synced or (or_problem and feed.problem is not None) for feed in self.feeds_of(namespace)
            ):
                if self.removed:
                    raise errors.CacheNotStartedError(f"{self.gvk.group_kind}: the informer was removed")
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
            self.processor.ended(ours)
        self.processor.put(key, new, before, initial=initial, listed=listed)

    def remove(self, key: NamespacedName, version: str, final: codec.Entry | None = None) -> None:
        """Drop an object deleted at ``version``, and report its ``final`` state or the last known one."""
        before = self.store.remove(key, version)
        if before is None:
            return
        self.processor.deleted(key, final or before, unknown=final is None)

    def settle(self, version: str, namespace: str) -> None:
        """Forget our writes up to ``version``; objects that they made and the watch never delivered are deleted."""
        for entry in self.store.settle(version, namespace):
            if self.store.observed(entry.key) is None:
                self.processor.ended(entry)

    # Indices.

    def add_index(self, kind: type[T], field: str, extract: Callable[[T], Iterable[str]]) -> None:
        """Index by the values that ``extract`` returns for each object, of class ``kind``.

        Raises:
            ValueError: there is an index of that name, or objects are cached already.
        """
        if len(self.store) or self.has_synced:
            raise ValueError(
                f"{self.gvk.group_kind}: index {field!r} is too late: objects are cached already"
            )
        self._indexers.add(kind, field, extract)
        self.store.add_index(field)

    # Own writes.

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
        self.processor.answered(entry)
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
