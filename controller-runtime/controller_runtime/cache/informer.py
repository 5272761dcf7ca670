# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Informers: for each kind, a store that reflectors keep current, and handlers that receive each change.

All full classes of a kind use one :class:`SharedInformer`, and all metadata-only classes use another one. A shared
informer has a :class:`NamespaceInformer` for each namespace that it follows, or one for all namespaces. Callers get an
:class:`Informer`, which gives access to a shared informer with objects of one class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import log, metrics, offload, rest
from controller_runtime.machinery import (
    GVK,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    Resource,
    arguments,
    raised,
)
from controller_runtime.machinery import labels as selectors
from controller_runtime.machinery.errors import NotFoundError

from . import codec, errors
from .codec import CachedObject
from .handlers import EventHandlerFuncs, LazyHandlerFuncs, Processor, Registration, UnreadableLog
from .options import ByObject, Options
from .reflector import Reflector, Target
from .store import Entry, IndexValues, Store, older

if TYPE_CHECKING:
    from .cache import Outage

T = TypeVar("T", bound=Object)
_Indexer = tuple[type[Object], Callable[[Any], Iterable[str]], type[msgspec.Struct] | None]
"""The class of the objects that a function gets, the function, and the ``reads`` of the index."""

MISSING_GRACE: Final = 60.0
"""Seconds for which a kind stays readable after the server stopped serving it."""
FAILING_GRACE: Final = 30.0
"""A kind is degraded if its lists or watches have failed for this many seconds while the server was available."""

_log = log.logger_from("cache")


