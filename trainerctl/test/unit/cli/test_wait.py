# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A wait goes on after its watch has expired."""

import argparse
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller_runtime.client import ObjectList
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ExpiredError
from controller_runtime.rest import Request, Response
from testkit.why.world import TrainJobObjects, condition

from trainerctl.cli import live, wait
from trainerctl.cli.get import KIND
from trainerctl.cli.live import ServerClock
from trainerctl.cli.terminal import Console


class _Nothing:
    async def send(self, request: Request) -> Response:
        raise AssertionError(request)


class _Expiring:
    """A client of a server that has restarted: it does not know the version of any watch."""

    def __init__(self, world: TrainJobObjects) -> None:
        self._world = world
        self.lists = 0

    async def list(self, kind: Any, **options: Any) -> ObjectList[Any]:
        self.lists += 1
        if self.lists == 3:
            self._world.train_job["status"]["conditions"] = [condition("Complete")]
        return await FakeClient(KIND.wrap(self._world.train_job)).list(KIND)

    @asynccontextmanager
    async def watch(self, kind: Any, **options: Any) -> AsyncIterator[Any]:
        yield self._changes()

    async def _changes(self) -> AsyncIterator[Any]:
        if self.lists:
            raise ExpiredError("too old resource version: 963 (970)", code=410, reason="Expired")
        yield


async def test_a_wait_lists_again_when_its_watch_has_expired() -> None:
    client, out = _Expiring(TrainJobObjects()), io.StringIO()
    cluster = live.Connection(client, "team-a", ServerClock(_Nothing()))  # type: ignore[arg-type]  # list and watch are used

    code = await wait.wait_for(cluster, argparse.Namespace(name="llama", state="complete"), Console(file=out))

    assert (code, out.getvalue(), client.lists) == (0, "TrainJob team-a/llama is complete\n", 3)
