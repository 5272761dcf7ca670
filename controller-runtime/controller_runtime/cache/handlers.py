# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The handlers of a kind. Each handler receives the existing objects in the background, and changes in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import log, offload
from controller_runtime.machinery import LazyObject, NamespacedName, Object, raised
from controller_runtime.machinery.backoff import RandomFunc

from .codec import Entry
from .errors import UndecodableObjectError
from .objects import CachedObject, UnreadableLog
from .store import Store

T = TypeVar("T", bound=Object)
_log = log.logger_from("cache")
HOLD: Final = 0.25
"""An event waits at most this many seconds for the response to a write of its object. Usually it waits far less."""


class EventHandlerFuncs(msgspec.Struct, Generic[T], frozen=True):
    """Functions that receive changes. They must return quickly, and must not change the objects, which are shared."""

    on_add: Callable[[T, bool], None] | None = None
    """Receives an object, and whether it is an old object: it was in the first list, or it was cached when the handler
    was registered and has not changed since."""
    on_update: Callable[[T, T], None] | None = None
    """Receives the states before and after a change. In a resync, both have the same resourceVersion."""
    on_delete: Callable[[T, bool], None] | None = None
    """Receives the last known state of an object, and True if the watch missed the final state."""


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

    def on_put(self, new: CachedObject[Object], before: CachedObject[Object] | None, initial: bool) -> None:
        """Report that an object exists in this state."""
        unreported = self.backlog and self.backlog.pop(new.key, False)
        if unreported or before is None:
            self.add(new, initial=initial)
        elif (on_update := self.handler.on_update) is not None:
            try:
                on_update(self._given(before), self._given(new))
            except UndecodableObjectError:
                if before.as_kind(self.kind).is_decodable:
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


class Put(msgspec.Struct):
    """A change: an object exists in this state."""

    new: CachedObject[Object]
    before: CachedObject[Object] | None
    initial: bool


class Deletion(msgspec.Struct):
    """A change: an object was deleted. ``unknown`` is True if the watch missed the final state."""

    last: CachedObject[Object]
    unknown: bool


class _Writing:
    """Writes of one object that are under way."""

    __slots__ = ("count", "held", "made", "timer")

    def __init__(self) -> None:
        self.count = 0
        self.made: set[tuple[str, str]] = set()
        """The uid and the resourceVersion of each state that the server returned."""
        self.held: list[tuple[Put | Deletion, CachedObject[Object] | None]] = []
        """Delayed changes, each with an object or None. The object is there if our write may have caused the change."""
        self.timer: asyncio.TimerHandle | None = None


class HeldEvents:
    """Holds changes back while a write of the same object is under way, for at most :data:`HOLD` seconds."""

    def __init__(self, notify: Callable[[Put | Deletion], None]) -> None:
        self._notify = notify
        self._writing: dict[NamespacedName, _Writing] = {}

    @contextmanager
    def writing(self, key: NamespacedName) -> Iterator[None]:
        """Delay changes of ``key`` until the ``with`` block ends, each by at most :data:`HOLD` seconds.

        If a change is delivered before the response to our write arrives, it counts as a change by another writer.
        """
        writing = self._writing.setdefault(key, _Writing())
        writing.count += 1
        try:
            yield
        finally:
            writing.count -= 1
            if writing.count == 0:
                self.release(key)
                del self._writing[key]

    def answered(self, key: NamespacedName, uid: str, version: str) -> None:
        """Record the version that a write produced."""
        if (writing := self._writing.get(key)) is not None:
            writing.made.add((uid, version))

    def deliver(
        self, key: NamespacedName, change: Put | Deletion, echo: CachedObject[Object] | None = None
    ) -> None:
        """Report a change. While ``key`` is being written, wait until we know who made the change.

        ``echo`` is the object if our write may have caused this change, otherwise None.
        """
        if not self._writing or (writing := self._writing.get(key)) is None:
            self._notify(change)
            return
        if not writing.held:
            writing.timer = asyncio.get_running_loop().call_later(HOLD, self.release, key)
        writing.held.append((change, echo))

    def release(self, key: NamespacedName) -> None:
        """Deliver the delayed events of an object."""
        if not self._writing or (writing := self._writing.get(key)) is None:
            return
        if writing.timer is not None:
            writing.timer.cancel()
        held, writing.held = writing.held, []
        for change, echo in held:
            if echo is not None and (echo.uid, echo.resource_version) in writing.made:
                echo.mark_own_write()
            self._notify(change)

    def release_all(self) -> None:
        """Deliver all delayed events."""
        for key in tuple(self._writing):
            self.release(key)


class Processor:
    """The handlers of a kind. If a handler fails, the error is logged; the other handlers and the watch continue."""

    def __init__(
        self, kind: type[Object], store: Store, unreadable: UnreadableLog, synced: Callable[[], bool]
    ) -> None:
        self._kind = kind
        self._store = store
        self._unreadable = unreadable
        self._synced = synced
        self._registrations: list[Registration] = []
        self._backlog = anyio.Event()
        self._held = HeldEvents(self._notify)

    # Our own writes.

    def writing(self, key: NamespacedName) -> AbstractContextManager[None]:
        return self._held.writing(key)

    def answered(self, entry: Entry) -> None:
        """Record ``entry``, the response to our write, so that we recognize the change to this state as our own."""
        self._held.answered(entry.key, entry.uid, entry.resource_version)

    # Changes.

    def put(
        self,
        key: NamespacedName,
        new: CachedObject[Object],
        before: Entry | None,
        *,
        initial: bool,
        listed: bool,
    ) -> None:
        """Report that an object exists in this state."""
        if self._registrations:
            old = CachedObject(self._kind, before) if before is not None else None
            self._held.deliver(key, Put(new, old, initial), None if listed else new)

    def deleted(self, key: NamespacedName, last: Entry, *, unknown: bool) -> None:
        """Report a deletion. ``unknown`` is True if the watch missed the final state."""
        self._held.deliver(key, Deletion(CachedObject(self._kind, last), unknown))

    def created_and_deleted(self, entry: Entry) -> None:
        """Report a creation and a deletion: we wrote the object, but the watch never delivered it."""
        made, ended = CachedObject(self._kind, entry), CachedObject(self._kind, entry)
        made.own_write = True
        self._held.deliver(entry.key, Put(made, None, initial=False))
        self._held.deliver(entry.key, Deletion(ended, unknown=True))

    def _notify(self, change: Put | Deletion) -> None:
        for registration in tuple(self._registrations):
            self._report(registration, change)

    def _report(self, registration: Registration, change: Put | Deletion) -> None:
        try:
            if isinstance(change, Put):
                registration.on_put(change.new, change.before, change.initial)
            else:
                registration.on_delete(change.last, change.unknown)
        except UndecodableObjectError as error:
            self._unreadable.skip(error)
        except raised.FAILURES as error:  # a failed handler must not stop others or the watch
            _log.error("Handler failed", kind=str(self._kind.gvk.group_kind), error=error)

    # Handlers.

    def register(self, kind: type[T], handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report to ``handler`` every change and, in the background, every existing object."""
        self._held.release_all()  # the new handler must not receive stored objects twice
        registration = Registration(kind, handler, self._unregister, self._synced)
        registration.backlog = dict.fromkeys(self._store.observed_keys(), True)
        self._registrations.append(registration)
        self._backlog.set()
        return registration

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
                self._held.release(key)
                if (adding := registration.backlog.get(key)) is None:
                    continue
                if (entry := self._store.observed(key)) is not None:
                    obj = CachedObject(self._kind, entry)
                    self._report(registration, Put(obj, None if adding else obj, initial=True))
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
