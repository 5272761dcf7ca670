# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Storage of cached owners with a size limit: users create owners of any number and size."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import GVK, PartialObjectMetadata

CAPACITY: Final = 64 * 2**20
"""Approximate maximum bytes of all owners; above it, the largest namespace loses its least recently used owners."""
_LEAST: Final = 4096
"""Estimated bytes of an owner without labels and annotations."""
_ENTRY: Final = 160
"""Bytes of a label, an annotation, a reference or a finalizer, without its text."""

Key = tuple[GVK, str, str]
"""Kind, namespace and name."""


class Known:
    """Cached state of an owner."""

    __slots__ = ("expires", "generation", "metadata", "rest", "uid", "version", "weight")

    def __init__(self) -> None:
        self.metadata: PartialObjectMetadata | None = None
        self.expires: float | None = None
        """When the metadata expires; None: when the watch reports a change."""
        self.rest = b""
        """All other fields as JSON, of the object with this UID, generation and version."""
        self.uid: str | None = None
        self.generation: int | None = None
        self.version: str | None = None
        self.weight = 0


class Memory:
    """Owners by kind, namespace and name. One namespace cannot evict the owners of others."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._shelves: dict[str, OrderedDict[Key, Known]] = {}
        self._weights: dict[str, int] = {}
        self.weight = 0

    def __len__(self) -> int:
        """Return the number of owners."""
        return sum(map(len, self._shelves.values()))

    def find(self, key: Key) -> Known | None:
        """Return the state and mark it as most recently used."""
        shelf = self._shelves.get(key[1])
        known = shelf.get(key) if shelf is not None else None
        if shelf is not None and known is not None:
            shelf.move_to_end(key)
        return known

    def keep(self, key: Key, known: Known) -> None:
        """Store ``known``, which is new or has changed, and evict the excess."""
        self.drop(key)
        known.weight = _LEAST + len(known.rest)
        if known.metadata is not None:
            known.weight += _weight(known.metadata.metadata)
        namespace = key[1]
        self._shelves.setdefault(namespace, OrderedDict())[key] = known
        self._add(namespace, known.weight)
        while self.weight > self._capacity:
            largest = max(self._weights, key=self._weights.__getitem__)
            self.drop(next(iter(self._shelves[largest])))

    def drop(self, key: Key) -> None:
        """Remove the state."""
        shelf = self._shelves.get(key[1])
        known = shelf.pop(key, None) if shelf is not None else None
        if known is not None:
            self._add(key[1], -known.weight)

    def _add(self, namespace: str, weight: int) -> None:
        self.weight += weight
        self._weights[namespace] = self._weights.get(namespace, 0) + weight
        if not self._shelves[namespace]:
            del self._shelves[namespace], self._weights[namespace]


def _weight(meta: ObjectMeta) -> int:
    texts = 0
    for held in (meta.labels, meta.annotations):
        texts += sum(_ENTRY + len(name) + len(value) for name, value in (held or {}).items())
    texts += sum(_ENTRY + len(each.name) + len(each.uid) for each in meta.owner_references or ())
    return texts + sum(_ENTRY + len(each) for each in meta.finalizers or ())
