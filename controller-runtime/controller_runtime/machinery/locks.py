# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Locks by key; unused keys take no memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """Locks by key. Acquiring a free lock does not suspend the task."""

    def __init__(self) -> None:
        self._used: dict[K, anyio.Lock] = {}

    def __len__(self) -> int:
        """Return how many keys are in use."""
        return len(self._used)

    @asynccontextmanager
    async def holding(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of ``key``; first come, first served."""
        lock = self._used.setdefault(key, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._used.get(key) is lock:
                del self._used[key]
