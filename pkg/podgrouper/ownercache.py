# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owners remembered: read once, then known until their watch says that they changed.

An owner's metadata comes from a watch of its kind's metadata, which begins with the first owner of that kind that
could be read. What a grouper needs beside it is asked once per generation (or version, as the grouper ``reads``), and kept
as text. Nothing is decoded for a pod whose owners have not changed since the pod before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import anyio
import msgspec

from pkg.apis.core.v1 import Pod
from pkg.apis.machinery.errors import ForbiddenError, NotFoundError
from pkg.apis.machinery.gvk import GVK, NamespacedName
from pkg.apis.machinery.object import (
    Object,
    ObjectMeta,
    OwnerReference,
    PartialObjectMetadata,
    Unstructured,
    metadata_only,
    unstructured,
)
from pkg.ctrl import cache, client
from pkg.ctrl.cache.codec import older

from .changed import changed
from .owners import kind_of
from .plugins import Reads
from .podgroup import KeyedLocks

T = TypeVar("T", bound=Object)

CAPACITY: Final = 10_000
"""Owners remembered; beyond, those looked at longest ago are read anew when needed."""
UNWATCHED_TTL: Final = 10.0
"""Seconds for which an owner is believed whose kind may be read but not watched, and a refusal to read one."""

_Key = tuple[GVK, str, str]


