# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The order of work after a start: objects that need work come before those that do not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio.lowlevel

from controller_runtime import cache, reconcile, workqueue
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object

from .pipe import Informers, Queue
from .source import Source

EXPEDITED: Final = workqueue.LOW_PRIORITY // 2
"""Above the objects of the first list, and below new events."""
_STEP: Final = 256
"""Keys looked at before other tasks may run."""

NeedsWork = Callable[[NamespacedName], Awaitable[bool]]


class Expedited(Source):
    """Moves listed objects that need work to the front of the queue, once, when every kind named is listed.

    A start adds every object of a kind to the queue, in the order of the list. After an outage, the few that changed
    meanwhile would wait for all others. ``needs_work`` gets the informers of ``kind`` and of ``others``, listed, and
    returns a check of one key; it should decode as little as it can. Nothing is moved if a kind cannot be listed.
    """

    def __init__(
        self,
        informers: Informers,
        kind: type[Object],
        needs_work: Callable[..., NeedsWork],
        *others: type[Object],
        name: str = "",
    ) -> None:
        self._informers = informers
        self._kinds = (kind, *others)
        self._needs_work = needs_work
        self._name = name or f"{kind.gvk.group_kind} that needs work"

    def __str__(self) -> str:
        return self._name

    async def start(self, queue: Queue) -> None:
        """Add the keys of objects that need work, with the priority :data:`EXPEDITED`."""
        informers: list[cache.Informer[Any]] = [
            await self._informers.get_informer(kind) for kind in self._kinds
        ]
        for informer in informers:
            await informer.wait_for_sync(or_problem=True)
        if not all(informer.has_synced for informer in informers):
            return
        needs_work = self._needs_work(*informers)
        for number, key in enumerate(informers[0].keys(), 1):
            if await needs_work(key):
                queue.add(reconcile.Request(*key), priority=EXPEDITED)
            if number % _STEP == 0:
                await anyio.lowlevel.checkpoint()
