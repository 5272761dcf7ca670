# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""After a start, objects that need work are reconciled before those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from controller_runtime import source
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.machinery import NamespacedName
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import LOW_PRIORITY, PriorityQueue


class Informer:
    """An informer with objects of one namespace; a wait for its sync succeeds unless there is a ``problem``."""

    def __init__(self, *names: str, problem: str | None = None) -> None:
        self.names, self.problem, self.has_synced = names, problem, False

    async def wait_for_sync(self, timeout: float | None = None, *, or_problem: bool = False) -> None:
        assert or_problem
        self.has_synced = self.problem is None

    def keys(self) -> Iterator[NamespacedName]:
        assert self.has_synced
        return (NamespacedName("ns", name) for name in self.names)

    def has(self, key: NamespacedName) -> bool:
        return key.name in self.names


class Informers(dict[type[Any], Informer]):
    async def get_informer(self, kind: type[Any]) -> Any:
        return self[kind]


def lacks_config(_pods: Informer, configs: Informer) -> source.NeedsWork:
    async def lacks(key: NamespacedName) -> bool:
        return not configs.has(key)

    return lacks


@pytest.fixture
def queue() -> PriorityQueue[Request]:
    return PriorityQueue[Request]()


def listed(queue: PriorityQueue[Request], *names: str) -> None:
    for name in names:
        queue.add(Request("ns", name), priority=LOW_PRIORITY)


async def order(queue: PriorityQueue[Request]) -> list[str]:
    return [(await queue.get()).name for _ in range(len(queue))]


async def test_objects_that_need_work_pass_the_others_but_not_new_events(
    queue: PriorityQueue[Request],
) -> None:
    listed(queue, "done-1", "done-2", "new")
    queue.add(Request("ns", "now"))
    informers = Informers(
        {Pod: Informer("done-1", "done-2", "new", "now"), ConfigMap: Informer("done-1", "done-2", "other")}
    )
    await source.Prioritized(informers, Pod, lacks_config, ConfigMap).start(queue)
    assert await order(queue) == ["now", "new", "done-1", "done-2"]


@pytest.mark.parametrize("missing", [Pod, ConfigMap])
async def test_the_order_stays_where_a_kind_cannot_be_listed(
    queue: PriorityQueue[Request], missing: type[Any]
) -> None:
    listed(queue, "a", "b")
    informers = Informers({Pod: Informer("a", "b"), ConfigMap: Informer("a")})
    informers[missing].problem = "forbidden"
    await source.Prioritized(informers, Pod, lacks_config, ConfigMap).start(queue)
    assert await order(queue) == ["a", "b"]


async def test_other_tasks_run_while_many_objects_are_checked(queue: PriorityQueue[Request]) -> None:
    names = [f"pod-{number:04}" for number in range(2000)]
    informers = Informers({Pod: Informer(*names), ConfigMap: Informer()})
    seen = []

    async def watch() -> None:
        while len(queue) < len(names):
            seen.append(len(queue))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await source.Prioritized(informers, Pod, lacks_config, ConfigMap).start(queue)
    assert any(0 < length < len(names) for length in seen)
    assert len(queue) == len(names)


def test_the_source_has_a_name() -> None:
    assert str(source.Prioritized(Informers(), Pod, lacks_config)) == "Pod that needs work"
    assert str(source.Prioritized(Informers(), Pod, lacks_config, name="pods without a group")) == (
        "pods without a group"
    )
