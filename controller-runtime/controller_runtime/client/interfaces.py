# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reader, Writer, StatusClient, and Client, which combines them; annotate parameters with the smallest one.

Every call raises :class:`controller_runtime.machinery.errors.StatusError` if the API server rejects the call, and
:class:`controller_runtime.rest.TransportError` if the server is not reached. Reads from a cache may raise
:class:`controller_runtime.cache.CacheError`. The caller owns returned objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar, Unpack

import msgspec

from controller_runtime.machinery import NamespacedName, Object

from . import options as opts

if TYPE_CHECKING:
    from .watching import Watch

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)


class ObjectList(list[T], Generic[T]):
    """The objects that a list returned, with the metadata of the list."""

    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None
    skipped: Sequence[Exception] = ()
    """One error for each existing object that was left out: the error has the object's name and the reason."""


class Patch(Protocol):
    """A patch: its content type, and its body for an object."""

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

    async def list(self, kind: type[T], **options: Unpack[opts.ListOptions]) -> ObjectList[T]:
        """Return the objects of ``kind``, in all namespaces unless one is named.

        For a cache, ``fields`` maps names of registered indices to values; for the server, ``fields`` is a field
        selector.
        """


class Writer(Protocol):
    """Writes objects. Each call returns the object as stored and does not change its argument."""

    async def create(self, obj: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError if an object of that name exists."""

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the stored object; ConflictError if ``resourceVersion`` is set and not the newest."""

    async def patch(self, obj: T, patch: Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply ``obj`` as an apply configuration of exactly the fields that are set."""

    async def delete(self, obj: Object, **options: Unpack[opts.DeleteOptions]) -> None:
        """Delete the object named by ``obj``; ConflictError if it does not meet the ``preconditions``."""

    async def delete_all_of(self, kind: type[Object], **options: Unpack[opts.DeleteAllOfOptions]) -> None:
        """Delete all objects that match the selectors."""


class ReaderWriter(Reader, Writer, Protocol):
    """Reads and writes objects, but no subresources."""


class SubResourceClient(Protocol):
    """Reads and writes one subresource (``status``, ``scale`` …) of objects."""

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj``, always from the server, as an object of ``into`` (e.g. a Scale)."""

    async def create(self, obj: Object, body: T, **options: Unpack[opts.CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj`` (e.g. a TokenRequest, an Eviction); return the response."""

    async def update(self, obj: T, **options: Unpack[opts.UpdateOptions]) -> T:
        """Replace the subresource."""

    async def patch(self, obj: T, patch: Patch, **options: Unpack[opts.PatchOptions]) -> T:
        """Patch the subresource."""

    async def apply(self, obj: T, **options: Unpack[opts.ApplyOptions]) -> T:
        """Server-side apply the subresource."""


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

    def watch(self, kind: type[T], **options: Unpack[opts.WatchOptions]) -> Watch[T]:
        """Return the changes of ``kind``: see :meth:`LiveClient.watch`."""


class Client(Reader, Writer, StatusClient, Protocol):
    """Reads and writes objects and their subresources."""

    def subresource(self, name: str) -> SubResourceClient:
        """Return the writer of one subresource."""


IndexerFunc = Callable[[K], Iterable[str]]
"""Returns the values by which an object is found."""


class FieldIndexer(Protocol):
    """Adds an index to a cache, which makes ``list(kind, fields={field: value})`` a look-up."""

    async def index_field(
        self,
        kind: type[K],
        field: str,
        extract: IndexerFunc[K],
        *,
        reads: type[msgspec.Struct] | None = None,
    ) -> None:
        """Index ``kind`` by the values that ``extract`` returns. Call it before the cache starts.

        ``reads`` declares the fields that ``extract`` reads. A cache then passes such a struct instead of the object,
        because decoding the struct takes a tenth of the time. If the cache has already decoded the object, it passes
        the object. Other indexers, such as the fake client, always pass the object. Therefore the fields must have the
        same names in the struct as in the kind.

        Raises:
            ValueError: the kind already has an index of that name.
        """
