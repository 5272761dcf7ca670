# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of one kind as bytes, found by namespace, name, labels and indices.

A store has two layers. The lower layer has the states that the watch has reported. The upper layer has our own writes
that the watch has not confirmed yet, so that a writer never reads an older state. Nothing here waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
import pydantic_core

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import first_problem
from controller_runtime.machinery.rawjson import metadata_text

from . import errors

MAX_WRITES: Final = 4096
"""Maximum number of unconfirmed writes kept for one kind; beyond that, the oldest write is forgotten."""
WRITE_TTL: Final = 120.0
"""Seconds after which an unconfirmed write is forgotten."""

T = TypeVar("T", bound=Object)

IndexValues = Mapping[str, tuple[str, ...]]
"""The values of one object in each index."""
_NOTHING: Final[IndexValues] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A stored object: its text, and the metadata that is needed without decoding the text."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: dict[str, str]
    deleting: bool
    """True if the object has a deletionTimestamp."""
    retained: bool
    """True if the object has finalizers or a grace period, which keep it after its deletionTimestamp is set. A
    Namespace has finalizers in its spec."""
    data: bytes
    too_large_reason: str = ""
    """Why the object is too large, or an empty string. Only the metadata of a large object is kept, because decoding
    the whole object would block the process."""

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return NamespacedName(self.namespace, self.name)

    @property
    def ended(self) -> bool:
        """True if the server has removed the object: its deletionTimestamp is set, and nothing keeps it."""
        return self.deleting and not self.retained

    def decode(self, kind: type[T]) -> T:
        """Return a fresh object.

        Raises:
            UndecodableObjectError: the object does not match ``kind``, or is too large.
        """
        if self.too_large_reason:
            raise errors.UndecodableObjectError(kind.gvk, self.key, self.too_large_reason, uid=self.uid)
        try:
            return kind.from_json(self.data)
        except pydantic_core.ValidationError as error:
            reason = ": ".join(first_problem(error))
            raise errors.UndecodableObjectError(kind.gvk, self.key, reason, uid=self.uid) from error

    def decode_metadata(self, kind: type[Object]) -> ObjectMeta:
        """Return only the metadata. If it cannot be decoded, raise the same error as :meth:`decode`."""
        try:
            return ObjectMeta.from_json(metadata_text(self.data))
        except pydantic_core.ValidationError:
            return self.decode(kind).metadata


def older(version: str, than: str) -> bool:
    """Return True if ``version`` is older than ``than``. Return False if one of them is not a number."""
    if version.isdecimal() and than.isdecimal():
        return (len(version), version) < (len(than), than)
    return False


class Write(msgspec.Struct, frozen=True):
    """An unconfirmed write. For a deletion, ``entry`` is None."""

    entry: Entry | None
    uid: str
    version: str
    """The resourceVersion that the write produced, if it is known."""
    since: str
    """The version of the write or, if it is unknown, the last known version before the write. A state with an older
    version does not include the write."""
    values: IndexValues
    expires: float


class _Index:
    """For each value, the keys of the objects that have it. For each key, the values of the object.

    The keys are plain tuples: the garbage collector visits each NamedTuple, but soon skips plain tuples of strings, and
    dicts that have only such keys.
    """

    def __init__(self) -> None:
        self.keys: dict[str, dict[tuple[str, str], None]] = {}
        self.values: dict[tuple[str, str], tuple[str, ...]] = {}

    def set(self, key: tuple[str, str], values: tuple[str, ...]) -> None:
        before = self.values.get(key, ())
        if before == values:
            return
        for value in before:
            keys = self.keys[value]
            keys.pop(key, None)
            if not keys:
                del self.keys[value]
        for value in values:
            self.keys.setdefault(value, {})[key] = None
        if values:
            self.values[key] = values
        else:
            del self.values[key]


