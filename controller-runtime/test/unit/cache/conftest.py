# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server of one collection, and its caches."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from controller_runtime import cache
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.testing.background import start_in_background
from ctrl_testkit.watched import Collection


class Server(Collection):
    """ConfigMaps, their caches, and a handler of these caches."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()
        self.running: list[asyncio.Task[None]] = []

    async def start(self, **options: Any) -> cache.Cache:
        """Start a cache of the server without jitter, which runs until the test ends."""
        options = {"random": lambda: 0.0, "resync_period": 0.0, **options}
        made = cache.Cache(self.transport, options=cache.Options(**options))
        self.running.append(await start_in_background(made.start))
        return made

    async def watched(self) -> cache.Cache:
        """Return a synced cache of ConfigMaps whose handler is ``heard``."""
        made = await self.start()
        informer = await made.get_informer(ConfigMap)
        informer.add_event_handler(self.heard.handler)
        await made.wait_for_sync(1)
        return made


class Heard:
    """The events that a handler received, one line each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def handler(self) -> cache.EventHandlerFuncs[Any]:
        return cache.EventHandlerFuncs(
            on_add=lambda obj, initial: self.lines.append(f"add {obj.name}{' initial' if initial else ''}"),
            on_update=lambda old, new: self.lines.append(
                f"update {new.name} {old.metadata.resource_version}->{new.metadata.resource_version}"
            ),
            on_delete=lambda obj, unknown: self.lines.append(
                f"delete {obj.name}{' unknown' if unknown else ''}"
            ),
        )

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Yield a server whose caches run until the test ends."""
    made = Server()
    yield made
    for task in made.running:
        task.cancel()
    await asyncio.wait(made.running) if made.running else None
    for task in made.running:
        if not task.cancelled():
            await task


@pytest.fixture
def start(server: Server) -> Callable[..., Any]:
    """Return the function that starts a cache of the server."""
    return server.start
