# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handing events to handlers: each object decoded once per class and event, and only when somebody listens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from pkg.apis.machinery.gvk import NamespacedName
from pkg.apis.machinery.object import Object

from .codec import Entry
from .errors import UndecodableObjectError

T = TypeVar("T", bound=Object)
_decode_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclasses.dataclass(frozen=True)
class EventHandlerFuncs(Generic[T]):
    """Functions that hear of changes. They return at once, and do not change the objects, which others see too."""

    on_add: Callable[[T, bool], None] | None = None
    """An object, and whether it belongs to what existed when its handler began to listen."""
    on_update: Callable[[T, T], None] | None = None
    """Before and after; equal resourceVersions mean a resync."""
    on_delete: Callable[[T, bool], None] | None = None
    """The last known state, and whether the true final one was missed."""


class Lazy:
    """An entry that is decoded when asked for, once per class."""

    __slots__ = ("_objects", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._objects: dict[type[Object], Object] = {}

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

    def outline_as(self, kind: type[T]) -> T:
        """Return an object with the metadata alone; UndecodableObjectError when even that has another shape."""
        metadata = _decode_parts(self.entry.data)["metadata"]
        return msgspec.structs.replace(self.entry, data=b'{"metadata":' + metadata + b"}").decode(kind)


class Registration:
    """A handler's place with an informer. What existed before is told in the background, one by one."""

    def __init__(
        self, kind: type[Any], handler: EventHandlerFuncs[Any], remove: Callable[[Registration], None]
    ) -> None:
        self.kind = kind
        self.handler = handler
        self.backlog: dict[NamespacedName, bool] = {}
        """Keys still to be told: True as an addition, False as a resync."""
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
        if self.backlog and self.backlog.pop(new.entry.key, False):
            self.add(new, initial=True)
        elif before is None or not before.legible_as(self.kind):
            # What could not be read was told to nobody: once mended, it is new.
            self.add(new, initial=initial)
        elif (on_update := self.handler.on_update) is not None:
            on_update(before.as_(self.kind), new.as_(self.kind))

    def on_gone(self, last: Lazy, unknown: bool) -> None:
        """Tell that an object is gone, by its metadata if nothing else can be read, unless it waits to be told of."""
        if self.backlog and self.backlog.pop(last.entry.key, False):
            return
        if (on_delete := self.handler.on_delete) is not None:
            legible = last.legible_as(self.kind)
            on_delete(last.as_(self.kind) if legible else last.outline_as(self.kind), unknown)

    def add(self, new: Lazy, *, initial: bool) -> None:
        """Tell of an object for the first time."""
        if (on_add := self.handler.on_add) is not None:
            on_add(new.as_(self.kind), initial)