class Store:
    """Entries of one kind."""

    def __init__(self, *, namespaced: bool = True) -> None:
        self.namespaced = namespaced
        """False if the kind is known to be cluster-scoped. Namespaces of keys are then ignored, as by the server."""
        self._objects: dict[str, dict[str, Entry]] = {}
        self._indices: dict[str, _Index] = {}
        self._writes: dict[NamespacedName, Write] = {}

    def __len__(self) -> int:
        """Return how many objects exist according to the watch."""
        return sum(map(len, self._objects.values()))

    # States that the watch reports.

    def add_index(self, name: str) -> None:
        """Open an index; the store must still be empty."""
        self._indices[name] = _Index()

    def has_index(self, name: str) -> bool:
        """Return True if an index is open."""
        return name in self._indices

    def values_of(self, key: tuple[str, str]) -> IndexValues:
        """Return the values under which each index has an object."""
        return {name: index.values.get(key, ()) for name, index in self._indices.items()}

    def put(
        self, entry: Entry, values: IndexValues = _NOTHING, key: NamespacedName | None = None
    ) -> Entry | None:
        """Store the state that the watch reported; return the previous one. ``key`` is that of ``entry``, if known."""
        within = self._objects.setdefault(entry.namespace, {})
        before = within.get(entry.name)
        within[entry.name] = entry
        if not self._indices and not self._writes:
            return before
        pair = (entry.namespace, entry.name)
        for name, index in self._indices.items():
            index.set(pair, values.get(name, ()))
        key = entry.key if key is None else key
        if (write := self._writes.get(key)) is not None and _confirms(entry, write):
            del self._writes[key]
        return before

    def remove(self, key: NamespacedName, version: str) -> Entry | None:
        """Drop and return an object that the watch reported as deleted at ``version``; keep our later writes."""
        within = self._objects.get(key.namespace, {})
        before = within.pop(key.name, None)
        if not within:
            self._objects.pop(key.namespace, None)
        for index in self._indices.values():
            index.set(key, ())
        write = self._writes.get(key)
        if write is not None and _is_past(write, before, version):
            del self._writes[key]
        return before

    def confirm(self, version: str, namespace: str = "") -> list[Entry]:
        """Forget the writes up to ``version``, because the watch has reached it. Return the objects that were written.

        The watch has not delivered these states and never will. If the watch has not reported such an object at all, it
        will not report the object's deletion either. Our own deletions are kept.
        """
        if not self._writes:
            return []
        reached = [
            key
            for key, write in self._writes.items()
            if (not namespace or key.namespace == namespace)
            and write.entry is not None
            and not older(version, write.version)
        ]
        return [entry for key in reached if (entry := self._writes.pop(key).entry) is not None]

    def observed(self, key: NamespacedName) -> Entry | None:
        """Return the last state that the watch reported, without our writes."""
        within = self._objects.get(key.namespace)
        return None if within is None else within.get(key.name)

    def observed_keys(self, namespace: str = "") -> Iterator[NamespacedName]:
        """Yield the keys that the watch reported, in one namespace or all. Objects may be removed between two keys."""
        for space in [namespace] if namespace else list(self._objects):
            for name in list(self._objects.get(space, ())):
                yield NamespacedName(space, name)

    # Our own writes.

    def remember_write(self, entry: Entry, values: IndexValues, now: float) -> None:
        """Make reads return ``entry``, the response to our write, until the watch reports it or a newer state."""
        key = entry.key
        if entry.ended:
            # Our write removed the last finalizer: the server has deleted the object, without another version.
            self.remember_delete(key, entry.uid, now, version=entry.resource_version)
            return
        observed, pending = self.observed(key), self._writes.get(key)
        if observed is not None and not older(observed.resource_version, entry.resource_version):
            return
        if pending is not None and older(entry.resource_version, pending.since):
            return
        version = entry.resource_version
        self._remember(key, Write(entry, entry.uid, version, version, values, now + WRITE_TTL), now)

    def remember_delete(self, key: NamespacedName, uid: str, now: float, *, version: str = "") -> None:
        """If the object at ``key`` has this ``uid``, hide it until the watch reports that we deleted it.

        ``version`` is the resourceVersion in the response to the write that deleted the object, if there is one. If the
        watch has already reported that the object outlived this write, do nothing.
        """
        key = key if self.namespaced else NamespacedName("", key.name)
        seen, observed = self.get(key, now), self.observed(key)
        if seen is None or seen.uid != uid:
            return
        write = Write(None, uid, version, version or seen.resource_version, _NOTHING, now + WRITE_TTL)
        if not version or observed is None or not _confirms(observed, write):
            self._remember(key, write, now)

    def unconfirmed(self, key: NamespacedName) -> Write | None:
        """Return our last write at ``key`` if the watch has not confirmed it yet, otherwise None."""
        return self._writes.get(key)

    def unconfirmed_keys(self) -> list[NamespacedName]:
        """Return the keys of all writes that the watch has not confirmed yet, oldest first."""
        return list(self._writes)

    def _remember(self, key: NamespacedName, write: Write, now: float) -> None:
        self._writes.pop(key, None)
        self._writes[key] = write
        while len(self._writes) > MAX_WRITES or next(iter(self._writes.values())).expires <= now:
            del self._writes[next(iter(self._writes))]

    def _expire(self, now: float) -> None:
        while self._writes and next(iter(self._writes.values())).expires <= now:
            del self._writes[next(iter(self._writes))]

    # Reading.

    def get(self, key: NamespacedName, now: float) -> Entry | None:
        """Return the newest known entry, or None if the object does not exist."""
        key = key if self.namespaced else NamespacedName("", key.name)
        if self._writes:
            self._expire(now)
            if (write := self._writes.get(key)) is not None:
                return write.entry
        within = self._objects.get(key.namespace)
        return None if within is None else within.get(key.name)

    def select(
        self,
        now: float,
        *,
        namespace: str = "",
        fields: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return the newest entries, in one namespace or all, that match every one of ``fields``.

        The keys of ``fields`` are names of open indices, ``metadata.name`` or ``metadata.namespace``. With ``limit``,
        at most that many entries are returned.
        """
        self._expire(now)
        fields = dict(fields or {})
        space, name = fields.pop("metadata.namespace", None), fields.pop("metadata.name", None)
        namespace = namespace or space or ""
        chosen = self._candidates(namespace, fields)
        if self._writes:
            replaced = {id(self.observed(key)) for key in self._writes}
            confirmed = (entry for entry in chosen if id(entry) not in replaced)
            chosen = itertools.chain(confirmed, self._remembered_in(namespace, fields))
        if name is not None:
            chosen = (entry for entry in chosen if entry.name == name)
        if space is not None:
            chosen = (entry for entry in chosen if entry.namespace == space)
        return list(itertools.islice(chosen, limit))

    def _candidates(self, namespace: str, fields: Mapping[str, str]) -> Iterable[Entry]:
        """Return the states that the watch reported, selected by namespace and indices."""
        if not fields and namespace:
            return self._objects.get(namespace, {}).values()
        if not fields:
            return (entry for within in self._objects.values() for entry in within.values())
        matches = [self._indices[field].keys.get(value, {}) for field, value in fields.items()]
        matches.sort(key=len)
        fewest, *others = matches
        return (
            self._objects[space][name]
            for space, name in fewest
            if (not namespace or space == namespace) and all((space, name) in keys for keys in others)
        )

    def _remembered_in(self, namespace: str, fields: Mapping[str, str]) -> Iterator[Entry]:
        """Yield the matching results of our unconfirmed writes."""
        for write in self._writes.values():
            if (
                write.entry is not None
                and (not namespace or write.entry.namespace == namespace)
                and all(value in write.values.get(field, ()) for field, value in fields.items())
            ):
                yield write.entry


def _confirms(entry: Entry, write: Write) -> bool:
    """Return True if ``entry``, which the watch reported, is at least as new as ``write``."""
    if write.entry is None:
        if entry.uid != write.uid:
            return not older(entry.resource_version, write.since)  # else an earlier object of the name
        # We expected an immediate deletion, but the watch reports that the object is still terminating. The response to
        # the write that removes the last finalizer has the version of the state before it, in which the finalizer is.
        if not write.version or (entry.ended and entry.resource_version == write.version):
            return entry.deleting
        return older(write.version, entry.resource_version)
    return not older(entry.resource_version, write.version)


def _is_past(write: Write, removed: Entry | None, version: str) -> bool:
    """Return True if the reported deletion of ``removed`` at ``version`` is at least as new as ``write``."""
    if write.entry is None and (removed is None or removed.uid != write.uid):
        return older(write.since, version)
    return write.entry is None or not older(version, write.version)
