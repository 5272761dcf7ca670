# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A value with a time to live, which is read when it is needed."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Refreshed(Generic[T]):
    """A value that is read when it is needed, and again after it has expired.

    ``read`` returns the value and the seconds for which it is valid. If it raises an error, the error reaches the
    caller, the former value is kept, and the next call reads again. Only one task reads at a time; the others wait.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[tuple[T, float]]],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._read = read
        self._clock = clock
        self._lock = anyio.Lock()
        self._expires = -math.inf
        self.value: T | None = None
        """The last value, even if it has expired; None before the first read."""
        self.read_at = -math.inf
        """The time at which the read of ``value`` began."""

    @property
    def is_being_read(self) -> bool:
        """True while a task reads the value."""
        return self._lock.locked()

    async def current(self, is_usable: Callable[[T], bool] = lambda _value: True) -> T:
        """Return the value. It is read again if it has expired or ``is_usable`` returns False for it."""
        if (value := self._valid(is_usable)) is not None:
            return value
        async with self._lock:
            value = self._valid(is_usable)
            return await self._update() if value is None else value

    async def refresh(self) -> T:
        """Read the value again, and return it."""
        async with self._lock:
            return await self._update()

    def _valid(self, is_usable: Callable[[T], bool]) -> T | None:
        value = self.value
        return value if value is not None and self._clock() < self._expires and is_usable(value) else None

    async def _update(self) -> T:
        read_at = self._clock()
        value, ttl = await self._read()
        self.value, self.read_at, self._expires = value, read_at, self._clock() + ttl
        return value
