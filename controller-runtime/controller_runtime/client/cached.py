# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CachedClient: reads from a cache, writes to the server and records its writes in the cache."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, Unpack

from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.lazy import LazyObject
from controller_runtime.apis.machinery.object import Object, Unstructured

from . import interfaces, lazy
from .options import (
    ApplyOptions,
    CreateOptions,
    DeleteAllOfOptions,
    DeleteOptions,
    ListOptions,
    PatchOptions,
    UpdateOptions,
    WriteOptions,
)

T = TypeVar("T", bound=Object)


class CacheReader(interfaces.Reader, Protocol):
    """A Reader over watched kinds that records writes, so that reads never return an older state."""

    def writing(self, obj: Object) -> AbstractContextManager[None]:
        """Return a context for a write of ``obj``, until the write is recorded."""
        ...

    def remember_write(self, obj: Object | LazyObject[Object]) -> None:
        """Record ``obj``, which the server returned for a write."""
        ...

    def uid_of(self, obj: Object) -> str:
        """Return the uid of the cached object with the name of ``obj``, or an empty string."""
        ...

    def remember_delete(self, obj: Object, *, uid: str = "") -> None:
        """Remove ``obj``, which the server has deleted, by its own uid or the given one."""
        ...


class Backend(interfaces.Client, Protocol):
    """A Client that returns the object that remains after a deletion."""

    async def remove(self, obj: Object, **options: Unpack[DeleteOptions]) -> Object | None:
        """Delete as ``delete`` does; return the object while it still exists, None once it is deleted."""
        ...


class CachedClient:
    """A Client over a cache and a live client.

    Reads go to the server for kinds in ``uncached``, for all kinds without a model if ``live_unstructured`` is set, and
    for pages of a list after the first.
    """

    def __init__(
        self,
        live: Backend,
        cache: CacheReader,
        *,
        uncached: Collection[type[Object]] = (),
        live_unstructured: bool = False,
    ) -> None:
        self._live = live
        self._cache = cache
        self._uncached = frozenset(kind.gvk for kind in uncached)
        self._live_unstructured = live_unstructured

    @property
    def status(self) -> CachedSubResource:
        """The writer of ``status``."""
        return self.subresource("status")

    def subresource(self, name: str) -> CachedSubResource:
        """Return the writer of one subresource."""
        return CachedSubResource(self._live.subresource(name), self._cache, returns_object=name == "status")

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        return await self._reader(kind).get(kind, key)

    async def get_lazily(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object undecoded: see :func:`controller_runtime.client.get_lazily`."""
        return await lazy.get_lazily(self._reader(kind), kind, key)

    async def list(self, kind: type[T], **options: Unpack[ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors."""
        reader = self._live if options.get("continue_token") else self._reader(kind)
        return await reader.list(kind, **options)

    async def create(self, obj: T, **options: Unpack[CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        with self._cache.writing(obj):
            stored = await self._live.create(obj, **options)
            return self._remembered(stored, options)

    async def update(self, obj: T, **options: Unpack[UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is not the newest."""
        with self._cache.writing(obj):
            stored = await self._live.update(obj, **options)
            return self._remembered(stored, options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        with self._cache.writing(obj):
            stored = await self._live.patch(obj, patch, **options)
            return self._remembered(stored, options)

    async def apply(self, obj: T, **options: Unpack[ApplyOptions]) -> T:
        """Server-side apply exactly the fields that are set."""
        with self._cache.writing(obj):
            stored = await self._live.apply(obj, **options)
            return self._remembered(stored, options)

    async def apply_lazily(self, obj: T, **options: Unpack[ApplyOptions]) -> LazyObject[T]:
        """Apply as :meth:`apply` does; return the object undecoded."""
        with self._cache.writing(obj):
            stored = await lazy.apply_lazily(self._live, obj, **options)
            if not options.get("dry_run"):
                self._cache.remember_write(stored)
            return stored

    async def delete(self, obj: Object, **options: Unpack[DeleteOptions]) -> None:
        """Delete the object named by ``obj``; preconditions: ``uid``, ``resourceVersion``."""
        uid = (options.get("preconditions") or {}).get("uid") or obj.metadata.uid or self._cache.uid_of(obj)
        left = await self._live.remove(obj, **options)
        if options.get("dry_run"):
            return
        if left is None:
            # Use the uid from before the request: another object of that name may exist by now.
            self._cache.remember_delete(obj, uid=uid)
        else:
            self._cache.remember_write(left)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors; the cache observes the deletions by its watch."""
        await self._live.delete_all_of(kind, **options)

    def _reader(self, kind: type[Object]) -> interfaces.Reader:
        if kind.gvk in self._uncached or (self._live_unstructured and issubclass(kind, Unstructured)):
            return self._live
        return self._cache

    def _remembered(self, stored: T, options: WriteOptions) -> T:
        if not options.get("dry_run"):
            self._cache.remember_write(stored)
        return stored


class CachedSubResource:
    """Writes a subresource; for ``status`` the server returns the whole object, which the cache records."""

    def __init__(
        self, live: interfaces.SubResourceClient, cache: CacheReader, *, returns_object: bool
    ) -> None:
        self._live = live
        self._cache = cache
        self._returns_object = returns_object

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj`` from the server; the cache does not contain subresources."""
        return await self._live.get(obj, into)

    async def create(self, obj: Object, body: T, **options: Unpack[CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj``; the cache observes the result by its watch."""
        return await self._live.create(obj, body, **options)

    async def update(self, obj: T, **options: Unpack[UpdateOptions]) -> T:
        """Replace the subresource."""
        with self._cache.writing(obj):
            stored = await self._live.update(obj, **options)
            return self._remembered(stored, options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]) -> T:
        """Patch the subresource."""
        with self._cache.writing(obj):
            stored = await self._live.patch(obj, patch, **options)
            return self._remembered(stored, options)

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]
    ) -> LazyObject[T]:
        """Patch the subresource; return the object undecoded."""
        with self._cache.writing(obj):
            stored = await lazy.patch_lazily(self._live, obj, patch, **options)
            if self._returns_object and not options.get("dry_run"):
                self._cache.remember_write(stored)
            return stored

    async def apply(self, obj: T, **options: Unpack[ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        with self._cache.writing(obj):
            stored = await self._live.apply(obj, **options)
            return self._remembered(stored, options)

    def _remembered(self, stored: T, options: WriteOptions) -> T:
        if self._returns_object and not options.get("dry_run"):
            self._cache.remember_write(stored)
        return stored
