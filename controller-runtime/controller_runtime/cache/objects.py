# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of a store, shared by readers and handlers: each object is decoded once, when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import pydantic_core

from controller_runtime import log, metrics
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import GVK, LazyObject, NamespacedName, Object, Struct
from controller_runtime.machinery.lru import LRU

from .codec import Entry
from .errors import CacheError, UndecodableObjectError

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)
V = TypeVar("V", bound=msgspec.Struct)
SHARED: Final = 32
"""Maximum number of objects kept for lazy reads: enough for the running reconciles and for commonly used objects."""
SHARED_BYTES: Final = 32 << 10
"""Objects with more bytes of JSON are not kept: a decoded object may need several hundred times as much memory."""
_log = log.logger_from("cache")
MAX_REPORTED: Final = 1024
"""For this many undecodable objects of a kind, we remember the last log message, so that it is not repeated."""


class CachedObject(LazyObject[T]):
    """An entry of a store, read as an object of one class. If decoding fails, UndecodableObjectError is raised."""

    __slots__ = ("_failed", "_siblings", "entry")

    def __init__(
        self,
        kind: type[T],
        entry: Entry,
        known: T | None = None,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Wrap ``entry``; ``failed`` is called before a decoding error is raised."""
        super().__init__(kind, entry.data, known)
        self.entry = entry
        self._failed = failed
        self._siblings: list[CachedObject[Any]] | None = None

    @property
    def key(self) -> NamespacedName:
        """Namespace and name, known without decoding."""
        return self.entry.key

    @property
    def uid(self) -> str:
        """The uid, known without decoding."""
        return self.entry.uid

    @property
    def resource_version(self) -> str:
        """The resourceVersion, known without decoding."""
        return self.entry.resource_version

    def as_kind(self, kind: type[K]) -> CachedObject[K]:
        """Return this entry as an object of class ``kind``. The entry is decoded at most once for each class."""
        if kind is self.kind:
            return self  # type: ignore[return-value]  # its class is ``kind``
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
        """Mark this state as the result of a write by this process."""
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
        """Return the object with only its metadata. Use it if the other fields cannot be decoded."""
        return CachedObject(self.kind, self.entry, self.kind.of_metadata(self.metadata))

    def _decode(self) -> T:
        try:
            return self.entry.decode(self.kind)
        except UndecodableObjectError:
            if self._failed is not None:
                self._failed()
            raise

    def _decode_view(self, shape: type[V]) -> V | None:
        return None if self.entry.too_large_reason else super()._decode_view(shape)

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        if self.entry.too_large_reason:
            return None
        try:
            return super()._decode_part(name, kind)
        except pydantic_core.ValidationError:
            return None  # the caller then decodes the whole object, which raises UndecodableObjectError

    def _decode_metadata(self) -> ObjectMeta:
        return self.entry.decode_metadata(self.kind)


class SharedObjects:
    """The most recently read entries. Each is decoded once, and all its readers share the object."""

    def __init__(self) -> None:
        self._objects: LRU[tuple[type[Object], NamespacedName], CachedObject[Any]] = LRU(SHARED)

    def get(self, kind: type[T], entry: Entry, failed: Callable[[], None]) -> CachedObject[T]:
        """Return ``entry`` as an object of ``kind``; ``failed`` is called when the entry cannot be decoded."""
        key = (kind, entry.key)
        shared: CachedObject[T] | None = self._objects.use(key)
        if shared is None or shared.entry is not entry:
            shared = CachedObject(kind, entry, failed=failed)
            if len(entry.data) <= SHARED_BYTES:
                self._objects[key] = shared
            else:
                self._objects.pop(key, None)  # do not keep a former state of the object
        return shared


class UnreadableLog:
    """Counts and logs objects of a kind that cannot be read; each failed read counts."""

    def __init__(self, gvk: GVK) -> None:
        self.skipped = 0
        self._gvk = gvk
        self._reported: LRU[NamespacedName, str] = LRU(MAX_REPORTED)

    def skip(self, error: CacheError) -> None:
        """Count and log an object that cannot be read.

        An UndecodableObjectError is logged only if its reason differs from the last reason for the object.
        """
        self.count()
        if isinstance(error, UndecodableObjectError) and not self._is_news(error.key, str(error)):
            return
        _log.warning("Object skipped", kind=str(self._gvk.group_kind), reason=str(error))

    def _is_news(self, key: NamespacedName, reason: str) -> bool:
        """Return True if ``reason`` differs from the last reason for this object: each read fails in the same way."""
        news = self._reported.get(key) != reason
        self._reported[key] = reason
        return news

    def count(self) -> None:
        """Count an object that cannot be read, without logging it: the reader gets the error."""
        self.skipped += 1
        metrics.CACHE_SKIPPED_OBJECTS.labels(*self._gvk).inc()
