# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The handlers of a kind. Each handler receives the existing objects in the background, and changes in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import log, metrics, offload
from controller_runtime.machinery import GVK, LazyObject, NamespacedName, Object, arguments, raised
from controller_runtime.machinery.backoff import RandomFunc
from controller_runtime.machinery.lru import LRU

from .codec import CachedObject
from .errors import CacheError, UndecodableObjectError
from .store import Entry, Store

T = TypeVar("T", bound=Object)
_log = log.logger_from("cache")
HOLD: Final = 0.25
"""An event waits at most this many seconds for the response to a write of its object. Usually it waits far less."""


MAX_REPORTED: Final = 1024
"""For this many undecodable objects of a kind, we remember the last log message, so that it is not repeated."""


class UnreadableLog:
    """Counts and logs objects of a kind that cannot be read; each failed read counts."""

    def __init__(self, gvk: GVK) -> None:
        self.skipped = 0
        self._gvk = gvk
        self._reported: LRU[NamespacedName, str] = LRU(MAX_REPORTED)

    def report(self, error: CacheError) -> None:
        """Count and log an object that cannot be read.

        An UndecodableObjectError is logged only if its reason differs from the last reason for the object.
        """
        self.count()
        reason = str(error)
        if isinstance(error, UndecodableObjectError):
            before = self._reported.get(error.key)
            self._reported[error.key] = reason
            if reason == before:  # each read fails in the same way
                return
        _log.warning("Object skipped", kind=str(self._gvk.group_kind), reason=reason)

    def count(self) -> None:
        """Count an object that cannot be read, without logging it: the reader gets the error."""
        self.skipped += 1
        metrics.CACHE_SKIPPED_OBJECTS.labels(*self._gvk).inc()


class EventHandlerFuncs(msgspec.Struct, Generic[T], frozen=True):
    """Functions that receive changes. They must return quickly, and must not change the objects, which are shared."""

    on_add: Callable[[T, bool], None] | None = None
    """Receives an object, and whether it is an old object: it was in the first list, or it was cached when the handler
    was registered and has not changed since."""
    on_update: Callable[[T, T], None] | None = None
    """Receives the states before and after a change. In a resync, both have the same resourceVersion."""
    on_delete: Callable[[T, bool], None] | None = None
    """Receives the last known state of an object, and True if the watch missed the final state."""

    def __post_init__(self) -> None:
        """Raise TypeError for a function that is ``async`` or does not take both arguments."""
        taken = {"on_add": "obj, initial", "on_update": "old, new", "on_delete": "obj, unknown"}
        for name, names in taken.items():
            if (function := getattr(self, name)) is not None:
                arguments.must_be_plain(function)
                arguments.must_take(function, names)


class LazyHandlerFuncs(msgspec.Struct, Generic[T], frozen=True):
    """Like :class:`EventHandlerFuncs`, but the functions get lazy objects, which decode a part when it is read."""

    on_add: Callable[[LazyObject[T], bool], None]
    on_update: Callable[[LazyObject[T], LazyObject[T]], None]
    on_delete: Callable[[LazyObject[T], bool], None]


