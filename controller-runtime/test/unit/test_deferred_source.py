# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import anyio

from controller_runtime import builder, handler, reconcile, source
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.manager import ControllerDefaults
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import PriorityQueue


class OnePod:
    """A cache that records the requested informers."""

    def __init__(self) -> None:
        self.asked: list[type[Any]] = []

    async def get_informer(self, kind: type[Any]) -> Any:
        self.asked.append(kind)
        return self

    has_synced = True
    problem = None

    def add_event_handler(self, handle: Any) -> Any:
        handle.on_add(Pod.from_dict({"metadata": {"namespace": "ns", "name": "a"}}), False)
        return self

    def remove(self) -> None:
        return None

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        del timeout, or_problem


async def test_a_deferred_source_begins_when_it_is_needed() -> None:
    informers, needed = OnePod(), anyio.Event()
    queue: PriorityQueue[Request] = PriorityQueue()
    kind = source.Kind(informers, Pod, handler.EnqueueRequestForObject())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.Deferred(kind, needed.wait).start, queue)
        await anyio.sleep(3600)
        assert (informers.asked, len(queue)) == ([], 0)

        needed.set()
        await anyio.sleep(0.001)
        assert (informers.asked, len(queue)) == ([Pod], 1)
        tasks.cancel_scope.cancel()


def test_a_deferred_source_says_so() -> None:
    kind = source.Kind(OnePod(), Pod, handler.EnqueueRequestForObject())

    assert str(source.Deferred(kind, anyio.Event().wait)) == "kind source: Pod, when needed"


class FakeManager:
    def __init__(self) -> None:
        self.cache = OnePod()
        self.controller_options = ControllerDefaults()
        self.controller_names: set[str] = set()

    def add(self, runnable: Any, /) -> None:
        del runnable


async def test_a_controller_works_while_a_watch_is_not_needed_yet() -> None:
    class Seen:
        requests: list[str] = []  # noqa: RUF012 # one controller, one test

        async def reconcile(self, request: Request) -> reconcile.Result:
            self.requests.append(str(request))
            return reconcile.Result()

    mgr, needed, seen = FakeManager(), anyio.Event(), Seen()
    made = (
        builder.new_controller_managed_by(mgr)
        .named("late")
        .watches(Pod, handler.EnqueueRequestForObject(), when=needed.wait)
        .build(seen)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.start)
        await made.ready()
        assert mgr.cache.asked == []

        needed.set()
        await anyio.sleep(0.001)
        assert seen.requests == ["ns/a"]
        made.stop()
