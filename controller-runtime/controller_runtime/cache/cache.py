# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cache: reads objects from memory, where watches keep them current. The first use of a kind starts its watch."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, Unpack

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskStatus

from controller_runtime import client, fairness, log, metrics, offload, rest
from controller_runtime.machinery import (
    GVK,
    LazyObject,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    Resource,
)
from controller_runtime.machinery import labels as selectors
from controller_runtime.machinery.errors import UnauthorizedError
from controller_runtime.machinery.lru import LRU

from . import errors
from .codec import CachedObject
from .informer import Informer, SharedInformer
from .options import Options
from .store import Entry

T = TypeVar("T", bound=Object)
SHARED: Final = 32
"""Maximum number of objects kept for lazy reads: enough for the running reconciles and for commonly used objects."""
SHARED_BYTES: Final = 32 << 10
"""Objects with more bytes of JSON are not kept: a decoded object may need several hundred times as much memory."""
MATCH_STEP: Final = 1024
"""How many objects a list compares with a label selector before other tasks get a turn."""
OUTAGE_GRACE: Final = 3.0
"""Seconds between a failure and a check whether the server is unavailable. A success before that cancels the check."""

_log = log.logger_from("cache")


class SharedObjects:
    """The most recently read entries. Each is decoded once, and all its readers share the object."""

    def __init__(self) -> None:
        self._objects: LRU[tuple[type[Object], NamespacedName], CachedObject[Any]] = LRU(SHARED)

    def get(
        self, kind: type[T], name: NamespacedName, entry: Entry, failed: Callable[[], None]
    ) -> CachedObject[T]:
        """Return ``entry``, whose key is ``name``, as an object of ``kind``.

        ``failed`` is called when the entry cannot be decoded.
        """
        key = (kind, name)
        shared: CachedObject[T] | None = self._objects.use(key)
        if shared is None or shared.entry is not entry:
            shared = CachedObject(kind, entry, failed=failed)
            if len(entry.data) <= SHARED_BYTES:
                self._objects[key] = shared
            else:
                self._objects.pop(key, None)  # do not keep a former state of the object
        return shared


class Reads(msgspec.Struct, frozen=True):
    """The methods of a cache that read objects."""

    get: Callable[..., Awaitable[Any]]
    peek: Callable[..., Awaitable[Any]]
    list: Callable[..., Awaitable[Any]]


