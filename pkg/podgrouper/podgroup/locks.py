# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Locks by key; unused keys take no memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """Locks by key. Acquiring a free lock does not suspend the task."""

    def __init__(self) -> None:
        self._waiting: dict[K, deque[anyio.Event]] = {}
        """The tasks that wait for each locked key, in the order in which they arrived."""

    @asynccontextmanager
    async def holding(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of ``key``. Waiting tasks receive the lock in the order in which they arrived."""
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque()
        else:
            turn = anyio.Event()
            waiting.append(turn)
            try:
                await turn.wait()
            except BaseException:
                # A cancelled task that was given the lock must pass it on.
                if turn.is_set():
                    self._release(key)
                else:
                    waiting.remove(turn)
                raise
        try:
            yield
        finally:
            self._release(key)

    def _release(self, key: K) -> None:
        if waiting := self._waiting[key]:
            waiting.popleft().set()
        else:
            del self._waiting[key]
