# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Echoes: watch events of an object that arrive while this process writes it.

A watch event may precede the response to a write, and only the response identifies our own change. Until it
arrives, events of that object wait; reads do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from controller_runtime.machinery import NamespacedName, Object

from .delivery import CachedObject

HOLD: Final = 0.25
"""Seconds an event waits for the response to a write of its object: far longer than the usual delay."""


class _Writing:
    """Writes of one object that are under way."""

    __slots__ = ("count", "held", "made", "timer")

    def __init__(self) -> None:
        self.count = 0
        self.made: set[tuple[str, str]] = set()
        """Uids and versions that the server returned."""
        self.held: list[tuple[CachedObject[Object] | None, Callable[[], None]]] = []
        """Delayed events; the object is kept beside an event that our write may have caused."""
        self.timer: asyncio.TimerHandle | None = None


class Echoes:
    """Holds changes back while a write of their object is under way, for :data:`HOLD` seconds at most."""

    def __init__(self) -> None:
        self._writing: dict[NamespacedName, _Writing] = {}

    @contextmanager
    def writing(self, key: NamespacedName) -> Iterator[None]:
        """Deliver changes of ``key`` when the body is done, or after :data:`HOLD`, then as another writer's."""
        writing = self._writing.setdefault(key, _Writing())
        writing.count += 1
        try:
            yield
        finally:
            writing.count -= 1
            if writing.count == 0:
                self.release(key)
                del self._writing[key]

    def answered(self, key: NamespacedName, uid: str, version: str) -> None:
        """Record the version that a write produced."""
        if (writing := self._writing.get(key)) is not None:
            writing.made.add((uid, version))

    def deliver(
        self, key: NamespacedName, echo: CachedObject[Object] | None, notify: Callable[[], None]
    ) -> None:
        """Call ``notify`` now or, while ``key`` is being written, once the author of the change is known.

        ``echo`` is the object, if our write may have produced it.
        """
        if not self._writing or (writing := self._writing.get(key)) is None:
            notify()
            return
        if not writing.held:
            writing.timer = asyncio.get_running_loop().call_later(HOLD, self.release, key)
        writing.held.append((echo, notify))

    def release(self, key: NamespacedName) -> None:
        """Deliver the delayed events of an object."""
        if not self._writing or (writing := self._writing.get(key)) is None:
            return
        if writing.timer is not None:
            writing.timer.cancel()
        held, writing.held = writing.held, []
        for echo, notify in held:
            if echo is not None and (echo.uid, echo.resource_version) in writing.made:
                echo.mark_own_write()
            notify()

    def release_all(self) -> None:
        """Deliver all delayed events."""
        for key in tuple(self._writing):
            self.release(key)