class Registration:
    """A handler registered with an informer. Existing objects are reported in the background, one by one."""

    def __init__(
        self,
        kind: type[Object],
        handler: EventHandlerFuncs[Any] | LazyHandlerFuncs[Any],
        remove: Callable[[Registration], None],
        informer_synced: Callable[[], bool],
    ) -> None:
        """``informer_synced`` returns True if the informer has reported every existing object."""
        self.kind = kind
        self.handler = handler
        self.backlog: dict[NamespacedName, bool] = {}
        """The keys of objects still to be reported. The value is True for an addition, and False for a resync."""
        self._lazy = isinstance(handler, LazyHandlerFuncs)
        self._remove = remove
        self._informer_synced = informer_synced

    @property
    def has_synced(self) -> bool:
        """True if the handler has received every object that existed when the handler was registered."""
        return self._informer_synced() and not any(self.backlog.values())

    def remove(self) -> None:
        """Stop reporting to the handler."""
        self._remove(self)

    def on_upsert(
        self, new: CachedObject[Object], before: CachedObject[Object] | None, initial: bool
    ) -> None:
        """Report that an object exists in this state."""
        unreported = self.backlog and self.backlog.pop(new.key, False)
        if unreported or before is None:
            self.add(new, initial=initial)
        elif (on_update := self.handler.on_update) is not None:
            old, seen = before.as_kind(self.kind), new.as_kind(self.kind)
            update: Callable[[Any, Any], None] = on_update
            try:
                if self._lazy:
                    update(old, seen)
                else:
                    update(old.object, seen.object)
            except UndecodableObjectError:
                if old.is_decodable:
                    raise
                # ``before`` cannot be decoded, so it was never reported: the handler sees the object for the first
                # time.
                self.add(new, initial=initial)

    def on_delete(self, last: CachedObject[Object], unknown: bool) -> None:
        """Report a deletion if the object was reported before.

        If the object cannot be decoded, report only its metadata; it then lacks fields that its class requires.
        """
        if self.backlog and self.backlog.pop(last.key, False):
            return
        if (on_delete := self.handler.on_delete) is not None:
            try:
                on_delete(self._given(last), unknown)
            except UndecodableObjectError:
                on_delete(self._given(last.as_kind(self.kind).outline()), unknown)

    def add(self, new: CachedObject[Object], *, initial: bool) -> None:
        """Report an object for the first time."""
        if (on_add := self.handler.on_add) is not None:
            on_add(self._given(new), initial)

    def _given(self, obj: CachedObject[Object]) -> Any:
        seen = obj.as_kind(self.kind)
        return seen if self._lazy else seen.object


class Upsert(msgspec.Struct):
    """A change: an object exists in this state."""

    new: CachedObject[Object]
    before: CachedObject[Object] | None
    initial: bool
    may_be_own: bool = False
    """True if a single write, which may have been ours, caused the change."""


class Deletion(msgspec.Struct):
    """A change: an object was deleted. ``unknown`` is True if the watch missed the final state."""

    last: CachedObject[Object]
    unknown: bool


