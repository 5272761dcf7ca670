# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The replicas of a simulated API server: their watch caches lag behind, and their connections break."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import Context
from enum import Enum

import anyio

from controller_runtime.fake.tables import Document, Table
from controller_runtime.fake.watches import Event, History, ServedWatch, View, Watches
from controller_runtime.machinery import NamespacedName
from controller_runtime.rest import TransportError

from .loop import Delays


class Replica(View):
    """One of several API servers. Its watch cache gets each change some time after the store.

    Changes are applied when the replica is read. A timer is set only if a task waits for the change.
    """

    def __init__(self, history: History, rng: random.Random, *, version: int) -> None:
        super().__init__(history)
        self.lags = Delays(lambda: rng.random() * 0.02)
        """Returns after how many seconds this replica applies the next change."""
        self._applied = version
        self._rows: dict[Table, dict[NamespacedName, Document]] = {}
        self._latest: dict[Table, int] = {}
        self._due = 0.0
        self._coming: deque[tuple[float, Event]] = deque()
        self._context = Context()
        """The context of timers. It belongs to no process, so that killing one does not stop the timers."""

    @property
    def applied(self) -> int:
        """All changes up to this version have been applied."""
        self._catch_up()
        return self._applied

    def expect(self, event: Event) -> None:
        """Apply a change after a random delay, but keep the order of the changes."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due = max(now + self.lags.longest(), self._due)
        if self._coming and self._coming[0][0] <= now:
            self._catch_up()
        self._coming.append((self._due, event))
        if event.table in self._waiting or None in self._waiting:
            loop.call_at(self._due, self._catch_up, context=self._context)

    def documents(self, table: Table) -> list[Document]:
        """Return the objects of a kind in the state that this replica knows, sorted by namespace and name."""
        self._catch_up()
        return [document for _, document in sorted(self._rows.get(table, {}).items())]

    def latest(self, table: Table) -> int:
        """Return the version of the last change of a kind that this replica knows."""
        self._catch_up()
        return self._latest.get(table, 0)

    def plan(self, table: Table | None) -> None:
        """Apply the next change of a kind or, if ``table`` is None, of any kind, once the lag is over."""
        due = next((due for due, event in self._coming if table in (None, event.table)), None)
        if due is not None:
            asyncio.get_running_loop().call_at(due, self._catch_up, context=self._context)

    def _catch_up(self) -> None:
        """Apply the changes whose time has come."""
        coming = self._coming
        if not coming:
            return
        now = asyncio.get_running_loop().time()
        while coming and coming[0][0] <= now:
            _, event = coming.popleft()
            rows = self._rows.setdefault(event.table, {})
            if event.type == "DELETED":
                rows.pop(event.key, None)
            else:
                rows[event.key] = event.document
            self._applied = max(self._applied, event.version)
            self._latest[event.table] = event.version
            if self._waiting:
                self.wake(event.table)
                self.wake(None)


class ConnectionEnd(Enum):
    """How a connection ends too early."""

    RESET = "reset"
    """With an error."""
    PROPER = "proper"
    """As if the server had ended the connection."""
    WITHIN_LINE = "within a line"
    """As if the server had ended the connection in the middle of a line."""


class BreakableWatches(Watches):
    """Watches whose lines take time to arrive, and whose connections break."""

    def __init__(self, history: History, rng: random.Random) -> None:
        super().__init__(history)
        self.delays = Delays[[ServedWatch]]()
        """Returns how many seconds the next line of a watch takes to arrive."""
        self._rng = rng
        self._broken: dict[ServedWatch, ConnectionEnd] = {}

    def cut_one(self, watch: ServedWatch) -> None:
        """End the connection of a watch, perhaps in the middle of a line."""
        self._broken[watch] = self._rng.choice(list(ConnectionEnd))
        super().cut_one(watch)

    async def _sent(self, watch: ServedWatch, lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Yield lines as they arrive, until the connection breaks."""
        last = b""
        try:
            async with aclosing(lines):
                async for line in lines:
                    last = line
                    if (delay := self.delays.longest(watch)) > 0:
                        await anyio.sleep(delay)
                    if watch.is_cut:
                        break
                    yield line
            match self._broken.pop(watch, None):
                case ConnectionEnd.RESET:
                    raise TransportError("the connection broke")
                case ConnectionEnd.WITHIN_LINE if last:
                    # A proxy ended the answer properly, so the client reads the part of a line as a whole line.
                    yield last[: self._rng.randrange(len(last))]
        finally:
            self._end(watch)
