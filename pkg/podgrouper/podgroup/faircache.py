# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A bounded cache: a namespace with many values does not evict the values of smaller namespaces."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

import anyio


class Namespaced(Hashable, Protocol):
    """A key that names its namespace."""

    @property
    def namespace(self) -> str:
        """The namespace, or an empty string."""
        ...


K = TypeVar("K", bound=Namespaced)
V = TypeVar("V")


class FairCache(Generic[K, V]):
    """Remembers values up to a total size of ``capacity``. With ``ttl``, values expire after that many seconds.

    When the cache is full, it evicts values of the namespace with the largest total size, the least recently used
    first. A namespace with many values therefore cannot evict the values of smaller namespaces.
    """

    def __init__(
        self, capacity: int, ttl: float | None = None, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._capacity = capacity
        self._ttl = ttl
        self._clock = clock
        self._held: dict[str, OrderedDict[K, tuple[V, int, float | None]]] = {}
        self._sizes: Counter[str] = Counter()
        self.size = 0

    def __len__(self) -> int:
        """Return the number of values."""
        return sum(map(len, self._held.values()))

    def find(self, key: K) -> V | None:
        """Return the value and mark it as most recently used. Return None if it is unknown or has expired."""
        held = self._held.get(key.namespace)
        if held is None or (found := held.get(key)) is None:
            return None
        value, _, expires = found
        if expires is not None and self._clock() >= expires:
            self.drop(key)
            return None
        held.move_to_end(key)
        return value

    def keep(self, key: K, value: V, size: int = 1) -> None:
        """Remember the value, and evict values while the capacity is exceeded."""
        self.drop(key)
        namespace = key.namespace
        expires = None if self._ttl is None else self._clock() + self._ttl
        self._held.setdefault(namespace, OrderedDict())[key] = value, size, expires
        self._sizes[namespace] += size
        self.size += size
        while self.size > self._capacity:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(next(iter(self._held[largest])))

    def drop(self, key: K) -> None:
        """Forget the value."""
        namespace = key.namespace
        held = self._held.get(namespace)
        if held is None or (found := held.pop(key, None)) is None:
            return
        self._sizes[namespace] -= found[1]
        self.size -= found[1]
        if not held:
            del self._held[namespace], self._sizes[namespace]