class Cache:
    """A Reader and FieldIndexer that uses informers, and the runnable that runs these informers.

    Reads return new objects that belong to the caller. Reads see a write of this process as soon as it was passed to
    ``remember_write``; only reads of metadata see a write whose response has only metadata. If the server does not
    serve a kind or denies access to it, only reads of that kind fail.
    """

    def __init__(
        self,
        transport: rest.RoundTripper,
        *,
        mapper: rest.RESTMapper | None = None,
        options: Options | None = None,
    ) -> None:
        self.options = options or Options()
        self._transport = transport
        self._mapper = mapper or rest.RESTMapper(transport)
        self._informers: dict[tuple[GVK, bool], SharedInformer] = {}
        self._shared = SharedObjects()
        self._outage = Outage()
        self._start_soon: Callable[..., object] | None = None
        """Starts the task of an informer in the context of :meth:`start`. None unless the cache runs."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the cache runs."""
        self._stopped = False
        self._observers: list[Callable[[SharedInformer], None]] = []

    def wrap(self, wrapper: Callable[[Reads], Reads]) -> None:
        """Read with what ``wrapper`` returns for the present reads, e.g. to observe them."""
        wrapped: Any = wrapper(Reads(self.get, self.peek, self.list))
        self.get = wrapped.get  # type: ignore[method-assign]  # reads that nobody wraps pay nothing
        self.peek = wrapped.peek  # type: ignore[method-assign]
        self.list = wrapped.list  # type: ignore[method-assign]

    def on_informer(self, observe: Callable[[SharedInformer], None]) -> None:
        """Call ``observe`` with each informer that the cache makes from now on, before the informer starts."""
        self._observers.append(observe)

    # Lifecycle.

    async def start(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the informers until cancelled. Reads work as soon as ``task_status.started()`` has been called.

        A stopped cache still answers reads of the kinds that were synced, with the last state that it received. It
        cannot be started again.

        Raises:
            CacheNotStartedError: the cache has stopped.
        """
        if self._stopped:
            raise errors.CacheNotStartedError("the cache has stopped: make another one")
        self._loop = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            self._start_soon = fairness.in_this_context(tasks.start_soon)
            try:
                for informer in self._informers.values():
                    self._launch(informer)
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._start_soon, self._stopped = None, True
                self._outage.forget()
                for informer in self._informers.values():
                    informer.leave()

    def _launch(self, informer: SharedInformer) -> None:
        if self._start_soon is not None:
            resource = functools.partial(self._mapper.resource_for, informer.kind)
            self._start_soon(informer.run, self._transport, resource)

    def _check_loop(self, kind: type[Object]) -> None:
        """Raise RuntimeError if a task of another event loop would wait for the first list of ``kind``."""
        if self._start_soon is not None and self._loop is not asyncio.get_running_loop():
            raise RuntimeError(f"{kind.gvk.group_kind}: the cache runs in another event loop")

    async def ready(self) -> None:
        """Return when every kind in use is synced or :meth:`degraded`."""
        await self.wait_for_sync()

    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Wait like :meth:`ready`, but for at most ``timeout`` seconds.

        Raises:
            CacheSyncTimeoutError: ``timeout`` seconds have passed.
        """
        deadline = None if timeout is None else anyio.current_time() + timeout
        for informer in tuple(self._informers.values()):
            left = None if deadline is None else max(0.0, deadline - anyio.current_time())
            try:
                await informer.wait_for_sync(left, or_problem=True)
            except errors.CacheNotStartedError:  # the kind was removed meanwhile, so it is no longer in use
                continue

    def degraded(self) -> dict[GVK, str]:
        """Return each kind that is missing, denied or failing, with the reason.

        If the whole server is unavailable, its kinds do not count as failing.
        """
        return {
            informer.gvk: informer.problem
            for informer in self._informers.values()
            if informer.problem is not None
        }

    def interrupted_since(self, kind: type[Object]) -> float | None:
        """Return the time at which the list or watch of ``kind`` began to fail, on the event loop's clock.

        Return None while lists and watches succeed, and for a kind that is not cached. The first failure counts here
        at once; :meth:`degraded` returns a kind only if the server refuses it or keeps failing for it.
        """
        informer = self._informers.get(_identity(kind))
        return None if informer is None else informer.interrupted_since

    def remarks(self) -> list[str]:
        """Return the reasons why reads may be stale or fail. A readiness check shows them."""
        outage = self._outage.problem
        degraded = sorted(self.degraded().items())
        return ([outage] if outage else []) + [
            f"{gvk.group_kind} is degraded: {why}" for gvk, why in degraded
        ]

    # Informers.

    async def get_informer(self, kind: type[T]) -> Informer[T]:
        """Return the informer of ``kind``. If the cache runs, the informer starts now, otherwise with the cache."""
        return Informer(kind, self._informer(kind))

    def informers(self) -> list[Informer[Any]]:
        """Return the informers of the kinds that are cached now. This starts no watch."""
        return [Informer(shared.kind, shared) for shared in self._informers.values()]

    async def resource_for(self, kind: type[Object]) -> Resource:
        """Return the resource of ``kind``: the one that its class declares or, otherwise, that discovery finds.

        Raises:
            NoKindMatchError: the server does not serve the kind.
            StatusError, TransportError: discovery failed.
        """
        return await self._mapper.resource_for(kind)

    def remove_informer(self, kind: type[Object]) -> None:
        """Stop watching ``kind``, drop its cached objects, and report no more events to its handlers.

        The next use of the kind starts a new watch. A read that waits for the first list starts it at once.
        """
        informer = self._informers.pop(_identity(kind), None)
        if informer is not None:
            informer.end()

    async def index_field(
        self,
        kind: type[T],
        field: str,
        extract: client.IndexerFunc[T],
        *,
        reads: type[msgspec.Struct] | None = None,
    ) -> None:
        """Index ``kind`` by the values that ``extract`` returns, so that lists can select objects by ``fields``.

        If ``reads`` is given, ``extract`` may get a struct of that class instead of the object: see
        :meth:`controller_runtime.client.FieldIndexer.index_field`.

        Raises:
            ValueError: there is an index of that name, or objects are cached already.
        """
        self._informer(kind).add_index(kind, field, extract, reads)

    def _informer(self, kind: type[Object]) -> SharedInformer:
        if self._stopped:
            raise errors.CacheNotStartedError("the cache has stopped")
        identity = _identity(kind)
        informer = self._informers.get(identity)
        if informer is None:
            self._check_loop(kind)
            informer = self._informers[identity] = SharedInformer(kind, self.options, self._outage)
            for observe in self._observers:
                observe(informer)
            self._launch(informer)
        return informer

    # Reading.

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object by (namespace, name), in the newest state that the watch reported or this process wrote.

        The namespace of a cluster-scoped object is ignored.

        Raises:
            NotFoundError: the object does not exist.
            CacheError: the kind cannot be read, see ``errors``.
        """
        key = key if isinstance(key, NamespacedName) else NamespacedName.of(key)
        informer = self._readable_now(kind, key.namespace) or await self._readable(kind, key.namespace)
        entry = self._entry(informer, kind, key)
        try:
            if len(entry.data) <= offload.LARGE:
                return entry.decode(kind)
            return await offload.run_sized(len(entry.data), entry.decode, kind)
        except errors.UndecodableObjectError:
            informer.unreadable.count()
            raise

    async def peek(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object without decoding it. Other readers share it: see :func:`controller_runtime.client.peek`."""
        key = key if isinstance(key, NamespacedName) else NamespacedName.of(key)
        informer = self._readable_now(kind, key.namespace) or await self._readable(kind, key.namespace)
        return self._shared.get(kind, key, self._entry(informer, kind, key), informer.unreadable.count)

    def _entry(self, informer: SharedInformer, kind: type[Object], key: NamespacedName) -> Entry:
        entry = informer.store.get(key, asyncio.get_running_loop().time())
        if entry is None:
            raise errors.not_found(kind, key)
        return entry

    async def list(self, kind: type[T], **options: Unpack[client.ListOptions]) -> client.ObjectList[T]:
        """Return the objects that meet every condition. The ``namespace`` of a cluster-scoped kind is ignored.

        Without ``fields``, the list is grouped by namespace. In a namespace, the objects are in the order in which they
        were first reported. An object that this process wrote comes last until the watch has reported the write.

        The keys of ``fields`` are names of registered indices, ``metadata.name`` or ``metadata.namespace``. With
        ``limit``, the list is truncated, and its ``continue_token`` is ``continue-not-supported``, as in Go. An object
        that cannot be decoded as ``kind`` is left out, and ``skipped`` has the reason.

        Raises:
            IndexMissingError: a field has no index.
            CacheError: the kind cannot be read, see ``errors``.
            ValueError: a ``continue_token`` is given.
        """
        client.check_kind(kind)
        client.check_options(client.ListOptions, options)
        if options.get("continue_token"):
            raise ValueError(
                f"{kind.gvk.group_kind}: a list from the cache cannot be continued; "
                "list without a limit, or page with the manager's api_reader"
            )
        namespace, fields = options.get("namespace", ""), options.get("fields")
        if isinstance(fields, str):
            raise TypeError(f"ListOptions: for a cache, fields must be a map of indices, not {fields!r}")
        labels, limit = options.get("labels"), max(0, options.get("limit") or 0) or None
        informer = await self._readable(kind, namespace or (fields or {}).get("metadata.namespace", ""))
        for field in fields or ():
            if field not in _KEY_FIELDS and not informer.store.has_index(field):
                raise errors.IndexMissingError(kind.gvk, field)
        # A label selector is applied to all entries. Without one, the store stops after the limit.
        few = None if labels or limit is None else limit + 1
        entries = informer.store.select(
            asyncio.get_running_loop().time(),
            namespace=namespace if informer.store.namespaced else "",
            fields=fields,
            limit=few,
        )
        if labels:
            entries = await _matching(entries, selectors.selector(labels))
        listed: client.ObjectList[T] = client.ObjectList()
        skipped: list[Exception] = []
        for number, entry in enumerate(entries[:limit], 1):
            try:
                listed.append(entry.decode(kind))
            except errors.UndecodableObjectError as error:
                informer.unreadable.report(error)
                skipped.append(error)
            if number % offload.STEP == 0:
                await anyio.lowlevel.checkpoint()
        listed.skipped = skipped
        if limit is not None and len(entries) > limit:
            listed.continue_token = _NO_PAGES
        return listed

    def _readable_now(self, kind: type[Object], namespace: str) -> SharedInformer | None:
        """Return the informer if it can be read at once, as it nearly always can; see :meth:`_readable`."""
        try:
            informer = self._informers.get((kind.gvk, issubclass(kind, PartialObjectMetadata)))
        except (AttributeError, TypeError):
            client.check_kind(kind)
            raise
        if informer is None or self._start_soon is None or not informer.is_readable(namespace):
            return None
        return informer

    async def _readable(self, kind: type[Object], namespace: str) -> SharedInformer:
        """Return the informer when it can be read, or raise the error that says why it cannot."""
        if self._stopped:
            # Webhook requests that are still in progress may read the kinds that were synced before the stop.
            stopped = self._informers.get(_identity(kind))
            if stopped is None or not stopped.has_synced:
                raise errors.CacheNotStartedError(f"{kind.gvk.group_kind}: the cache has stopped")
            return stopped
        if self._start_soon is None:
            raise errors.CacheNotStartedError(f"{kind.gvk.group_kind}: the cache is not started")
        informer = self._informer(kind)
        while not informer.is_readable(namespace):
            self._check_loop(kind)
            try:
                await informer.readable(namespace, self.options.read_timeout)
                break
            except errors.CacheNotStartedError:  # the informer was removed meanwhile
                informer = self._informer(kind)
        return informer

    # Our own writes.

    @contextmanager
    def writing(self, obj: Object) -> Iterator[None]:
        """Delay watch events of ``obj`` while a write of the object is in progress: see ``event.own_write``."""
        key, writing = obj.key, []
        for informer in self._informers_of(type(obj).gvk):
            stored = key if informer.store.namespaced else NamespacedName("", key.name)
            informer.processor.begin_write(stored)
            writing.append((informer.processor, stored))
        try:
            yield
        finally:
            for processor, stored in writing:
                processor.end_write(stored)

    def remember_write(self, obj: Object | LazyObject[Object]) -> None:
        """Make reads return ``obj``, the response to a write, even before the watch reports it."""
        stored = obj if isinstance(obj, LazyObject) else LazyObject.of(obj)
        kind, text = stored.kind, stored.text
        partial = issubclass(kind, PartialObjectMetadata)
        for informer in self._informers_of(kind.gvk):
            # A write of a full object also updates the metadata-only informer, but not the other way round.
            if informer.metadata_only or not partial:
                text = stored.object.to_json() if text is None else text
                informer.remember_write(text, stored.known, asyncio.get_running_loop().time())

    def uid_of(self, obj: Object) -> str:
        """Return the uid of the cached object with the same key as ``obj``, or an empty string."""
        return self.uid_at(type(obj).gvk, obj.key)

    def uid_at(self, kind: GVK, key: NamespacedName) -> str:
        """Return the uid of the cached object at ``key``, or an empty string. Does not start a watch."""
        now = asyncio.get_running_loop().time()
        for informer in self._informers_of(kind):
            if (entry := informer.store.get(key, now)) is not None:
                return entry.uid
        return ""

    def remember_delete(self, obj: Object, *, uid: str = "") -> None:
        """Hide ``obj``, which the server has deleted, from reads until the watch reports the deletion.

        ``uid`` takes precedence over the uid in ``obj``. An object with the same name and another uid stays visible.
        """
        for informer in self._informers_of(type(obj).gvk):
            informer.store.remember_delete(obj.key, uid or obj.metadata.uid or "", anyio.current_time())

    def _informers_of(self, gvk: GVK) -> Sequence[SharedInformer]:
        """Return the informers of a kind: that of full objects, then that of metadata only."""
        full, partial = self._informers.get((gvk, False)), self._informers.get((gvk, True))
        if partial is None:
            return () if full is None else (full,)
        return (partial,) if full is None else (full, partial)


class Outage:
    """Decides from all attempts to list or watch whether the API server is unavailable.

    The server is unavailable if it cannot be reached at all, or if every watch gets an error. If only some watches get
    errors, only their kinds have a problem.
    """

    def __init__(self) -> None:
        self._last_errors: dict[object, Exception | None] = {}
        """For each informer, the error of its last list or watch, or None if the server accepted or refused it."""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._told: set[str] = set()

    @property
    def problem(self) -> str | None:
        """The duration of the outage and the error as a text, or None if the server is available."""
        if self._error is None:
            return None
        return f"the API server has been unavailable for {anyio.current_time() - self._since:.0f} s: {self._error}"

    def add(self, informer: object) -> None:
        """Take the lists and watches of ``informer`` into account."""
        self._last_errors[informer] = None

    def remove(self, informer: object) -> None:
        """Stop taking ``informer`` into account. An outage ends if there are others, and none of them fails."""
        self._last_errors.pop(informer, None)
        if self._last_errors and not any(self._last_errors.values()):
            self._end()

    def failed(self, informer: object, error: Exception) -> None:
        """Record that a list or watch of ``informer`` failed for a reason other than a refusal."""
        if informer not in self._last_errors:
            return
        self._last_errors[informer] = error
        if self._error is not None:
            if isinstance(error, UnauthorizedError) != isinstance(self._error, UnauthorizedError):
                self._tell(error)
        elif self._timer is None:
            self._since = anyio.current_time()
            self._timer = asyncio.get_running_loop().call_later(OUTAGE_GRACE, self._judge)
        elif anyio.current_time() - self._since >= OUTAGE_GRACE:
            self._judge()

    def succeeded(self, informer: object) -> None:
        """Record that the server is available: it accepted or refused a list or watch of ``informer``."""
        if informer in self._last_errors:
            self._last_errors[informer] = None
        self._end()

    def _end(self) -> None:
        if self._error is not None:
            _log.info("API server is available again", after=f"{anyio.current_time() - self._since:.0f} s")
        self.forget()

    def forget(self) -> None:
        """Forget an outage, because nothing is listed or watched any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._error is not None:
            self._error = None
            self._told.clear()
            metrics.CACHE_UNAVAILABLE.set(0)

    def _judge(self) -> None:
        failures = [error for error in self._last_errors.values() if error is not None]
        # An AnswerError shows that something answered.
        lost = (error for error in failures if isinstance(error, rest.TransportError))
        unreachable = next((error for error in lost if not isinstance(error, rest.AnswerError)), None)
        all_fail = len(failures) == len(self._last_errors) > 0
        if self._error is not None or not (unreachable or all_fail):
            return
        metrics.CACHE_UNAVAILABLE.set(1)
        self._tell(unreachable or failures[0])

    def _tell(self, error: Exception) -> None:
        """Log the reason of the outage. If it changes, e.g. because a server starts whose authorities do not know our
        certificate, the other reason is logged, too; each is logged once.
        """
        self._error = error
        refused = isinstance(error, UnauthorizedError)
        text = "API server does not accept the credentials" if refused else "API server is unavailable"
        if text not in self._told:
            self._told.add(text)
            _log.warning(text, error=error)


_NO_PAGES: Final = "continue-not-supported"
_KEY_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})


async def _matching(entries: Sequence[Entry], selector: selectors.Selector) -> list[Entry]:
    chosen: list[Entry] = []
    for start in range(0, len(entries), MATCH_STEP):
        if start:
            await anyio.lowlevel.checkpoint()
        chosen += [entry for entry in entries[start : start + MATCH_STEP] if selector.matches(entry.labels)]
    return chosen


def _identity(kind: type[Object]) -> tuple[GVK, bool]:
    return kind.gvk, issubclass(kind, PartialObjectMetadata)
