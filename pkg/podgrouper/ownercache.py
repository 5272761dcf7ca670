# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cache of owners. It watches the metadata of each kind and remembers the results of single reads.

The watch of a kind starts when the first owner of the kind is read successfully, if the hub permits watching the kind.
Metadata that no watch reports is remembered for :data:`READ_TTL` seconds. The content of an owner is remembered as JSON
text. It is read again when the owner's generation changes or, if the grouper also needs the status, when the resource
version changes.

Tenants choose the owner references of their pods. The memory therefore has a limit. Reads that fail, and reads of kinds
that may not be watched, are charged to the budget of the pod's namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar, Unpack

import anyio
import msgspec
from controller_runtime import cache, client, source
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
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.machinery.locks import KeyedLocks
from controller_runtime.rest import TransportTimeoutError

from pkg import metrics

from .budget import REQUEST, Budget
from .hub import PluginsHub, new_plugins_hub
from .owners import kind_of, pod_as_owner
from .plugins import Key, Reads, inputs
from .podgroup import FairCache
from .regrouping import Regrouping

T = TypeVar("T", bound=Object)

READ_TTL: Final = 10.0
"""How long we remember metadata that no watch reports, in seconds. A refused read is remembered for the same time."""
READ_TIMEOUT: Final = 5.0
"""How long a worker waits until an owner has been read, in seconds."""
CAPACITY: Final = 64 * 2**20
"""Approximate maximum size of all remembered contents in bytes. Remembered metadata may take another quarter of this
size.
"""
_OVERHEAD: Final = 1024
"""Bytes that a remembered text takes in addition to its length."""

ContentVersion = tuple[str | None, int | str | None]
"""UID, and generation or resource version."""


class _Metadata(NamedTuple):
    """The metadata of an owner, or why owners of its kind cannot be read in a namespace; the key then has no name."""

    text: bytes
    version: str
    refusal: ForbiddenError | None = None


class _Content(NamedTuple):
    """All fields of an owner except its metadata. The status may be missing too."""

    text: bytes
    versions: set[ContentVersion]


