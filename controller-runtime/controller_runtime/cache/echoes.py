# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Echoes: what the watch delivers of an object while this process writes it.

The watch may be faster than the answer to a write, and only the answer says which change was ours. Until it is there,
the changes of that object wait; reads do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from controller_runtime.apis.machinery.gvk import NamespacedName

from .delivery import CachedObject

HOLD: Final = 0.25
"""Seconds a change waits for the answer to a write of its object: far longer than the answer stays behind the watch."""


class _Writing:
    """Writes of one object that are under way."""

    __slots__ = ("count", "held", "made", "timer")

    def __init__(self) -> None:
        self.count = 0
        self.made: set[tuple[str, str]] = set()
        """Uids and versions that the server returned."""
        self.held: list[tuple[CachedObject[Any] | None, Callable[[], None]]] = []
        """What the watch delivered meanwhile, beside the object if it may be of our making."""
        self.timer: asyncio.TimerHandle | None = None


class Echoes:
    """Holds changes back while a write of their object is under way, for :data:`HOLD` seconds at most."""

    def __init__(self) -> None:
        self._writing: dict[NamespacedName, _Writing] = {}

    @contextmanager
    def writing(self, key: NamespacedName) -> Iterator[None]:
        """Deliver changes of ``key`` when the body is done, or held too long: then as another writer's."""
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
        """Note what the server made of a write."""
        if (writing := self._writing.get(key)) is not None:
            writing.made.add((uid, version))

    def deliver(self, key: NamespacedName, echo: CachedObject[Any] | None, tell: Callable[[], None]) -> None:
        """Call ``tell`` now or, while ``key`` is being written, when it is known whose change this is.

        ``echo`` is the object, if it may be what the write makes.
        """
        if not self._writing or (writing := self._writing.get(key)) is None:
            tell()
            return
        if not writing.held:
            writing.timer = asyncio.get_running_loop().call_later(HOLD, self.release, key)
        writing.held.append((echo, tell))

    def release(self, key: NamespacedName) -> None:
        """Deliver what was held back of an object."""
        if not self._writing or (writing := self._writing.get(key)) is None:
            return
        if writing.timer is not None:
            writing.timer.cancel()
        held, writing.held = writing.held, []
        for echo, tell in held:
            if echo is not None and (echo.uid, echo.resource_version) in writing.made:
                echo.mark_own_write()
            tell()

    def release_all(self) -> None:
        """Deliver everything that was held back."""
        for key in tuple(self._writing):
            self.release(key)
