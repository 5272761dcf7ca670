# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handing events to handlers: each object decoded once per class and event, and only when somebody looks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object, ObjectMeta, OwnerReference

from .codec import Entry, Owner, owners_of
from .errors import UndecodableObjectError

T = TypeVar("T", bound=Object)
_decode_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclasses.dataclass(frozen=True)
class EventHandlerFuncs(Generic[T]):
    """Functions that hear of changes. They return at once, and do not change the objects, which others see too."""

    on_add: Callable[[T, bool], None] | None = None
    """An object, and whether it is as it was when its handler began to listen."""
    on_update: Callable[[T, T], None] | None = None
    """Before and after; equal resourceVersions mean a resync."""
    on_delete: Callable[[T, bool], None] | None = None
    """The last known state, and whether the true final one was missed."""


class Lazy:
    """An entry that is decoded when asked for, once per class."""

    __slots__ = ("_metadata", "_objects", "entry", "own_write")

    def __init__(self, entry: Entry, *, own_write: bool = False, known: Object | None = None) -> None:
        self.entry = entry
        self.own_write = own_write
        """It came of a write of this process, and of nothing later."""
        self._objects: dict[type[Object], Object] = {} if known is None else {type(known): known}
        self._metadata: ObjectMeta | None = None

    def as_(self, kind: type[T]) -> T:
        """Return the object; UndecodableObjectError when it has another shape."""
        obj = self._objects.get(kind)
        if obj is None:
            obj = self._objects[kind] = self.entry.decode(kind)
        return obj  # type: ignore[return-value]  # stored under its own class

    def legible_as(self, kind: type[Object]) -> bool:
        """Tell whether :meth:`as_` returns."""
        try:
            self.as_(kind)
        except UndecodableObjectError:
            return False
        return True

    def outline(self) -> Lazy:
        """Return the same with the metadata alone, for an object of which nothing else can be read."""
        metadata = _decode_parts(self.entry.data)["metadata"]
        data = b'{"metadata":' + metadata + b"}"
        return Lazy(msgspec.structs.replace(self.entry, data=data, refused=""))

    def owners(self, kind: type[Object]) -> Sequence[Owner | OwnerReference]:
        """Return the owners alone, which is a tenth of the work; the error of :meth:`metadata` when that is odd."""
        try:
            return owners_of(self.entry.data)
        except msgspec.DecodeError:
            return self.metadata(kind).owner_references or ()

    def metadata(self, kind: type[Object]) -> ObjectMeta:
        """Return the metadata, whatever the shape of the rest; UndecodableObjectError when it is odd itself."""
        for obj in self._objects.values():
            return obj.metadata
        if self._metadata is None:
            self._metadata = self.entry.decode_metadata(kind)
        return self._metadata


class Told(Generic[T]):
    """What a handler that looks by itself is told of an object: who it is, and the rest when asked for.

    Most handlers need a name or an owner. Objects may be shared: read them, do not change them.
    """

    __slots__ = ("_kind", "_lazy")

    def __init__(self, kind: type[T], lazy: Lazy) -> None:
        self._kind = kind
        self._lazy = lazy

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return self._lazy.entry.key

    @property
    def resource_version(self) -> str:
        """Its version."""
        return self._lazy.entry.resource_version

    @property
    def own_write(self) -> bool:
        """Whether this state came of a write through this cache's client, and of nothing later."""
        return self._lazy.own_write

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata; the rest stays undecoded. UndecodableObjectError when it is odd."""
        return self._lazy.metadata(self._kind)

    @property
    def owner_references(self) -> Sequence[Owner | OwnerReference]:
        """Who owns it; the rest stays undecoded."""
        return self._lazy.owners(self._kind)

    @property
    def object(self) -> T:
        """The object; UndecodableObjectError when it has another shape."""
        return self._lazy.as_(self._kind)


@dataclasses.dataclass(frozen=True, slots=True)
class LookingHandlerFuncs(Generic[T]):
    """As :class:`EventHandlerFuncs`, for functions that decide themselves what they look at."""

    on_add: Callable[[Told[T], bool], None]
    on_update: Callable[[Told[T], Told[T]], None]
    on_delete: Callable[[Told[T], bool], None]


class Registration:
    """A handler's place with an informer. What existed before is told in the background, one by one."""

    def __init__(
        self,
        kind: type[Any],
        handler: EventHandlerFuncs[Any] | LookingHandlerFuncs[Any],
        remove: Callable[[Registration], None],
    ) -> None:
        self.kind = kind
        self.handler = handler
        self.backlog: dict[NamespacedName, bool] = {}
        """Keys still to be told: True as an addition, False as a resync."""
        self._looks = isinstance(handler, LookingHandlerFuncs)
        self._remove = remove
        self._informer_synced: Callable[[], bool] = lambda: False

    def bind(self, synced: Callable[[], bool]) -> None:
        """Ask ``synced`` whether the informer has told everything there is."""
        self._informer_synced = synced

    @property
    def has_synced(self) -> bool:
        """Whether the handler was told of all that existed when it began to listen."""
        return self._informer_synced() and not any(self.backlog.values())

    def remove(self) -> None:
        """Listen no more."""
        self._remove(self)

    def on_put(self, new: Lazy, before: Lazy | None, initial: bool) -> None:
        """Tell that an object exists and looks like this."""
        untold = self.backlog and self.backlog.pop(new.entry.key, False)
        if untold or before is None:
            self.add(new, initial=initial)
        elif (on_update := self.handler.on_update) is not None:
            try:
                on_update(self._told(before), self._told(new))
            except UndecodableObjectError:
                if before.legible_as(self.kind):
                    raise
                # What could not be read was told to nobody: once mended, it is new.
                self.add(new, initial=initial)

    def on_gone(self, last: Lazy, unknown: bool) -> None:
        """Tell that an object is gone, by its metadata if nothing else can be read, unless it waits to be told of."""
        if self.backlog and self.backlog.pop(last.entry.key, False):
            return
        if (on_delete := self.handler.on_delete) is not None:
            try:
                on_delete(self._told(last), unknown)
            except UndecodableObjectError:
                on_delete(self._told(last.outline()), unknown)

    def add(self, new: Lazy, *, initial: bool) -> None:
        """Tell of an object for the first time."""
        if (on_add := self.handler.on_add) is not None:
            on_add(self._told(new), initial)

    def _told(self, lazy: Lazy) -> Any:
        return Told(self.kind, lazy) if self._looks else lazy.as_(self.kind)
