# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handing events to handlers: each object is decoded at most once for each event and class, when a handler reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
import pydantic_core

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import LazyObject, NamespacedName, Object, Struct

from .codec import Entry, outline
from .errors import UndecodableObjectError

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)
V = TypeVar("V", bound=msgspec.Struct)
SHARED: Final = 32
"""Decoded objects kept for lazy reads: those of the reconciles under way, and the runtimes most in use."""
SHARED_BYTES: Final = 32 << 10
"""Bytes of the text of such an object: decoded, it may take several hundred times as much."""


class EventHandlerFuncs(msgspec.Struct, Generic[T], frozen=True):
    """Functions that receive changes. They return at once, and must not change the objects, which are shared."""

    on_add: Callable[[T, bool], None] | None = None
    """An object, and whether it is as it was when its handler began to listen."""
    on_update: Callable[[T, T], None] | None = None
    """Before and after; equal resourceVersions mean a resync."""
    on_delete: Callable[[T, bool], None] | None = None
    """The last known state, and whether the true final one was missed."""


class CachedObject(LazyObject[T]):
    """An entry of a store as an object of one class; a failure to decode it raises UndecodableObjectError."""

    __slots__ = ("_failed", "_siblings", "entry")

    def __init__(
        self,
        kind: type[T],
        entry: Entry,
        known: T | None = None,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """``failed`` is called before the error is raised."""
        super().__init__(kind, entry.data, known)
        self.entry = entry
        self._failed = failed
        self._siblings: list[CachedObject[Any]] | None = None

    @property
    def key(self) -> NamespacedName:
        """Namespace and name; nothing is decoded for them."""
        return self.entry.key

    @property
    def uid(self) -> str:
        """The uid; nothing is decoded for it."""
        return self.entry.uid

    @property
    def resource_version(self) -> str:
        """The resourceVersion; nothing is decoded for it."""
        return self.entry.resource_version

    def seen_as(self, kind: type[K]) -> CachedObject[K]:
        """Return the same entry as an object of another class; each class decodes once for all its readers."""
        if kind is self.kind:
            return self  # type: ignore[return-value]  # of that very class
        if self._siblings is None:
            self._siblings = [self]
        for sibling in self._siblings:
            if sibling.kind is kind:
                return sibling
        made = CachedObject(kind, self.entry)
        made.own_write, made._siblings = self.own_write, self._siblings
        self._siblings.append(made)
        return made

    def mark_own_write(self) -> None:
        """Note that a write of this process made this state."""
        for each in self._siblings or (self,):
            each.own_write = True

    @property
    def is_decodable(self) -> bool:
        """Whether :attr:`object` can be read."""
        try:
            return self.object is not None
        except UndecodableObjectError:
            return False

    def outline(self) -> CachedObject[T]:
        """Return the object with its metadata alone, for one of which nothing else can be decoded."""
        data = outline(self.entry.data)
        return CachedObject(self.kind, msgspec.structs.replace(self.entry, data=data, refused=""))

    def _decode(self) -> T:
        try:
            return self.entry.decode(self.kind)
        except UndecodableObjectError:
            if self._failed is not None:
                self._failed()
            raise

    def _decode_view(self, shape: type[V]) -> V | None:
        return None if self.entry.refused else super()._decode_view(shape)

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        if self.entry.refused:
            return None
        try:
            return super()._decode_part(name, kind)
        except pydantic_core.ValidationError:
            return None  # decoding the object raises the error of this cache

    def _decode_metadata(self) -> ObjectMeta:
        return self.entry.decode_metadata(self.kind)


class SharedObjects:
    """The entries read last, each as an object that decodes once for all its readers."""

    def __init__(self) -> None:
        self._objects: dict[tuple[type[Object], NamespacedName], CachedObject[Any]] = {}

    def get(self, kind: type[T], entry: Entry, failed: Callable[[], None]) -> CachedObject[T]:
        """Return ``entry`` as an object of ``kind``; ``failed`` is called when it cannot be decoded."""
        place = (kind, entry.key)
        shared: CachedObject[T] | None = self._objects.pop(place, None)
        if shared is None or shared.entry is not entry:
            shared = CachedObject(kind, entry, failed=failed)
            if len(entry.data) > SHARED_BYTES:
                return shared
            if len(self._objects) >= SHARED:
                del self._objects[next(iter(self._objects))]
        self._objects[place] = shared
        return shared


class LazyHandlerFuncs(msgspec.Struct, Generic[T], frozen=True):
    """Like :class:`EventHandlerFuncs`, but decodes only the fields that the functions read."""

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
    ) -> None:
        self.kind = kind
        self.handler = handler
        self.backlog: dict[NamespacedName, bool] = {}
        """Keys still to be reported: True as an addition, False as a resync."""
        self._lazy = isinstance(handler, LazyHandlerFuncs)
        self._remove = remove
        self._informer_synced: Callable[[], bool] = lambda: False

    def bind(self, synced: Callable[[], bool]) -> None:
        """Use ``synced`` to find out if the informer has reported every existing object."""
        self._informer_synced = synced

    @property
    def has_synced(self) -> bool:
        """Whether the handler has received every object that existed when it was registered."""
        return self._informer_synced() and not any(self.backlog.values())

    def remove(self) -> None:
        """Listen no more."""
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
                if before.seen_as(self.kind).is_decodable:
                    raise
                # The state before was never reported: once it can be decoded, the object is new.
                self.add(new, initial=initial)

    def on_gone(self, last: CachedObject[Object], unknown: bool) -> None:
        """Report a deletion, by metadata alone if the rest cannot be decoded, unless the object was never reported."""
        if self.backlog and self.backlog.pop(last.key, False):
            return
        if (on_delete := self.handler.on_delete) is not None:
            try:
                on_delete(self._given(last), unknown)
            except UndecodableObjectError:
                on_delete(self._given(last.outline()), unknown)

    def add(self, new: CachedObject[Object], *, initial: bool) -> None:
        """Report an object for the first time."""
        if (on_add := self.handler.on_add) is not None:
            on_add(self._given(new), initial)

    def _given(self, obj: CachedObject[Object]) -> Any:
        seen = obj.seen_as(self.kind)
        return seen if self._lazy else seen.object
