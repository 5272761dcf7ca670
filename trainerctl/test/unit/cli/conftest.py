# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Connects commands to servers in memory."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from controller_runtime.client import ObjectList
from controller_runtime.machinery.errors import ForbiddenError
from testkit.why.world import NOW

from trainerctl.cli import live
from trainerctl.cli.live import KIND


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], live.Connection]:
    """Return a function that connects commands to the server of a client."""

    def use(client: Any) -> live.Connection:
        clock: Any = SimpleNamespace(corrected=lambda _local: NOW)
        connection = live.Connection(client, "team-a", clock)

        @asynccontextmanager
        async def connect(_arguments: Any) -> AsyncIterator[live.Connection]:
            yield connection

        monkeypatch.setattr(live, "connect", connect)
        return connection

    return use


class _Changing:
    """A client of a server on which a TrainJob changes after each ``pause``, and is deleted by the state None."""

    def __init__(self, states: Sequence[dict[str, Any] | None], pause: float = 0) -> None:
        self._states = states
        self._pause = pause

    async def get(self, kind: Any, _key: Any) -> Any:
        raise ForbiddenError(f"{kind.gvk.kind} is forbidden", code=403, reason="Forbidden")

    async def list(self, kind: Any, **_options: Any) -> ObjectList[Any]:
        if kind.gvk != KIND.gvk:
            await self.get(kind, None)
        return ObjectList([KIND.from_dict(each) for each in self._states[:1] if each is not None])

    @asynccontextmanager
    async def watch(self, _kind: Any, **_options: Any) -> AsyncIterator[Any]:
        async def events() -> AsyncIterator[Any]:
            for before, state in pairwise(self._states):
                await anyio.sleep(self._pause)
                change = "DELETED" if state is None else "MODIFIED"
                yield SimpleNamespace(type=change, object=KIND.from_dict(state or before or {}))
            await anyio.sleep_forever()

        yield events()


@pytest.fixture
def changing(connected: Callable[[Any], live.Connection]) -> Callable[..., live.Connection]:
    """Return a function that connects commands to a server on which a TrainJob has one state after the other.

    A TrainJob whose state is None does not exist. No other objects may be read.
    """

    def use(states: Sequence[dict[str, Any] | None], pause: float = 0) -> live.Connection:
        return connected(_Changing(states, pause))

    return use
