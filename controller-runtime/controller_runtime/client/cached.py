# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CachedClient reads from a cache and records its writes there. ReadThrough reads from a cache or from the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar, Unpack, cast

import anyio

from controller_runtime.machinery import LazyObject, NamespacedName, Object, Unstructured
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.object import check_kind, check_object
from controller_runtime.machinery.tokenbucket import TokenBucket
from controller_runtime.rest import RestError
from controller_runtime.rest import request as requests

from . import interfaces, subresources
from .wrappers import ReadOnly

T = TypeVar("T", bound=Object)
S = TypeVar("S", bound="Object | LazyObject[Object]")
_RATE: Final = 10.0
_BURST: Final = 50
_LOOKUP_TIMEOUT: Final = 2.0
_LONGEST_NAME: Final = 253
"""Maximum number of characters of an object's name. Longer names, as in an invalid reference, are not looked up."""


class CacheReader(interfaces.Reader, Protocol):
    """A Reader over watched kinds. It records writes, so that later reads do not return a state from before a write."""

    def writing(self, obj: Object) -> AbstractContextManager[None]:
        """Return a context in which ``obj`` is written and the write is recorded."""

    def remember_write(self, obj: Object | LazyObject[Object]) -> None:
        """Record ``obj``, which the server returned for a write."""

    def uid_of(self, obj: Object) -> str:
        """Return the uid of the cached object with the name of ``obj``, or an empty string."""

    def remember_delete(self, obj: Object, *, uid: str = "") -> None:
        """Hide ``obj``, which the server has deleted, from reads; ``uid`` takes precedence over the uid in ``obj``."""