class _Writing(msgspec.Struct):
    """Writes of one object that are under way."""

    count: int = 0
    made: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """The uid and the resourceVersion of each state that the server returned."""
    delayed: list[Upsert | Deletion] = msgspec.field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Processor:
    """The handlers of a kind. If a handler fails, the error is logged; the other handlers and the watch continue.

    While this process writes an object, changes of the object wait for the response, for at most :data:`HOLD` seconds.
    """

    def __init__(
        self, kind: type[Object], store: Store, unreadable: UnreadableLog, synced: Callable[[], bool]
    ) -> None:
        self._kind = kind
        self._store = store
        self._unreadable = unreadable
        self._synced = synced
        self._registrations: list[Registration] = []
        self._backlog = anyio.Event()
        self._writing: dict[NamespacedName, _Writing] = {}

    # Our own writes.

    def begin_write(self, key: NamespacedName) -> None:
        """Delay changes of ``key`` until :meth:`end_write`, each by at most :data:`HOLD` seconds.

        If a change is delivered before the response to our write arrives, it counts as a change by another writer.
        """
        self._writing.setdefault(key, _Writing()).count += 1

    def end_write(self, key: NamespacedName) -> None:
        """Deliver the delayed changes, unless another write of the object is under way."""
        writing = self._writing[key]
        writing.count -= 1
        if writing.count == 0:
            if writing.delayed:
                self._release(key)
            del self._writing[key]

    def answered(self, entry: Entry) -> None:
        """Record ``entry``, the response to our write, so that we recognize the change to this state as our own."""
        if (writing := self._writing.get(entry.key)) is not None:
            writing.made.add((entry.uid, entry.resource_version))

    def delayed(self) -> Iterator[tuple[NamespacedName, Upsert | Deletion]]:
        """Yield the changes that wait for the response to a write, each with the key of its object."""
        for key, writing in self._writing.items():
            for change in writing.delayed:
                yield key, change

    def _release(self, key: NamespacedName) -> None:
        """Deliver the delayed changes of an object."""
        if not self._writing or (writing := self._writing.get(key)) is None:
            return
        if writing.timer is not None:
            writing.timer.cancel()
        delayed, writing.delayed = writing.delayed, []
        for change in delayed:
            if isinstance(change, Upsert) and change.may_be_own:
                new = change.new
                if (new.uid, new.resource_version) in writing.made:
                    new.mark_own_write()
            for registration in tuple(self._registrations):
                self._report(registration, change)

    # Changes.

    def distribute(
        self,
        key: NamespacedName,
        new: CachedObject[Object],
        before: Entry | None,
        *,
        initial: bool,
        may_be_own: bool,
    ) -> None:
        """Report that an object exists in this state. See :class:`Upsert` for ``may_be_own``."""
        if self._registrations:
            old = CachedObject(self._kind, before) if before is not None else None
            self._deliver(key, Upsert(new, old, initial, may_be_own))

    def deleted(self, key: NamespacedName, last: Entry, *, unknown: bool) -> None:
        """Report a deletion. ``unknown`` is True if the watch missed the final state."""
        self._deliver(key, Deletion(CachedObject(self._kind, last), unknown))

    def created_and_deleted(self, entry: Entry) -> None:
        """Report a creation and a deletion: we wrote the object, but the watch never delivered it."""
        made, ended = CachedObject(self._kind, entry), CachedObject(self._kind, entry)
        made.own_write = True
        self._deliver(entry.key, Upsert(made, None, initial=False))
        self._deliver(entry.key, Deletion(ended, unknown=True))

    def _deliver(self, key: NamespacedName, change: Upsert | Deletion) -> None:
        """Report a change. While ``key`` is being written, wait until we know who made the change."""
        if not self._writing or (writing := self._writing.get(key)) is None:
            for registration in tuple(self._registrations):
                self._report(registration, change)
            return
        if not writing.delayed:
            writing.timer = asyncio.get_running_loop().call_later(HOLD, self._release, key)
        writing.delayed.append(change)

    def _report(self, registration: Registration, change: Upsert | Deletion) -> None:
        try:
            if isinstance(change, Upsert):
                registration.on_upsert(change.new, change.before, change.initial)
            else:
                registration.on_delete(change.last, change.unknown)
        except UndecodableObjectError as error:
            self._unreadable.report(error)
        except raised.FAILURES as error:  # a failed handler must not stop others or the watch
            _log.error("Handler failed", kind=str(self._kind.gvk.group_kind), error=error)
            raised.release(error)

    # Handlers.

    def register(self, kind: type[T], handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report to ``handler`` every change and, in the background, every existing object."""
        for key in tuple(self._writing):
            self._release(key)  # the new handler must not receive stored objects twice
        registration = Registration(kind, handler, self._unregister, self._synced)
        registration.backlog = dict.fromkeys(self._store.observed_keys(), True)
        self._registrations.append(registration)
        self._backlog.set()
        return registration

    def unregister_all(self) -> None:
        """Report nothing more, not even the changes that are delayed now."""
        for registration in tuple(self._registrations):
            self._unregister(registration)

    def _unregister(self, registration: Registration) -> None:
        if registration in self._registrations:
            self._registrations.remove(registration)
        registration.backlog.clear()

    async def deliver_backlog(self) -> None:
        """Until cancelled, report the backlog of each handler: existing objects to a new handler, and resyncs."""
        while True:
            await self._backlog.wait()
            self._backlog = anyio.Event()
            for registration in tuple(self._registrations):
                await self._report_backlog(registration)

    async def _report_backlog(self, registration: Registration) -> None:
        number = 0
        while registration.backlog:
            # Iterate over a copy: taking the first key of the dict each time would walk past all its deleted slots.
            for key in tuple(registration.backlog):
                self._release(key)
                if (adding := registration.backlog.get(key)) is None:
                    continue
                if (entry := self._store.observed(key)) is not None:
                    obj = CachedObject(self._kind, entry)
                    self._report(registration, Upsert(obj, None if adding else obj, initial=True))
                registration.backlog.pop(key, None)
                number += 1
                if number % offload.STEP == 0:
                    await anyio.lowlevel.checkpoint()

    async def resync(self, period: float, random: RandomFunc) -> None:
        """Until cancelled, report all objects to all handlers again, about every ``period`` seconds.

        Each period varies by up to a tenth.
        """
        while True:
            await anyio.sleep(period * (0.9 + 0.2 * random()))
            for registration in self._registrations:
                for key in self._store.observed_keys():
                    registration.backlog.setdefault(key, False)
            self._backlog.set()
