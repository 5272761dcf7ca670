# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Informer: one kind in a cache, as a controller sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from controller_runtime.machinery import NamespacedName, Object

from .delivery import EventHandlerFuncs, LazyHandlerFuncs, Registration
from .engine import Engine

T = TypeVar("T", bound=Object)


class Informer(Generic[T]):
    """One kind in a cache, seen as one class."""

    def __init__(self, kind: type[T], engine: Engine) -> None:
        self.kind = kind
        self.engine = engine

    @property
    def has_synced(self) -> bool:
        """Whether every existing object has been listed, and handlers notified."""
        return self.engine.has_synced

    @property
    def problem(self) -> str | None:
        """Why the server refuses this kind, while it does; the cache keeps retrying."""
        return self.engine.problem

    @property
    def skipped(self) -> int:
        """How many objects could not be read."""
        return self.engine.unreadable.skipped

    def keys(self, namespace: str = "") -> Iterator[NamespacedName]:
        """Yield the keys that the watch has reported, in one namespace or all; nothing is decoded for that."""
        return self.engine.store.observed_keys(namespace)

    def has(self, key: NamespacedName) -> bool:
        """Return True if the watch has reported an object of this key; nothing is decoded for that."""
        return self.engine.store.observed(key) is not None

    def add_event_handler(self, handler: EventHandlerFuncs[T] | LazyHandlerFuncs[T]) -> Registration:
        """Report every existing object to ``handler``, then changes, in order."""
        return self.engine.processor.register(self.kind, handler)

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        """Return when every existing object has been listed, or with ``or_problem`` when the kind is refused.

        Raises:
            CacheSyncTimeoutError: that took too long; without ``or_problem`` a refused kind is waited for, too.
        """
        await self.engine.wait_for_sync(timeout, or_problem=or_problem)
