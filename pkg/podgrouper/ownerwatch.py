# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Metadata watches of owners' kinds: they keep the cached metadata valid, and drop it when it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from controller_runtime import cache, source
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import older
from controller_runtime.machinery import GVK, NamespacedName, Object, PartialObjectMetadata, metadata_only

from .memory import Key, Known, Memory

T = TypeVar("T", bound=Object)

UNWATCHED_TTL: Final = 10.0
"""Seconds for which an owner of an unwatched kind is cached."""


class Watches(source.Informers, Protocol):
    """The cache whose watches hold owners."""

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object as last observed. Raises NotFoundError if it does not exist."""
        ...


class _State(NamedTuple):
    """Identifies the state of an object that an event reports."""

    uid: str
    version: str


class News:
    """Events that a watch reported about an owner during a read of it."""

    def __init__(self) -> None:
        self.states: list[_State] = []
        self.deleted = False

    def overtakes(self, found: ObjectMeta) -> bool:
        """Return True if ``found`` is older than a state that the watch has reported."""
        return self.deleted or any(_is_news(state, _state(found)) for state in self.states)


class OwnerWatches:
    """The watches of owners' kinds; they keep ``memory`` valid."""

    def __init__(self, informers: Watches, memory: Memory, clock: Callable[[], float]) -> None:
        self._informers = informers
        self._memory = memory
        self._clock = clock
        self._watched: dict[GVK, cache.Informer[Any]] = {}
        self._reading: dict[Key, News] = {}

    def __contains__(self, kind: GVK) -> bool:
        """Return True if a watch of ``kind`` was started, whether or not it works now."""
        return kind in self._watched

    def cover(self, kind: GVK) -> bool:
        """Return True if a watch reports the changes of ``kind`` now."""
        informer = self._watched.get(kind)
        return informer is not None and informer.has_synced and informer.problem is None

    async def start(self, kind: GVK) -> None:
        """Watch the kind. Call it after a successful read, so a reference cannot start a watch of an invented kind."""
        if kind in self._watched:
            return
        informer = self._watched[kind] = await self._informers.get_informer(metadata_only(kind))
        informer.add_event_handler(
            cache.LazyHandlerFuncs(
                on_add=lambda obj, _initial: self._forget(
                    (kind, *obj.key), _State(obj.uid, obj.resource_version)
                ),
                on_update=lambda _old, obj: self._forget(
                    (kind, *obj.key), _State(obj.uid, obj.resource_version)
                ),
                on_delete=lambda obj, _unknown: self._deleted((kind, *obj.key)),
            )
        )

    async def observed(self, key: Key) -> PartialObjectMetadata:
        """Return the metadata that the watch last reported. Raises NotFoundError if it has reported none."""
        kind, namespace, name = key
        return await self._informers.get(metadata_only(kind), (namespace, name))

    @contextmanager
    def reading(self, key: Key) -> Iterator[News]:
        """Record the watch's events about an owner during a read; the caller holds the owner's lock."""
        news = self._reading[key] = News()
        try:
            yield news
        finally:
            del self._reading[key]

    def believed(self, key: Key) -> PartialObjectMetadata | None:
        """Return the cached metadata while it is valid."""
        known = self._memory.find(key)
        if known is None or known.metadata is None:
            return None
        if self.cover(key[0]) if known.expires is None else self._clock() < known.expires:
            return known.metadata
        return None

    def is_current(self, key: Key, found: PartialObjectMetadata) -> bool:
        """Return False if ``found`` may have changed: the watch has reported that, or has only just begun."""
        known = self._memory.find(key)
        if known is None or self.believed(key) is not found:
            return False
        return known.expires is None or key[0] not in self._watched

    def learn(
        self, key: Key, found: PartialObjectMetadata, news: News | None = None, *, reported: bool = True
    ) -> PartialObjectMetadata:
        """Cache ``found``, unless the watch reported something newer since the read started.

        If the watch has not ``reported`` the object, the object may have been deleted before the watch's list: its
        deletion will not be reported.
        """
        if news is not None and news.overtakes(found.metadata):
            return found
        found.metadata.managed_fields = None  # large and unused here
        known = self._memory.find(key) or Known()
        known.metadata = found
        # If the object has another namespace than the key, no watch reports it under the key.
        reported = reported and self.cover(key[0]) and found.namespace == key[1]
        known.expires = None if reported else self._clock() + UNWATCHED_TTL
        self._memory.keep(key, known)
        return found

    def _forget(self, key: Key, state: _State) -> None:
        """Drop the cached metadata, unless the watch reports that same state, as its initial list usually does."""
        if (news := self._reading.get(key)) is not None:
            news.states.append(state)
        known = self._memory.find(key)
        if known is None:
            return
        if known.metadata is not None and not _is_news(state, _state(known.metadata.metadata)):
            return
        known.metadata = None

    def _deleted(self, key: Key) -> None:
        if (news := self._reading.get(key)) is not None:
            news.deleted = True
        self._memory.drop(key)


def _state(meta: ObjectMeta) -> _State:
    return _State(meta.uid or "", meta.resource_version or "")


def _is_news(reported: _State, known: _State) -> bool:
    return reported != known and not older(reported.version, known.version)