class Informer(Generic[T]):
    """Gives access to one kind in a cache, with objects of one class."""

    def __init__(self, kind: type[T], shared: SharedInformer) -> None:
        self.kind = kind
        self.shared = shared

    @property
    def has_synced(self) -> bool:
        """True if every existing object has been listed and stored."""
        return self.shared.has_synced

    @property
    def problem(self) -> str | None:
        """Why the server refuses this kind, or why its list or watch keeps failing; otherwise None.

        The cache keeps retrying.
        """
        return self.shared.problem

    @property
    def skipped(self) -> int:
        """How often an object could not be read. The same object may be counted several times."""
        return self.shared.unreadable.skipped

    def keys(self, namespace: str = "") -> Iterator[NamespacedName]:
        """Yield the keys that the watch has reported, in one namespace or all, without decoding objects."""
        return self.shared.store.observed_keys(namespace if self.shared.store.namespaced else "")

    def has(self, key: NamespacedName) -> bool:
        """Return True if the watch has reported an object with this key, without decoding it."""
        store = self.shared.store
        return store.observed(key if store.namespaced else NamespacedName("", key.name)) is not None

    def add_event_handler(self, handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report every existing object to ``handler`` in the background, and changes in order as they arrive."""
        return self.shared.processor.register(self.kind, handler)

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        """Return when every existing object has been listed; with ``or_problem``, also when there is a :attr:`problem`.

        Raises:
            CacheSyncTimeoutError: ``timeout`` seconds have passed.
            CacheNotStartedError: the informer was removed meanwhile.
        """
        await self.shared.wait_for_sync(timeout, or_problem=or_problem)


class SharedInformer:
    """The store, the reflectors and the handlers of a kind, either for full objects or for metadata only."""

    def __init__(self, kind: type[Object], options: Options, outage: Outage) -> None:
        self.kind = kind
        self.gvk: GVK = kind.gvk
        self.metadata_only = issubclass(kind, PartialObjectMetadata)
        self.selection: ByObject = options.for_kind(kind)
        self.store = Store(namespaced=kind.resource is None or kind.resource.namespaced)
        self.outage = outage
        self.unreadable = UnreadableLog(self.gvk)
        self.scope = anyio.CancelScope()
        self.removed = False
        self._options = options
        self.processor = Processor(kind, self.store, self.unreadable, lambda: self.has_synced)
        self._indexers: dict[str, _Indexer] = {}
        """The indexers, by the name of their index."""
        self.informers = {
            namespace: NamespaceInformer(self, namespace) for namespace in self.selection.namespaces or ("",)
        }
        """The informers, by their namespaces; the namespace of an informer of all namespaces is empty."""
        self._changed = anyio.Event()

    # Lifecycle.

    async def run(self, transport: rest.RoundTripper, resource: Callable[[], Awaitable[Resource]]) -> None:
        """List, watch and notify handlers until this call or :attr:`scope` is cancelled."""
        options, selection = self._options, self.selection
        with self.scope:
            async with anyio.create_task_group() as tasks:
                for namespace, informer in self.informers.items():
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
                        partial(self._resource_for, informer, resource),
                        target,
                        informer,
                        stream_lists=options.stream_lists,
                        random=options.random,
                    )
                    tasks.start_soon(reflector.run)
                tasks.start_soon(self.processor.deliver_backlog)
                if options.resync_period > 0:
                    tasks.start_soon(self.processor.resync, options.resync_period, options.random)

    def leave(self) -> None:
        """Stop counting the watches of this kind in the shared :class:`Outage` and in the metrics."""
        for informer in self.informers.values():
            self.outage.remove(informer)
        metrics.CACHE_DEGRADED.labels(*self.gvk).set(0)

    def end(self) -> None:
        """Stop for good: report no more events, and raise an error in tasks that wait for the first list."""
        self.removed = True
        self.leave()
        self.scope.cancel()
        self.processor.unregister_all()
        self._changed.set()

    async def _resource_for(
        self, informer: NamespaceInformer, resource: Callable[[], Awaitable[Resource]]
    ) -> Resource:
        """Return where to list the objects of ``informer``.

        If the kind is cluster-scoped, it needs only one informer. For all other informers, this call never returns.
        """
        served = await resource()
        self.store.namespaced = served.namespaced
        if not served.namespaced and "" not in self.informers:
            informer.widen()
            self.leave()
            self.informers = {"": informer}
            self.outage.add(informer)
            self.changed()
        if informer not in self.informers.values():
            await anyio.sleep_forever()
        return served

    @property
    def has_synced(self) -> bool:
        """True if every existing object has been listed and stored."""
        return all(informer.synced for informer in self.informers.values())

    @property
    def problem(self) -> str | None:
        """Why the server refuses this kind, or why its list or watch keeps failing; otherwise None."""
        return next(
            (informer.problem for informer in self.informers.values() if informer.problem is not None), None
        )

    @property
    def interrupted_since(self) -> float | None:
        """The time from which objects may be stale, on the event loop's clock; None while no list or watch fails."""
        times = [
            informer.interrupted_since
            for informer in self.informers.values()
            if informer.interrupted_since is not None
        ]
        return min(times, default=None)

    def changed(self) -> None:
        """Wake the tasks that wait for ``has_synced`` or ``problem``."""
        metrics.CACHE_DEGRADED.labels(*self.gvk).set(0 if self.problem is None else 1)
        self._changed.set()
        self._changed = anyio.Event()

    def _informers_in(self, namespace: str) -> Collection[NamespaceInformer]:
        """Return the informers that follow a namespace, or all informers if ``namespace`` is empty.

        Raises:
            NamespaceNotCachedError: no informer covers the namespace.
        """
        if not namespace or not self.store.namespaced:
            return self.informers.values()
        informer = self.informers.get("") or self.informers.get(namespace)
        if informer is None:
            raise errors.NamespaceNotCachedError(self.gvk, namespace)
        return (informer,)

    def is_readable(self, namespace: str) -> bool:
        """Return True if :meth:`readable` would return at once. Raises NamespaceNotCachedError, too."""
        whole = self.informers.get("")
        if whole is not None and namespace and whole.synced and whole.missing_since is None:
            return True  # the usual case: each read asks
        return all(informer.readable for informer in self._informers_in(namespace))

    async def readable(self, namespace: str, timeout: float) -> None:
        """Return when the stored objects of ``namespace`` may be read; an empty namespace means all namespaces.

        Raises:
            CacheDegradedError: the server does not serve the kind; or the first list is not complete, because the
                server denies access or keeps failing.
            CacheSyncTimeoutError: ``timeout`` seconds have passed.
            CacheNotStartedError: the informer was removed.
            NamespaceNotCachedError: the namespace is not cached.
        """
        await self.wait_for_sync(timeout, or_problem=True, namespace=namespace)
        for informer in self._informers_in(namespace):
            if not informer.readable and informer.problem is not None:
                raise errors.CacheDegradedError(self.gvk, informer.problem)

    async def wait_for_sync(
        self, timeout: float | None = None, *, or_problem: bool = False, namespace: str = ""
    ) -> None:
        """Return when every existing object of the namespace was reported once: see :meth:`Informer.wait_for_sync`."""
        with anyio.move_on_after(timeout):
            while not all(
                informer.synced or (or_problem and informer.problem is not None)
                for informer in self._informers_in(namespace)
            ):
                if self.removed:
                    raise errors.CacheNotStartedError(f"{self.gvk.group_kind}: the informer was removed")
                await self._changed.wait()
            return
        informers = self._informers_in(namespace)
        why = next(
            (informer.problem or str(informer.last_error) for informer in informers if informer.last_error),
            "",
        )
        reason = f": {why}" if why else ""
        raise errors.CacheSyncTimeoutError(f"{self.gvk.group_kind}: no list within {timeout:g} s{reason}")

    # Changes.

    def put(self, entry: Entry, *, initial: bool, listed: bool = False) -> None:
        """Store an object and notify the handlers, unless the object is unchanged."""
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
        ours, values = self.store.unconfirmed(key), None
        if ours is not None and ours.version == entry.resource_version and ours.uid == entry.uid:
            values = ours.values if ours.entry is not None else None
        # A list shows the result of several changes: besides our change it may contain one of another writer, for which
        # no event follows. Our deletion of an object with finalizers only begins its end, so it is not a write to skip.
        was_deleting = observed is not None and observed.uid == entry.uid and observed.deleting
        may_be_own = not listed and (was_deleting or not entry.deleting)
        new = CachedObject(self.kind, entry)
        new.own_write = values is not None and may_be_own
        if entry.too_large_reason and (
            observed is None or observed.uid != entry.uid or not observed.too_large_reason
        ):
            self.unreadable.report(errors.UndecodableObjectError(self.gvk, key, entry.too_large_reason))
        if values is None:
            values = self.index_values(new) if self._indexers else {}
        before = self.store.put(entry, values, key)
        if before is None and ours is not None and ours.entry is not None and ours.uid != entry.uid:
            left = self.store.unconfirmed(key)
            if left is None or left.entry is None:
                self.processor.created_and_deleted(ours.entry)
        self.processor.distribute(key, new, before, initial=initial, may_be_own=may_be_own)

    def remove(self, key: NamespacedName, version: str, final: Entry | None = None) -> None:
        """Drop an object that was deleted at ``version``, and report the deletion with the ``final`` state.

        If ``final`` is None, report the last known state instead.
        """
        before = self.store.remove(key, version)
        if before is None:
            return
        self.processor.deleted(key, final or before, unknown=final is None)

    def confirm(self, version: str, namespace: str) -> None:
        """Forget our writes up to ``version``, because the watch has reached this version.

        If the watch never delivered an object that we wrote, the object was deleted meanwhile: report its creation and
        its deletion.
        """
        for entry in self.store.confirm(version, namespace):
            if self.store.observed(entry.key) is None:
                self.processor.created_and_deleted(entry)

    # Indices.

    def add_index(
        self,
        kind: type[T],
        field: str,
        extract: Callable[[T], Iterable[str]],
        view: type[msgspec.Struct] | None = None,
    ) -> None:
        """Add an index, with ``view`` as the ``reads`` of :meth:`.Cache.index_field`. Raises like that method."""
        if len(self.store) or self.has_synced:
            raise ValueError(
                f"{self.gvk.group_kind}: index {field!r} is too late: objects are cached already"
            )
        arguments.must_be_plain(extract)
        arguments.must_take(extract, "obj")
        if field in self._indexers:
            raise ValueError(f"{self.gvk.group_kind}: an index with name {field!r} is registered already")
        self._indexers[field] = (kind, extract, view)
        self.store.add_index(field)

    def index_values(self, obj: CachedObject[Object]) -> IndexValues:
        """Return the values of an object for each index. If the function of an index fails, the index is left out."""
        values: dict[str, tuple[str, ...]] = {}
        if obj.entry.too_large_reason:
            return values
        for field, (kind, extract, view) in self._indexers.items():
            try:
                given = (obj.view(view) if view is not None else None) or obj.as_kind(kind).object
                texts = extract(given)
                if isinstance(texts, str):
                    raise TypeError(f"the function returns the text {log.cut(texts)!r}, not a list of texts")
                values[field] = tuple(dict.fromkeys(texts))
            except errors.UndecodableObjectError as error:
                self.unreadable.report(error)
            except raised.FAILURES as error:
                # This is the caller's code: if it fails on one object, the watch must not end.
                reason = f"index {field!r}: {raised.name(error)}: {raised.text(error)}"
                self.unreadable.report(errors.UndecodableObjectError(self.gvk, obj.key, reason))
        return values

    # Our own writes.

    def remember_write(self, text: bytes, obj: Object | None, now: float) -> None:
        """Make reads return the object in ``text``, the response to our write.

        This ends when the watch reports the same or a newer state. ``obj`` is the decoded object, if the caller has it.
        An object that our write took out of the selection is not read any more.
        """
        transform = self.selection.transform
        try:
            text = codec.outline(text) if self.metadata_only else text
            entry = codec.entry_of(text, transform, self.selection.limits or self._options.limits)
        except errors.BadObjectError:
            return  # undecodable; the caller gets the error when it reads the response
        if not entry.resource_version:
            return
        self.processor.answered(entry)
        if entry.ended:
            self.store.remember_write(entry, {}, now)
            return
        informer = self.informers.get(entry.namespace) or self.informers.get("")
        if informer is None or informer.covers(entry.resource_version):
            return
        here = self.selection.within(entry.namespace)
        labels = entry.labels if transform is None else codec.labels_of(text)  # the server's labels select
        if here.labels and not selectors.selector(here.labels).matches(labels):
            self.store.remember_delete(entry.key, entry.uid, now, version=entry.resource_version)
        elif not here.fields or self.store.observed(entry.key) is not None:
            # Only the server evaluates a field selector; an object that matched before is expected to match again.
            known = None if transform is not None else obj
            made = CachedObject(self.kind if known is None else type(known), entry, known)
            self.store.remember_write(entry, self.index_values(made), now)


class NamespaceInformer:
    """The sink of one reflector, for one namespace or all."""

    def __init__(self, shared: SharedInformer, namespace: str) -> None:
        self.synced = False
        self.problem: str | None = None
        self.last_error: Exception | None = None
        self.interrupted_since: float | None = None
        """The time of the first failure after the last success, on the event loop's clock; None if there is none."""
        self._shared = shared
        self._namespace = namespace
        self._listed: set[NamespacedName] | None = None
        self._reached = ""
        self.missing_since: float | None = None
        """When the kind disappeared, on the event loop's clock; None while it is served."""
        self._failing_since: float | None = None
        shared.outage.add(self)

    @property
    def readable(self) -> bool:
        """True if the stored objects may be read: the first list was complete, and the kind still exists.

        While the server is unreachable or denies access to the kind, the objects stay readable, though they may be
        stale. After the kind disappeared, they stay readable for :data:`MISSING_GRACE` seconds.
        """
        if not self.synced or self.missing_since is None:
            return self.synced
        return anyio.current_time() - self.missing_since < MISSING_GRACE

    @property
    def is_listing(self) -> bool:
        """True between :meth:`begin` and :meth:`finish`."""
        return self._listed is not None

    @property
    def version(self) -> str:
        """The version up to which the watch has delivered every change; empty before the first list is complete."""
        return self._reached

    def connected(self) -> None:
        """Record that the server has accepted a list or watch of this kind."""
        self.missing_since = self._failing_since = self.interrupted_since = self.last_error = None
        self._shared.outage.succeeded(self)
        if self.synced:
            self._recover()

    def widen(self) -> None:
        """Follow all objects, because the kind turned out to be cluster-scoped."""
        self._namespace = ""

    def covers(self, version: str) -> bool:
        """Return True if the watch has delivered every change up to ``version``.

        Changes of a kind arrive in the order of their versions. If a version was delivered, and its object is not
        stored, the object has been deleted. Versions that cannot be compared count as delivered.
        """
        return bool(self._reached) and not older(self._reached, version)

    def begin(self) -> None:
        """Start a full listing. Stored objects that are not reported until :meth:`finish` will be dropped."""
        self._listed = set()

    def put(self, entry: Entry) -> None:
        """Store an object."""
        if self._listed is not None:
            self._listed.add(entry.key)
            self._shared.put(entry, initial=not self.synced, listed=True)
            return
        self._shared.put(entry, initial=not self.synced)
        self._reached = entry.resource_version or self._reached

    def seen(self, key: NamespacedName) -> None:
        """Keep the stored state of an object that exists."""
        if self._listed is not None:
            self._listed.add(key)

    async def finish(self, resource_version: str) -> None:
        """Drop objects that the listing did not report: their deletions were missed."""
        listed, self._listed = self._listed or set(), None
        self._reached = resource_version
        for number, key in enumerate(self._shared.store.observed_keys(self._namespace), 1):
            if key not in listed:
                self._shared.remove(key, resource_version)
            if number % offload.STEP == 0:
                await anyio.lowlevel.checkpoint()
        self._shared.confirm(resource_version, self._namespace)
        if not self.synced:
            self.synced = True
            self._shared.changed()
        self._recover()

    def _recover(self) -> None:
        if self.problem is not None:
            self.problem = None
            self._shared.changed()
            kind = str(self._shared.gvk.group_kind)
            _log.info("Kind is served again", kind=kind, namespace=self._namespace)

    def remove(self, entry: Entry) -> None:
        """Drop an object."""
        self._shared.remove(entry.key, entry.resource_version, entry)
        if self._listed is None:
            self._reached = entry.resource_version or self._reached

    def lost(self, key: NamespacedName) -> None:
        """Drop an object whose last state cannot be read."""
        self._shared.remove(key, self._reached)

    def reached(self, resource_version: str) -> None:
        """Record that every change up to ``resource_version`` has been reported."""
        self._reached = resource_version
        self._shared.confirm(resource_version, self._namespace)

    def skip(self, error: errors.BadObjectError) -> None:
        """Count and report an object that cannot be read."""
        self._shared.unreadable.report(error)

    def failed(self, error: Exception) -> None:
        """Report a failure. A kind that is denied is degraded at once, and after any other error only if errors last.

        It stays degraded until the server accepts requests for it again.
        """
        self.last_error = error
        if self.interrupted_since is None:
            self.interrupted_since = anyio.current_time()
        kind = str(self._shared.gvk.group_kind)
        if not isinstance(error, rest.DENIED):
            _log.debug("List or watch failed", kind=kind, namespace=self._namespace, error=error)
            self._shared.outage.failed(self, error)
            now = anyio.current_time()
            # During an outage of the server, only the outage is reported.
            if self._failing_since is None or self._shared.outage.problem is not None:
                self._failing_since = now
            elif now - self._failing_since >= FAILING_GRACE:
                self._degrade("Kind cannot be listed or watched", error)
            return
        self._shared.outage.succeeded(self)
        if isinstance(error, NotFoundError):
            # A server answers the path of a kind without a CRD with a bare "404 page not found".
            error = rest.NoKindMatchError(self._shared.gvk)
        if isinstance(error, rest.NoKindMatchError) and self.missing_since is None:
            self.missing_since = anyio.current_time()
        self._degrade("Kind is missing or denied", error)

    def _degrade(self, message: str, error: Exception) -> None:
        if self.problem is None:
            kind = str(self._shared.gvk.group_kind)
            _log.warning(message, kind=kind, namespace=self._namespace, reason=str(error))
        self.problem = str(error)
        self._shared.changed()