class LazyWriter(Protocol):
    """Writes objects or one of their subresources, and returns the answers of patches undecoded."""

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the stored object."""

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]
    ) -> LazyObject[T]:
        """Patch the object."""

    async def apply_lazily(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> LazyObject[T]:
        """Server-side apply the object."""


class LazySubResource(interfaces.SubResourceClient, LazyWriter, Protocol):
    """Writes one subresource."""


class Backend(interfaces.Client, LazyWriter, Protocol):
    """The live client below a CachedClient. It can delete an object and return it if it still exists afterwards."""

    async def remove(
        self, obj: Object, **options: Unpack[requests.DeleteOptions]
    ) -> LazyObject[Object] | None:
        """Delete as ``delete`` does; return the object if it still exists, e.g. because of a finalizer, or None."""


class _CachedWriter:
    """Changes objects, or one of their subresources, and records the objects that the server returns."""

    _live: LazyWriter

    def __init__(self, cache: CacheReader, *, returns_object: bool = True) -> None:
        self._cache = cache
        self._returns_object = returns_object

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is set and not the newest."""
        return await self._recorded(obj, partial(self._live.update, obj, **options), options)

    async def patch(self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        write = partial(self._live.patch_lazily, obj, patch, **options)
        return (await self._recorded(obj, write, options, decode=True)).object

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[requests.PatchOptions]
    ) -> LazyObject[T]:
        """Patch as :meth:`patch` does; return the object undecoded."""
        return await self._recorded(obj, partial(self._live.patch_lazily, obj, patch, **options), options)

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        """Server-side apply exactly the fields that are set."""
        write = partial(self._live.apply_lazily, obj, **options)
        return (await self._recorded(obj, write, options, decode=True)).object

    async def apply_lazily(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> LazyObject[T]:
        """Apply as :meth:`apply` does; return the object undecoded."""
        return await self._recorded(obj, partial(self._live.apply_lazily, obj, **options), options)

    async def _recorded(
        self,
        obj: Object,
        write: Callable[[], Awaitable[S]],
        options: requests.WriteOptions,
        *,
        decode: bool = False,
    ) -> S:
        """Write, and record the object in the response.

        With ``decode``, decode a lazy object first, so that an invalid response is an error and is not recorded.
        """
        if Object not in type(obj).__mro__:
            return await write()  # which raises the error for this argument
        with self._cache.writing(obj):
            try:
                stored = await write()
            except NotFoundError as error:
                self._record_absence(obj, obj.metadata.uid, error, options)
                raise
            if decode and isinstance(stored, LazyObject):
                stored.object  # noqa: B018  # reading ``object`` decodes it
            if self._returns_object and not options.get("dry_run"):
                self._cache.remember_write(stored)
            return stored

    def _record_absence(
        self,
        obj: Object,
        uid: str | None,
        error: NotFoundError,
        options: requests.WriteOptions | requests.DeleteOptions,
    ) -> None:
        """Record that ``obj`` does not exist.

        Nothing is recorded if ``error`` is about another object, such as the namespace of ``obj``.
        """
        kind = type(obj)
        if uid and error.is_about(kind.gvk, kind.resource, obj.name) and not options.get("dry_run"):
            self._cache.remember_delete(obj, uid=uid)


class CachedClient(_CachedWriter, subresources.ByName["CachedSubResource"]):
    """A Client over a cache and a live client.

    Kinds in ``uncached`` are read from the server. So are kinds without a model if ``live_unstructured`` is set. If
    this client deletes an object, or if the server answers a write with 404, reads no longer find the object, even
    before the watch reports its deletion. A new object of the same name is found, because it has another uid.
    """

    _live: Backend

    def __init__(
        self,
        live: Backend,
        cache: CacheReader,
        *,
        uncached: Collection[type[Object]] = (),
        live_unstructured: bool = False,
    ) -> None:
        super().__init__(cache)
        self._live = live
        self._uncached = frozenset(kind.gvk for kind in uncached)
        self._live_unstructured = live_unstructured

    @property
    def status(self) -> CachedSubResource:
        """The writer of ``status``."""
        return self.subresource("status")

    def _subresource(self, name: str) -> CachedSubResource:
        live = cast("LazySubResource", self._live.subresource(name))
        return CachedSubResource(live, self._cache, name)

    def _scales(self) -> interfaces.ScaleClient:
        return self._live.subresource("scale")

    def _logs(self) -> interfaces.LogClient:
        return self._live.subresource("log")

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        return await self._reader(kind).get(kind, key)

    def peek(
        self, kind: type[T], key: NamespacedName | tuple[str, str]
    ) -> Coroutine[Any, Any, LazyObject[T]]:
        """Return the object undecoded: see :func:`controller_runtime.client.peek`."""
        return interfaces.peek(self._reader(kind), kind, key)

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> interfaces.ObjectList[T]:
        """Return the objects that match the selectors."""
        return await self._reader(kind).list(kind, **options)

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""
        return await self._recorded(obj, partial(self._live.create, obj, **options), options)

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        """Delete the object named by ``obj``; ConflictError if it does not meet the ``preconditions``."""
        requests.check_options(requests.DeleteOptions, options)
        check_object(obj)
        uid = (options.get("preconditions") or {}).get("uid") or obj.metadata.uid or self._cache.uid_of(obj)
        try:
            left = await self._live.remove(obj, **options)
        except NotFoundError as error:
            self._record_absence(obj, uid, error, options)
            raise
        if options.get("dry_run"):
            return
        if left is None:
            # Use the uid from before the request: another object of that name may exist by now.
            self._cache.remember_delete(obj, uid=uid)
        else:
            self._cache.remember_write(left)

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors; the cache sees the deletions when its watch reports them."""
        await self._live.delete_all_of(kind, **options)

    def _reader(self, kind: type[Object]) -> interfaces.Reader:
        try:
            live = self._live_unstructured and Unstructured in kind.__mro__
            live = live or (bool(self._uncached) and kind.gvk in self._uncached)
        except (AttributeError, TypeError):
            check_kind(kind)
            raise
        return self._live if live else self._cache  # which check the kind


class CachedSubResource(_CachedWriter):
    """Writes a subresource. After a write of ``status``, the cache records the whole object that the server returns."""

    _live: LazySubResource

    def __init__(self, live: LazySubResource, cache: CacheReader, name: str) -> None:
        super().__init__(cache, returns_object=name == "status")
        self._live = live

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj`` from the server; the cache does not contain subresources."""
        return await self._live.get(obj, into)

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj``; the cache sees the result when its watch reports it."""
        return await self._live.create(obj, body, **options)


class ReadThrough(ReadOnly):
    """Reads from ``cached``. An object of ``kinds`` that is missing there is looked up on the server with ``live``.

    This matters if a user creates an object and, shortly afterwards, a second one that refers to it: the watch may not
    have reported the first object yet. The look-up is a list limited to one name: a program that may watch a kind
    usually has the permission to list it, too. After a burst of 50, at most ten look-ups are sent per second; each may
    take two seconds. Beyond these limits, the object is reported as missing.
    """

    def __init__(
        self, cached: interfaces.Reader, live: interfaces.Reader, kinds: Collection[type[Object]]
    ) -> None:
        super().__init__(cached)
        self._live = live
        self._kinds = frozenset(kind.gvk for kind in kinds)
        self._bucket = TokenBucket(_RATE, _BURST)

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name); NotFoundError if it does not exist."""
        try:
            return await super().get(kind, key)
        except NotFoundError:
            if (stored := await self._look_up(kind, key)) is None:
                raise
            return stored

    async def peek(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object undecoded: see :func:`controller_runtime.client.peek`."""
        try:
            return await super().peek(kind, key)
        except NotFoundError:
            if (stored := await self._look_up(kind, key)) is None:
                raise
            return LazyObject.of(stored)

    async def _look_up(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T | None:
        """Return the object from the server.

        Return None if it is not there, if the request fails, or if no request is allowed.
        """
        namespace, name = NamespacedName.of(key)
        if kind.gvk in self._kinds and 0 < len(name) <= _LONGEST_NAME and self._bucket.try_take():
            with anyio.move_on_after(_LOOKUP_TIMEOUT), suppress(StatusError, RestError):
                for stored in await self._live.list(
                    kind, namespace=namespace, fields={"metadata.name": name}
                ):
                    return stored
        return None
