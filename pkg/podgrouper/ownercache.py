# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of owners: each is read once and kept until its watch reports a change.

Metadata of an owner whose kind has a grouper comes from a metadata watch of that kind, which starts when the first
owner of the kind is read successfully. Other parts that a grouper needs are read once per generation (or version, as
the grouper's ``reads`` declares) and kept as JSON text. A pod whose owners have not changed causes no decoding.

Owners of other kinds are read one at a time per namespace and cached for a short time. These reads, and reads that
fail, are charged to the namespace's budget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, Unpack

import anyio
import msgspec
from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.cache import older
from controller_runtime.machinery import (
    GVK,
    JSON,
    LazyObject,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    Unstructured,
    metadata_only,
    unstructured,
)
from controller_runtime.machinery.errors import NotFoundError

from .budget import REQUEST
from .costs import Costs
from .memory import Key, Known, Memory
from .owners import kind_of, pod_as_owner
from .ownerwatch import OwnerWatches, Watches
from .plugins import Reads
from .podgroup import KeyedLocks

T = TypeVar("T", bound=Object)


class Kinds(Protocol):
    """The part of the hub that the cache uses."""

    def reads(self, kind: GVK) -> Reads:
        """Return how much of an owner of ``kind`` is read."""
        ...

    def watches(self, kind: GVK) -> bool:
        """Return True if owners of ``kind`` may be watched."""
        ...


class OwnerCache:
    """Owners from a cache's watches, and from single reads for the rest; also a Reader for groupers.

    Results of ``metadata`` and ``instance`` are shared and must not be changed. ``served`` fails for a kind that the
    server does not serve, so nothing is created or kept for invented kinds. ``kinds`` is set when the hub exists.
    """

    kinds: Kinds

    def __init__(
        self,
        live: client.Reader,
        cached: client.Reader,
        informers: Watches,
        *,
        served: Callable[[GVK], Awaitable[object]] | None = None,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._live = live
        self._cached = cached
        self._informers = informers
        self.costs = Costs(served, clock)
        self._memory = Memory()
        self._watches = OwnerWatches(informers, self._memory, clock)
        self._locks: KeyedLocks[Key] = KeyedLocks()

    # Owners.

    async def metadata(self, owner: OwnerReference, namespace: str) -> PartialObjectMetadata:
        """Return the metadata of the object that ``owner`` names, whatever its UID.

        Raises:
            InvalidOwnerError: no object can match the reference.
            OverBudgetError: the namespace has used its share.
            StatusError, RestError: it cannot be read.
        """
        kind = kind_of(owner)
        found = await self._metadata(kind, namespace, owner.name)
        if (found.metadata.uid or "") != owner.uid and kind in self._watches:
            # The watch may not have reported yet that the name belongs to another object.
            key = (kind, namespace, owner.name)
            async with self._locks.holding(key):
                found = await self._read_metadata(key)
            if (found.metadata.uid or "") != owner.uid:
                self.costs.budget.spend(namespace, REQUEST)
        return found

    async def instance(self, owner: Object, reads: Reads) -> Unstructured:
        """Return the object whose metadata is ``owner``, at least the parts that ``reads`` names.

        Raises:
            OverBudgetError: the namespace has used its share.
            StatusError, RestError, CacheError: it cannot be read.
        """
        kind, meta = type(owner).gvk, owner.metadata
        if reads is Reads.METADATA:
            return _assembled(kind, meta, {})
        if kind == Pod.gvk:
            return await self._pod(owner.key)
        key = (kind, owner.namespace, owner.name)
        known = self._memory.find(key)
        if known is None or not _has(known, meta, reads):
            async with self._locks.holding(key):
                known = self._memory.find(key)
                if known is None or not _has(known, meta, reads):
                    return await self._read(key, meta, reads)
        with self.costs.decoding(owner.namespace, known.rest):
            return _assembled(kind, meta, msgspec.json.decode(known.rest))

    def is_current(self, owner: PartialObjectMetadata, namespace: str) -> bool:
        """Return False if the watch has reported a change since :meth:`metadata` returned ``owner``, or may have.

        A pod as an owner counts as current: its cache is read each time.
        """
        kind = type(owner).gvk
        return kind == Pod.gvk or self._watches.is_current((kind, namespace, owner.name), owner)

    # Reader.

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object by name: an unstructured object is read as an owner, any other from the cache.

        Parts of an unstructured object that its own grouper does not read may be stale or missing.
        """
        if not issubclass(kind, Unstructured):
            return await self._cached.get(kind, key)
        if kind.gvk == Pod.gvk:
            return await self._pod(NamespacedName(*key))  # type: ignore[return-value]  # of that very kind
        found = await self.instance(await self._metadata(kind.gvk, *key), self.kinds.reads(kind.gvk))
        found.metadata = found.metadata.deep_copy()
        return found  # type: ignore[return-value]  # of that very kind

    async def peek(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object of :meth:`get`, undecoded if it comes from the cache."""
        if not issubclass(kind, Unstructured):
            return await client.peek(self._cached, kind, key)
        return LazyObject.of(await self.get(kind, key))

    async def list(self, kind: type[T], **options: Unpack[client.ListOptions]) -> client.ObjectList[T]:
        """Return the list from the cache, or from the server for unstructured kinds."""
        return await self._cached.list(kind, **options)

    # Reading.

    async def _metadata(self, kind: GVK, namespace: str, name: str) -> PartialObjectMetadata:
        key = (kind, namespace, name)
        if kind == Pod.gvk:
            try:
                return await self._pod_metadata(namespace, name)
            except NotFoundError:
                pass  # of another scheduler, or ended
        if (known := self._believed(key)) is not None:
            return known
        self.costs.check_turn(namespace, alone=not self.kinds.watches(kind))
        async with self._locks.holding(key):
            if (known := self._believed(key)) is not None:
                return known
            with self._watches.reading(key) as news:
                if (found := await self._observed(key)) is not None:
                    return self._watches.learn(key, found, news)
            return await self._read_metadata(key)

    def _believed(self, key: Key) -> PartialObjectMetadata | None:
        """Return the cached metadata while it is valid. Raises the cached refusal."""
        self.costs.check_refusal(*key[:2])
        return self._watches.believed(key)

    async def _pod_metadata(self, namespace: str, name: str) -> PartialObjectMetadata:
        """Return a pod's metadata from the watch of pods."""
        return pod_as_owner(await self._informers.get(Pod, (namespace, name)))

    async def _pod(self, key: NamespacedName) -> Unstructured:
        try:
            return await self._informers.get(unstructured(Pod.gvk), key)
        except NotFoundError:
            async with self.costs.reading(Pod.gvk, key.namespace, alone=True):
                return await self._live.get(unstructured(Pod.gvk), key)

    async def _read_metadata(self, key: Key) -> PartialObjectMetadata:
        kind, namespace, name = key
        with self._watches.reading(key) as news:
            async with self.costs.reading(kind, namespace, alone=not self.kinds.watches(kind)):
                found = await self._live.get(metadata_only(kind), (namespace, name))
            if self.kinds.watches(kind):
                await self._watches.start(kind)
            seen = await self._observed(key)
            found = self._watches.learn(key, found, news, reported=seen is not None)
        if seen is not None and older(
            found.metadata.resource_version or "", seen.metadata.resource_version or ""
        ):
            # A lagging server must not hide what the watch has reported.
            return self._watches.learn(key, seen)
        return found

    async def _observed(self, key: Key) -> PartialObjectMetadata | None:
        """Return the metadata that the watch of the kind has reported, if there is a watch and it has."""
        if not self._watches.cover(key[0]):
            return None
        try:
            return await self._watches.observed(key)
        except NotFoundError:
            return None  # the watch may lag, or the kind is cluster-scoped

    async def _read(self, key: Key, meta: ObjectMeta, reads: Reads) -> Unstructured:
        kind, namespace, name = key
        async with self.costs.reading(kind, namespace, alone=not self.kinds.watches(kind)):
            found = await self._live.get(unstructured(kind), (namespace, name))
        read, rest = found.metadata, found.unknown_fields
        known = self._memory.find(key) or Known()
        known.uid, known.generation, known.version = read.uid, read.generation, read.resource_version
        if reads is Reads.SPEC and read.generation:
            # Kept without status and version: a grouper that needs the status reads the object again.
            rest, known.version = {key: value for key, value in rest.items() if key != "status"}, None
        known.rest = msgspec.json.encode(rest)
        self._memory.keep(key, known)
        if read.uid == meta.uid and older(read.resource_version or "", meta.resource_version or ""):
            return _assembled(kind, meta, found.unknown_fields)
        return found


def _has(known: Known, meta: ObjectMeta, reads: Reads) -> bool:
    if not known.rest or known.uid != meta.uid:
        return False
    if reads is Reads.SPEC and meta.generation:
        return known.generation == meta.generation
    return known.version == meta.resource_version


def _assembled(kind: GVK, meta: ObjectMeta, rest: dict[str, JSON]) -> Unstructured:
    made = unstructured(kind).of_metadata(meta)
    made.set_unknown_fields(rest)
    return made