class Informers(Protocol):
    """What is needed of a cache."""

    async def get_informer(self, kind: type[T]) -> cache.Informer[T]:
        """Return the informer of ``kind``, which starts now if the cache runs."""
        ...

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return the object as last seen; NotFoundError when there is none."""
        ...


class _Known:
    """What is known of an owner."""

    __slots__ = ("expires", "generation", "metadata", "refusal", "rest", "uid", "version")

    def __init__(self) -> None:
        self.metadata: PartialObjectMetadata | None = None
        self.refusal: ForbiddenError | None = None
        self.expires: float | None = None
        """Until when metadata or refusal are believed; None is until the watch tells."""
        self.rest = b""
        """Everything beside the metadata, as JSON; of the object with this UID, generation and version."""
        self.uid: str | None = None
        self.generation: int | None = None
        self.version: str | None = None


class OwnerCache:
    """Owners by a cache's watches, and by one read each of what those do not tell; a Reader for groupers, too.

    What ``metadata`` and ``instance`` return is shared: it may not be changed. ``reads`` says how much of a kind is
    looked at by whoever reads an owner by name.
    """

    def __init__(
        self,
        live: client.Reader,
        cached: client.Reader,
        informers: Informers,
        *,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._live = live
        self._cached = cached
        self._informers = informers
        self._clock = clock
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._watched: dict[GVK, cache.Informer[Any]] = {}
        self._locks: KeyedLocks[_Key] = KeyedLocks()
        self.reads: Callable[[GVK], Reads] = lambda _kind: Reads.OBJECT

    # Owners.

    async def metadata(self, owner: OwnerReference, namespace: str) -> PartialObjectMetadata:
        """Return the metadata of the object that ``owner`` names, whatever its UID.

        Raises:
            StatusError, RestError: it cannot be read.
        """
        kind = kind_of(owner)
        found = await self._metadata(kind, namespace, owner.name)
        if (found.metadata.uid or "") != owner.uid and kind in self._watched:
            # The watch may not have told yet that the name was given to another object.
            self._drop((kind, namespace, owner.name))
            found = await self._read_metadata((kind, namespace, owner.name))
        return found

    async def instance(self, owner: Object, reads: Reads) -> Unstructured:
        """Return the object whose metadata is ``owner``, at least the parts that ``reads`` names.

        Raises:
            StatusError, RestError, CacheError: it cannot be read.
        """
        kind, meta = type(owner).gvk, owner.metadata
        if reads is Reads.METADATA:
            return _assembled(kind, meta, {})
        if kind == Pod.gvk:
            return await self._informers.get(unstructured(kind), owner.key)
        key = (kind, owner.namespace, owner.name)
        known = self._remember(key)
        if not _has(known, meta, reads):
            async with self._locks.holding(key):
                known = self._remember(key)
                if not _has(known, meta, reads):
                    return await self._read(key, known, reads)
        return _assembled(kind, meta, msgspec.json.decode(known.rest))

    # Reader.

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object by name: an unstructured one as an owner is read, any other from the cache.

        Of an unstructured one, what its own grouper does not look at may be old or missing.
        """
        if not issubclass(kind, Unstructured):
            return await self._cached.get(kind, key)
        if kind.gvk == Pod.gvk:
            return await self._informers.get(kind, key)
        found = await self.instance(await self._metadata(kind.gvk, *key), self.reads(kind.gvk))
        found.metadata = found.metadata.deep_copy()
        return found  # type: ignore[return-value]  # of that very kind

    async def list(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        labels: client.LabelSelectorLike | None = None,
        fields: Mapping[str, str] | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> client.ObjectList[T]:
        """Return what the cache, or for unstructured kinds the server, lists."""
        return await self._cached.list(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_token=continue_token,
        )

    # Remembering.

    async def _metadata(self, kind: GVK, namespace: str, name: str) -> PartialObjectMetadata:
        if kind == Pod.gvk:
            return await self._pod_metadata(namespace, name)
        key = (kind, namespace, name)
        known = self._known.get(key)
        if known is not None and self._is_believed(known, kind):
            self._known.move_to_end(key)
            if known.refusal is not None:
                raise known.refusal
            if known.metadata is not None:
                return known.metadata
        async with self._locks.holding(key):
            known = self._known.get(key)
            if known is not None and known.metadata is not None and self._is_believed(known, kind):
                return known.metadata
            if self._is_watched(kind):
                try:
                    found = await self._informers.get(metadata_only(kind), (namespace, name))
                except NotFoundError:
                    pass  # the watch may be behind, or the kind belongs to no namespace
                else:
                    return self._learn(key, found)
            return await self._read_metadata(key)

    async def _pod_metadata(self, namespace: str, name: str) -> PartialObjectMetadata:
        """Return a pod's metadata out of the pods that are watched anyway, else from the server."""
        try:
            pod = await self._informers.get(Pod, (namespace, name))
        except NotFoundError:
            return await self._live.get(metadata_only(Pod), (namespace, name))
        kind = metadata_only(Pod)
        return kind.model_construct(
            api_version=kind.gvk.api_version, kind=kind.gvk.kind, metadata=pod.metadata
        )

    async def _read_metadata(self, key: _Key) -> PartialObjectMetadata:
        kind, namespace, name = key
        try:
            found = await self._live.get(metadata_only(kind), (namespace, name))
        except ForbiddenError as error:
            known = self._remember(key)
            known.refusal, known.expires = error, self._clock() + UNWATCHED_TTL
            raise
        await self._watch(kind)
        return self._learn(key, found)

    async def _read(self, key: _Key, known: _Known, reads: Reads) -> Unstructured:
        kind, namespace, name = key
        found = await self._live.get(unstructured(kind), (namespace, name))
        meta, rest = found.metadata, found.__pydantic_extra__ or {}
        known.uid, known.generation, known.version = meta.uid, meta.generation, meta.resource_version
        if reads is Reads.SPEC and meta.generation:
            # Not kept, and so of no version: who looks at the status reads it.
            rest, known.version = {key: value for key, value in rest.items() if key != "status"}, None
        known.rest = msgspec.json.encode(rest)
        return found

    def _learn(self, key: _Key, found: PartialObjectMetadata) -> PartialObjectMetadata:
        known = self._remember(key)
        known.metadata, known.refusal = found, None
        # A namespace the object does not have is one under which no watch tells of it.
        told = self._is_watched(key[0]) and found.namespace == key[1]
        known.expires = None if told else self._clock() + UNWATCHED_TTL
        return found

    def _remember(self, key: _Key) -> _Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known()
            while len(self._known) > CAPACITY:
                self._known.popitem(last=False)
        return known

    def _is_believed(self, known: _Known, kind: GVK) -> bool:
        if known.expires is not None:
            return self._clock() < known.expires
        return self._is_watched(kind)

    def _is_watched(self, kind: GVK) -> bool:
        informer = self._watched.get(kind)
        return informer is not None and informer.has_synced and informer.problem is None

    async def _watch(self, kind: GVK) -> None:
        """Have the kind watched. Only kinds of which an object could be read are: no reference makes one up."""
        if kind in self._watched:
            return
        informer = self._watched[kind] = await self._informers.get_informer(changed(kind))
        informer.add_event_handler(
            cache.EventHandlerFuncs(
                on_add=lambda obj, _initial: self._forget(obj),
                on_update=lambda _old, obj: self._forget(obj),
                on_delete=lambda obj, _unknown: self._drop((kind, obj.namespace, obj.name)),
            )
        )

    def _forget(self, obj: Object) -> None:
        """Believe what is known no more, unless the watch tells of just that, as its first list mostly does."""
        known = self._known.get((type(obj).gvk, obj.namespace, obj.name))
        if known is None:
            return
        if known.metadata is not None and not _is_news(obj.metadata, known.metadata.metadata):
            return
        known.metadata = known.refusal = None

    def _drop(self, key: _Key) -> None:
        self._known.pop(key, None)


def _is_news(told: ObjectMeta, known: ObjectMeta) -> bool:
    version, have = told.resource_version or "", known.resource_version or ""
    return (told.uid, version) != (known.uid, have) and not older(version, have)


def _has(known: _Known, meta: ObjectMeta, reads: Reads) -> bool:
    if not known.rest or known.uid != meta.uid:
        return False
    if reads is Reads.SPEC and meta.generation:
        return known.generation == meta.generation
    return known.version == meta.resource_version


def _assembled(kind: GVK, meta: ObjectMeta, rest: dict[str, Any]) -> Unstructured:
    cls = unstructured(kind)
    made = cls.model_construct(api_version=kind.api_version, kind=kind.kind, metadata=meta)
    object.__setattr__(made, "__pydantic_extra__", rest)
    return made
