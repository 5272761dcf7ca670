# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reader, Writer, StatusClient and the Client they add up to; ask for the smallest one you use.

Every call raises :class:`controller_runtime.apis.machinery.errors.StatusError` when the API server refuses and
:class:`controller_runtime.rest.TransportError` when it was not reached. Returned objects belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar, Unpack

from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object

from .options import (
    ApplyOptions,
    CreateOptions,
    DeleteAllOfOptions,
    DeleteOptions,
    ListOptions,
    PatchOptions,
    UpdateOptions,
)

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)


class ObjectList(list[T], Generic[T]):
    """What a list returned, with the list's own metadata."""

    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None


class Patch(Protocol):
    """A patch: what it is called in a Content-Type, and its body for an object."""

    @property
    def content_type(self) -> str:
        """E.g. ``application/merge-patch+json``."""
        ...

    def data(self, obj: Object) -> bytes:
        """Return the request body that turns the stored object into ``obj``."""
        ...


class Reader(Protocol):
    """Reads objects: from the cache where the kind is cached, else from the API server."""

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object at (namespace, name).

        Raises:
            NotFoundError: there is none.
        """
        ...

    async def list(self, kind: type[T], **options: Unpack[ListOptions]) -> ObjectList[T]:
        """Return the objects of ``kind``, in all namespaces unless one is named.

        From a cache, ``fields`` names one registered index and its value; from the server, a field selector.
        """
        ...


class Writer(Protocol):
    """Writes objects. What is returned is the object as stored; the argument is not changed."""

    async def create(self, obj: T, **options: Unpack[CreateOptions]) -> T:
        """Create ``obj``; AlreadyExistsError when its name is taken."""
        ...

    async def update(self, obj: T, **options: Unpack[UpdateOptions]) -> T:
        """Replace the stored object; ConflictError when ``resourceVersion`` is not the newest."""
        ...

    async def patch(self, obj: T, patch: Patch, **options: Unpack[PatchOptions]) -> T:
        """Send ``patch.data(obj)`` to the object named by ``obj``."""
        ...

    async def apply(self, obj: T, **options: Unpack[ApplyOptions]) -> T:
        """Server-side apply ``obj`` as an apply configuration: exactly the fields that are set."""
        ...

    async def delete(self, obj: Object, **options: Unpack[DeleteOptions]) -> None:
        """Delete the object named by ``obj``; preconditions: ``uid``, ``resourceVersion``."""
        ...

    async def delete_all_of(self, kind: type[Object], **options: Unpack[DeleteAllOfOptions]) -> None:
        """Delete the collection that the selectors pick."""
        ...


class ReaderWriter(Reader, Writer, Protocol):
    """Reads and writes objects, but no subresources."""


class SubResourceClient(Protocol):
    """Reads and writes one subresource (``status``, ``scale`` …) and nothing else of an object."""

    async def get(self, obj: Object, into: type[T]) -> T:
        """Return the subresource of ``obj``, always from the server, as an object of ``into`` (e.g. a Scale)."""
        ...

    async def create(self, obj: Object, body: T, **options: Unpack[CreateOptions]) -> T:
        """Post ``body`` to the subresource of ``obj`` (e.g. a TokenRequest, an Eviction); return the answer."""
        ...

    async def update(self, obj: T, **options: Unpack[UpdateOptions]) -> T:
        """Replace the subresource."""
        ...

    async def patch(self, obj: T, patch: Patch, **options: Unpack[PatchOptions]) -> T:
        """Patch the subresource."""
        ...

    async def apply(self, obj: T, **options: Unpack[ApplyOptions]) -> T:
        """Server-side apply the subresource."""
        ...


class StatusClient(Protocol):
    """Something with a ``status`` writer."""

    @property
    def status(self) -> SubResourceClient:
        """The writer of the ``status`` subresource."""
        ...


class Client(Reader, Writer, StatusClient, Protocol):
    """Everything."""

    def subresource(self, name: str) -> SubResourceClient:
        """Return the writer of one subresource."""
        ...


IndexerFunc = Callable[[K], Iterable[str]]


class FieldIndexer(Protocol):
    """Adds an index to a cache, so that ``list(kind, fields={field: value})`` is a look-up."""

    async def index_field(self, kind: type[K], field: str, extract: IndexerFunc[K]) -> None:
        """Index ``kind`` by the values ``extract`` returns; before the cache starts.

        Raises:
            ValueError: the kind has another index of that name.
        """
        ...
