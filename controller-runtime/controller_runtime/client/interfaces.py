# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reader, Writer, StatusClient, and Client, which combines them; annotate parameters with the smallest one.

Every call raises :class:`controller_runtime.machinery.errors.StatusError` if the API server rejects the call, and
:class:`controller_runtime.rest.TransportError` if the server cannot be reached. Reads from a cache may raise
:class:`controller_runtime.cache.CacheError`. The caller owns returned objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, Protocol, TypeVar, Unpack, overload

import msgspec

from controller_runtime.machinery import LazyObject, NamespacedName, Object
from controller_runtime.rest import request as requests

if TYPE_CHECKING:
    from controller_runtime.apis.autoscaling.v1 import Scale

    from .watching import Watch

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)


_OF_LISTS: Final = {
    "items": ": the list itself contains the objects",
    "metadata": ": use resource_version, continue_token and remaining",
}
"""What replaces the fields of lists in other clients."""


class ObjectList(list[T], Generic[T]):
    """The objects that a list returned, with the metadata of the list."""

    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None
    skipped: Sequence[Exception] = ()
    """One error for each object that exists but was left out; it contains the object's name and the reason."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = _OF_LISTS.get(name, "")
            raise AttributeError(f"ObjectList has no attribute {name}{hint}", name=name, obj=self)


class Patch(Protocol):
    """Supplies the content type and the body of a PATCH request."""

    @property
    def content_type(self) -> str:
        """E.g. ``application/merge-patch+json``."""

    def data(self, obj: Object) -> bytes:
        """Return the request body that turns the stored object into ``obj``."""


class Reader(Protocol):
    """Reads objects from a cache or from the API server, depending on the client and the kind."""

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name).

        Raises:
            NotFoundError: the object does not exist.
        """

    async def list(self, kind: type[T], **options: Unpack[requests.ListOptions]) -> ObjectList[T]:
        """Return the objects of ``kind`` in one namespace or, by default, in all namespaces.

        For a cache, ``fields`` maps names of registered indices to values; for the server, ``fields`` is a field
        selector.
        """