class OwnerCache:
    """Returns owners from metadata watches, or by reading single objects. Groupers use it as their Reader.

    Results of ``metadata`` and ``instance`` are shared and must not be changed. ``served`` raises an error for a kind
    that the server does not serve, so an invented kind starts no watch and takes no memory. ``new_hub`` makes the hub,
    whose groupers read through this cache.
    """

    def __init__(
        self,
        live: client.Reader,
        cached: client.Reader,
        informers: source.Informers,
        new_hub: Callable[[client.Reader], PluginsHub] = new_plugins_hub,
        *,
        served: Callable[[GVK], Awaitable[object]] | None = None,
        regrouping: Regrouping | None = None,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._live = live
        self._cached = cached
        self._informers = informers
        self._served = served
        self._regrouping = regrouping or Regrouping()
        self._clock = clock
        self.budget = Budget(clock)
        self._watched: dict[GVK, cache.Informer[Any]] = {}
        self._metadata: FairCache[Key, _Metadata] = FairCache(CAPACITY // 4, READ_TTL, clock)
        self._contents: FairCache[Key, _Content] = FairCache(CAPACITY)
        self._locks: KeyedLocks[Key] = KeyedLocks()
        self._reading: dict[Key, bool] = {}
        """The owners whose metadata is being read. The value becomes False if the watch reports a deletion during the
        read.
        """
        self.hub = new_hub(self)
        self._reading_unwatched: set[str] = set()
        """Namespaces for which we are reading an owner of a kind that may not be watched: one such owner at a time."""

    # Owners.

    async def metadata(self, owner: OwnerReference, namespace: str) -> PartialObjectMetadata:
        """Return the metadata of the object that ``owner`` names, even if that object has another UID.

        Raises:
            InvalidOwnerError: no object can match the reference.
            OverBudgetError: the namespace has used its share.
            StatusError, RestError, CacheError: the owner cannot be read.
        """
        key = Key(kind_of(owner), namespace, owner.name)
        found = await self._find(key)
        if (found.metadata.uid or "") != owner.uid and key.kind in self._watched:
            # The watch may not have reported yet that the name belongs to another object.
            async with self._locks.holding(key):
                found = await self._read_metadata(key)
            if (found.metadata.uid or "") != owner.uid:
                self.budget.spend(namespace, REQUEST)
        return found

    async def instance(self, owner: Object, reads: Reads) -> Unstructured:
        """Return the object to which the metadata ``owner`` belongs, with at least the parts listed in ``reads``.

        Another object may have taken the name meanwhile, and may be returned. The caller must compare the UIDs.

        Raises:
            OverBudgetError: the namespace has used its share.
            StatusError, RestError, CacheError: the owner cannot be read.
        """
        kind, meta = type(owner).gvk, owner.metadata
        if reads is Reads.METADATA:
            return _assembled(kind, meta, {})
        if kind == Pod.gvk:
            return await self._pod(owner.key)
        key, version = Key(kind, owner.namespace, owner.name), _content_version(meta, reads)
        content = self._contents.find(key)
        if content is None or version not in content.versions:
            async with self._locks.holding(key):
                content = self._contents.find(key)
                if content is None or version not in content.versions:
                    return await self._read_content(key, meta, reads)
        text = content.text
        decoded = self.budget.decoded(owner.namespace, text, lambda: msgspec.json.decode(text))
        return _assembled(kind, meta, decoded)

    async def is_current(self, owner: PartialObjectMetadata, namespace: str) -> bool:
        """Return False if the owner may have changed since :meth:`metadata` returned ``owner``.

        If the owner is a pod, return True: pods are read from the cache each time.
        """
        kind, version = type(owner).gvk, owner.metadata.resource_version or ""
        if kind == Pod.gvk:
            return True
        key = Key(kind, namespace, owner.name)
        if kind in self._watched:
            seen = await self._observed(key)
            return seen is not None and (
                seen.resource_version == version or older(seen.resource_version, version)
            )
        read = self._metadata.find(key)
        return read is not None and read.version == version

    def exists(self, key: Key) -> bool:
        """Return False if the watch of the kind has not reported the owner, or has reported its deletion."""
        informer = self._watched.get(key.kind)
        if informer is None or not informer.has_synced or informer.problem is not None:
            return True
        return informer.has(NamespacedName(key.namespace, key.name))

    # Reader.

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object by name. Unstructured objects are read as owners, all other objects from the cache.

        Of an unstructured object, only the parts that groupers of its kind read are reliable. Other parts may be
        missing or stale.
        """
        if not issubclass(kind, Unstructured):
            return await self._cached.get(kind, key)
        if kind.gvk == Pod.gvk:
            return await self._pod(NamespacedName(*key))  # type: ignore[return-value]  # of exactly that kind
        found = await self.instance(await self._find(Key(kind.gvk, *key)), self.hub.reads(kind.gvk))
        found.metadata = found.metadata.deep_copy()
        return found  # type: ignore[return-value]  # of exactly that kind

    async def peek(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the same object as :meth:`get`. An object from the cache is not decoded yet."""
        if not issubclass(kind, Unstructured):
            return await client.peek(self._cached, kind, key)
        return LazyObject.of(await self.get(kind, key))

    async def list(self, kind: type[T], **options: Unpack[client.ListOptions]) -> client.ObjectList[T]:
        """Return a list. It comes from the cache or, for unstructured kinds, from the server."""
        return await self._cached.list(kind, **options)

    # Reading.

    async def _find(self, key: Key) -> PartialObjectMetadata:
        kind, namespace, name = key
        inputs().read.add(key)
        if kind == Pod.gvk:
            try:
                return pod_as_owner((await client.peek(self._cached, Pod, (namespace, name))).metadata)
            except NotFoundError:
                pass  # not in the cache: the pod names another scheduler, or has ended
        if (found := await self._known(key)) is not None:
            return found
        self._check_turn(key)
        async with self._locks.holding(key):
            if (found := await self._known(key)) is not None:
                return found
            return await self._read_metadata(key)

    async def _known(self, key: Key) -> PartialObjectMetadata | None:
        """Return the newest metadata that we know, from the watch or from a recent read, or None.

        Raises:
            ForbiddenError: the server has recently refused a read of the kind in the namespace.
            OverBudgetError: the metadata is large and the namespace has used its share.
        """
        kind, namespace, _ = key
        if (
            refused := self._metadata.find(key._replace(name=""))
        ) is not None and refused.refusal is not None:
            raise refused.refusal.with_traceback(
                None
            )  # each raise would extend the traceback of the same error
        read, seen = self._metadata.find(key), await self._observed(key)
        if seen is not None and (read is None or not older(seen.resource_version, read.version)):
            return self.budget.decoded(namespace, seen.text, lambda: seen.object)
        if read is None:
            return None
        return self.budget.decoded(namespace, read.text, lambda: metadata_only(kind).from_json(read.text))

    async def _observed(self, key: Key) -> LazyObject[PartialObjectMetadata] | None:
        """Return the metadata that the watch of the kind has reported.

        Return None if the kind has no working watch, or if the watch has not reported this object.
        """
        kind, namespace, name = key
        informer = self._watched.get(kind)
        if informer is None or not informer.has_synced or informer.problem is not None:
            return None
        try:
            return await client.peek(self._cached, metadata_only(kind), (namespace, name))
        except NotFoundError:
            return None  # the watch may lag, or the kind is cluster-scoped

    async def _pod(self, key: NamespacedName) -> Unstructured:
        try:
            pod = await self._cached.get(Pod, key)
        except NotFoundError:
            return await self._get(unstructured, Key(Pod.gvk, *key))
        return unstructured(Pod.gvk).from_dict(pod.to_dict())

    async def _read_metadata(self, key: Key) -> PartialObjectMetadata:
        """Read the metadata and remember it. The caller must hold the owner's lock."""
        self._reading[key] = True
        try:
            found = await self._get(metadata_only, key)
            if self.hub.watches(key.kind):
                await self._watch(key.kind)
        finally:
            exists = self._reading.pop(key)
        version = found.metadata.resource_version or ""
        found.metadata.managed_fields = None  # large and unused here
        if exists:
            text = found.to_json()
            self._metadata.keep(key, _Metadata(text, version), _OVERHEAD + len(text))
        seen = await self._observed(key)
        # A lagging server must not hide what the watch has reported.
        return found if seen is None or not older(version, seen.resource_version) else seen.object

    async def _read_content(self, key: Key, meta: ObjectMeta, reads: Reads) -> Unstructured:
        """Read the object named in ``meta`` and remember its content. The caller must hold the owner's lock."""
        found = await self._get(unstructured, key)
        read, content = found.metadata, found.unknown_fields
        versions = {_content_version(read, reads), _content_version(read, Reads.SPEC)}
        if len(versions) == 1 and read.generation:
            # The status is not kept. A grouper that needs it will read the object again.
            content = {name: value for name, value in content.items() if name != "status"}
        text = msgspec.json.encode(content)
        self._contents.keep(key, _Content(text, versions), _OVERHEAD + len(text))
        if read.uid == meta.uid and older(read.resource_version or "", meta.resource_version or ""):
            return _assembled(key.kind, meta, found.unknown_fields)
        return found

    async def _get(self, form: Callable[[GVK], type[T]], key: Key) -> T:
        """Read an owner from the server. ``form`` is called with the owner's kind and returns the class of the result.

        The read is charged to the namespace if the read fails, or if the kind may not be watched.

        Raises:
            OverBudgetError: the namespace has used its share, or is reading another owner of a kind that may not be
                watched.
            TransportTimeoutError: there was no answer within :data:`READ_TIMEOUT` seconds.
            StatusError, RestError: the owner cannot be read.
        """
        kind, namespace, name = key
        self.budget.check(namespace)
        self._check_turn(key)
        unwatched = not self.hub.watches(kind)
        started, failed = self._clock(), True
        if unwatched:
            self._reading_unwatched.add(namespace)
        try:
            with anyio.fail_after(READ_TIMEOUT):
                if self._served is not None:
                    await self._served(kind)
                found = await self._live.get(form(kind), (namespace, name))
            failed = False
        except TimeoutError as error:
            raise TransportTimeoutError(f"no answer within {READ_TIMEOUT:g} s", host="API server") from error
        except ForbiddenError as error:
            # Permissions do not depend on the object's name.
            self._metadata.keep(key._replace(name=""), _Metadata(b"", "", error), _OVERHEAD)
            metrics.OWNERS_UNREADABLE.labels("other" if unwatched else str(kind.group_kind)).inc()
            raise
        finally:
            if unwatched:
                self._reading_unwatched.remove(namespace)
            if unwatched or failed:
                self.budget.spend(namespace, max(REQUEST, self._clock() - started))
        return found

    def _check_turn(self, key: Key) -> None:
        """Check that a read may begin.

        Raises:
            OverBudgetError: the kind may not be watched, and the namespace is reading another owner of such a kind.
        """
        if key.namespace in self._reading_unwatched and not self.hub.watches(key.kind):
            raise self.budget.put_off(key.namespace)

    # Watches.

    async def _watch(self, kind: GVK) -> None:
        """Watch the kind. Call it only after a successful read, so that an invented kind is never watched."""
        if kind in self._watched:
            return
        informer = self._watched[kind] = await self._informers.get_informer(metadata_only(kind))
        informer.add_event_handler(
            cache.LazyHandlerFuncs(
                on_add=lambda obj, _initial: self._added(Key(kind, *obj.key), obj.resource_version),
                on_update=lambda old, obj: self._regrouping.owner_changed(Key(kind, *obj.key), old, obj),
                on_delete=lambda obj, _unknown: self._forget(Key(kind, *obj.key)),
            )
        )

    def _added(self, key: Key, version: str) -> None:
        """Have the pods of the owner reconciled if the owner has changed since it was read, before the watch began."""
        read = self._metadata.find(key)
        if read is not None and older(read.version, version):
            self._regrouping.note_change(key)

    def _forget(self, key: Key) -> None:
        self._metadata.drop(key)
        self._contents.drop(key)
        if key in self._reading:
            self._reading[key] = False


def _content_version(meta: ObjectMeta, reads: Reads) -> ContentVersion:
    """Return the UID, and the generation or resource version, which changes when a part listed in ``reads`` changes."""
    by_generation = reads is Reads.SPEC and meta.generation
    return meta.uid, meta.generation if by_generation else meta.resource_version


def _assembled(kind: GVK, meta: ObjectMeta, content: dict[str, JSON]) -> Unstructured:
    made = unstructured(kind).of_metadata(meta)
    made.set_unknown_fields(content)
    return made
