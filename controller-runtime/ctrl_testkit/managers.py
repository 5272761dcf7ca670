# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Managers without an API server, and runnables that record their starts and ends in a diary."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from controller_runtime import rest
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.manager import (
    Manager,
    ManagerError,
    Options,
)

QUIET = {"metrics_bind_address": "0", "health_probe_bind_address": "0"}
ELECTION = {"leader_election": True, "leader_election_id": "lock", "leader_election_namespace": "ns"}


class Worker:
    """A runnable that records its lifecycle."""

    def __init__(
        self,
        name: str,
        diary: list[str],
        *,
        leader: bool = True,
        ready_after: float = 0,
        fails_after: float | None = None,
        ends_after: float = 0,
    ) -> None:
        self.name = name
        self._diary = diary
        self._leader = leader
        self._ready_after = ready_after
        self._fails_after = fails_after
        self._ends_after = ends_after

    def need_leader_election(self) -> bool:
        return self._leader

    async def ready(self) -> None:
        await anyio.sleep(self._ready_after)

    async def start(self) -> None:
        self._diary.append(f"{self.name} starts at {anyio.current_time() - 1000:g}")
        try:
            if self._fails_after is not None:
                await anyio.sleep(self._fails_after)
                raise ValueError("boom")
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self._ends_after)
            self._diary.append(f"{self.name} ended")


class Polite(Worker):
    """Ends by itself some time after :meth:`stop` is called; records if it was cancelled instead."""

    def __init__(self, name: str, diary: list[str], *, takes: float) -> None:
        super().__init__(name, diary)
        self._asked = anyio.Event()
        self._takes = takes

    def stop(self) -> None:
        self._asked.set()

    async def start(self) -> None:
        try:
            await self._asked.wait()
            await anyio.sleep(self._takes)
        except anyio.get_cancelled_exc_class():
            self._diary.append(f"{self.name} was cancelled")
            raise
        self._diary.append(f"{self.name} finished")


def answer(request: rest.Request) -> rest.FakeResponse:
    assert request.path == "/version"
    return rest.FakeResponse(200, {"gitVersion": "v1.35.4"})


def new_manager(handler: Callable[..., Any] = answer, **options: Any) -> Manager:
    transport = rest.FakeTransport(handler)
    return Manager(rest.Config("https://api"), Options(**{**QUIET, **options}), transport=transport)


@asynccontextmanager
async def running(mgr: Manager) -> AsyncIterator[None]:
    """Run the manager during the block; then stop it and wait until it has ended."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        yield
        mgr.stop()


async def failure_of(mgr: Manager, meanwhile: Callable[[], Coroutine[Any, Any, None]]) -> ManagerError:
    """Return the error with which the manager fails."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meanwhile)
        with pytest.raises(ManagerError) as caught:
            await mgr.start()
    return caught.value


class LeaseServer:
    """Serves one lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.events: list[str] = []
        self.away = False

    async def __call__(self, request: rest.Request) -> rest.FakeResponse:
        if request.path == "/version":
            return answer(request)
        if request.path.endswith("/events"):
            self.events.append((request.body or b"").decode())
            return rest.FakeResponse(201, request.body or b"")
        if self.away:
            await anyio.sleep_forever()
        if request.method == "GET" and self.lease is None:
            return rest.FakeResponse(
                404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"}
            )
        if request.method != "GET":
            self.lease = Lease.from_json(request.body or b"").to_dict()
            self.lease["metadata"]["resourceVersion"] = str(anyio.current_time())
        return rest.FakeResponse(200, self.lease)