class Writer(Protocol):
    """Writes objects. Each call returns the object as stored and does not change its argument."""

    async def create(self, obj: T, **options: Unpack[requests.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is set and not the newest."""

    async def patch(self, obj: T, patch: Patch, **options: Unpack[requests.PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        """Server-side apply ``obj`` as an apply configuration of exactly the fields that are set."""

    async def delete(self, obj: Object, **options: Unpack[requests.DeleteOptions]) -> None:
        """Delete the object named by ``obj``; ConflictError if it does not meet the ``preconditions``."""

    async def delete_all_of(self, kind: type[Object], **options: Unpack[requests.DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors."""


class ReaderWriter(Reader, Writer, Protocol):
    """Reads and writes objects, but no subresources."""


class SubResourceClient(Protocol):
    """Reads and writes one subresource (``status``, ``scale`` …) of objects."""

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj``, always from the server, as an object of ``into`` (e.g. a Scale)."""

    async def create(self, obj: Object, body: T, **options: Unpack[requests.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj`` (e.g. a TokenRequest, an Eviction); return the response."""

    async def update(self, obj: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the subresource."""

    async def patch(self, obj: T, patch: Patch, **options: Unpack[requests.PatchOptions]) -> T:
        """Patch the subresource."""

    async def apply(self, obj: T, **options: Unpack[requests.ApplyOptions]) -> T:
        """Server-side apply the subresource."""


class ScaleClient(Protocol):
    """Reads and writes the ``scale`` of objects that have replicas, e.g. of Deployments.

    ``obj`` names the object, and a Scale contains the replicas. Only ``spec.replicas`` of a Scale can be changed. If a
    written Scale has a resourceVersion, it must be the newest version of the object, as in an update of the object.
    """

    @overload
    async def get(self, obj: Object) -> Scale: ...
    @overload
    async def get(self, obj: Object, into: type[T]) -> T: ...

    async def update(self, obj: Object, scale: T, **options: Unpack[requests.UpdateOptions]) -> T:
        """Replace the scale of ``obj``; ConflictError if the Scale's ``resourceVersion`` is not the newest."""

    async def patch(
        self, obj: Object, patch: Patch, scale: Scale | None = None, **options: Unpack[requests.PatchOptions]
    ) -> Scale:
        """Send ``patch.data(scale)`` to the scale of ``obj``; a raw patch needs no ``scale``."""

    async def apply(self, obj: Object, scale: T, **options: Unpack[requests.ApplyOptions]) -> T:
        """Server-side apply the fields of ``scale`` that are set. API servers refuse this for custom kinds (500)."""


class LogClient(Protocol):
    """Reads the logs of containers."""

    async def get(self, pod: Object, **options: Unpack[requests.LogOptions]) -> str:
        """Return the log. If it has more than 16 MiB, this is an AnswerError: use ``limit_bytes`` or :meth:`stream`."""

    def stream(
        self, pod: Object, *, follow: bool = False, **options: Unpack[requests.LogOptions]
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Return the log's lines as they arrive.

        ::

            async with client.subresource("log").stream(pod, follow=True) as lines:
                async for line in lines:
                    print(line)

        With ``follow``, the lines end when the container ends.
        """


class StatusClient(Protocol):
    """Provides a writer of the ``status`` subresource."""

    @property
    def status(self) -> SubResourceClient:
        """The writer of the ``status`` subresource."""


EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """A change. For DELETED, ``object`` is the last state of the object."""

    type: EventType
    object: T


class Watcher(Protocol):
    """Watches without a cache, as :class:`LiveClient` and :class:`controller_runtime.fake.FakeClient` do."""

    def watch(self, kind: type[T], **options: Unpack[requests.WatchOptions]) -> Watch[T]:
        """Return the changes of ``kind``: see :meth:`LiveClient.watch`."""


class Client(Reader, Writer, StatusClient, Protocol):
    """Reads and writes objects and their subresources."""

    @overload
    def subresource(self, name: Literal["scale"]) -> ScaleClient: ...  # type: ignore[overload-overlap]  # a name is typed by its value
    @overload
    def subresource(self, name: Literal["log"]) -> LogClient: ...  # type: ignore[overload-overlap]  # a name is typed by its value
    @overload
    def subresource(self, name: str) -> SubResourceClient: ...

    def subresource(self, name: str) -> Any:
        """Return a client of one subresource, such as ``scale``, ``log``, ``eviction`` or ``token``."""


IndexerFunc = Callable[[K], Iterable[str]]
"""Returns the values of an object in an index: a list with one of these values contains the object."""


class FieldIndexer(Protocol):
    """Adds an index to a cache: ``list(kind, fields={field: value})`` then uses it instead of reading all objects."""

    async def index_field(
        self,
        kind: type[K],
        field: str,
        extract: IndexerFunc[K],
        *,
        reads: type[msgspec.Struct] | None = None,
    ) -> None:
        """Index ``kind`` by the values that ``extract`` returns. Call this method before the cache starts.

        ``reads`` is a struct class with the fields that ``extract`` needs. A cache passes an instance of it to
        ``extract`` if the object is not decoded yet: decoding only these fields takes a tenth of the time. Otherwise,
        and in other indexers such as the fake client, ``extract`` gets the object itself. The fields must therefore
        have the same names in the struct as in the kind.

        Raises:
            ValueError: the kind already has an index of that name.
        """


# Reads and writes that return objects undecoded, for clients whose class supports it. The instance of a client is not
# checked, because its ``__getattr__`` may return the method of a client that the instance wraps.


def peek(
    reader: Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> Coroutine[Any, Any, LazyObject[T]]:
    """Return the object of ``reader.get``, undecoded if the reader has a method ``peek``.

    The object is shared: do not change it. A cache keeps the objects that were read most recently, so that several
    readers decode each of them only once. Raises like ``reader.get``. If the object does not match ``kind``, the error
    is raised later, when the object is decoded.
    """
    if not hasattr(type(reader), "peek"):
        return _got(reader, kind, key)
    lazy: Any = reader
    result: Coroutine[Any, Any, LazyObject[T]] = lazy.peek(kind, key)
    return result  # clients wrap each other: a client that only passes a read on should not add a coroutine


async def _got(reader: Reader, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
    return LazyObject.of(await reader.get(kind, key))


async def apply_lazily(
    writer: Writer | SubResourceClient, obj: T, **options: Unpack[requests.ApplyOptions]
) -> LazyObject[T]:
    """Apply as ``writer.apply`` does. The returned object is undecoded if the writer has a method ``apply_lazily``."""
    if not hasattr(type(writer), "apply_lazily"):
        return LazyObject.of(await writer.apply(obj, **options))
    lazy: Any = writer
    stored: LazyObject[T] = await lazy.apply_lazily(obj, **options)
    return stored


async def patch_lazily(
    writer: Writer | SubResourceClient,
    obj: T,
    patch: Patch,
    **options: Unpack[requests.PatchOptions],
) -> LazyObject[T]:
    """Patch as ``writer.patch`` does. The returned object is undecoded if the writer has a method ``patch_lazily``."""
    if not hasattr(type(writer), "patch_lazily"):
        return LazyObject.of(await writer.patch(obj, patch, **options))
    lazy: Any = writer
    stored: LazyObject[T] = await lazy.patch_lazily(obj, patch, **options)
    return stored
