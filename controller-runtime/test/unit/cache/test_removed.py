# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Informers that are removed while others wait for their first list."""

from typing import Any

import anyio
import pytest

from controller_runtime import handler, metrics, source
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import CacheError
from controller_runtime.reconcile import Request
from controller_runtime.rest import TransportError
from controller_runtime.workqueue import PriorityQueue
from ctrl_testkit.small import settle

LOST = TransportError("connection reset", host="https://api")


async def test_the_cache_waits_no_longer_for_an_informer_that_is_removed(server: Any) -> None:
    server.faults.extend([lambda _request: LOST] * 100)
    cache = await server.start()
    await cache.get_informer(ConfigMap)
    async with anyio.create_task_group() as tasks:
        tasks.cancel_scope.deadline = anyio.current_time() + 60
        tasks.start_soon(cache.wait_for_sync)
        await anyio.sleep(1)
        cache.remove_informer(ConfigMap)
    assert not tasks.cancel_scope.cancelled_caught


async def test_a_read_that_waits_for_a_removed_informer_starts_a_new_one(server: Any) -> None:
    server.put("a")
    server.faults.extend([lambda _request: LOST] * 3)
    cache = await server.start()
    found: list[str] = []

    async def read() -> None:
        found.append((await cache.get(ConfigMap, ("team-a", "a"))).name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(0.1)
        cache.remove_informer(ConfigMap)
        server.faults.clear()
        await anyio.sleep(1)
        assert found == ["a"]


async def test_a_source_whose_informer_is_removed_before_its_first_list_fails(server: Any) -> None:
    server.faults.extend([lambda _request: LOST] * 100)
    cache = await server.start()
    kind = source.Kind(cache, ConfigMap, handler.EnqueueRequestForObject())
    queue: PriorityQueue[Request] = PriorityQueue()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kind.start, queue)
        tasks.start_soon(remove_later, cache)
        with anyio.fail_after(10), pytest.raises(CacheError, match="ConfigMap: the informer was removed"):
            await kind.wait_for_sync(120)
        tasks.cancel_scope.cancel()


async def test_a_removed_informer_degrades_its_kind_no_more(server: Any) -> None:
    denied = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
    server.faults.extend([lambda _request: denied] * 100)
    cache = await server.start()
    await cache.get_informer(ConfigMap)
    await cache.wait_for_sync(1)
    assert degraded() == 1
    cache.remove_informer(ConfigMap)
    await anyio.sleep(1)
    assert degraded() == 0
    assert cache.degraded() == {}


async def test_a_removed_informer_reports_no_change_that_waited_for_the_answer_to_a_write(
    server: Any,
) -> None:
    cache = await server.watched()
    with cache.writing(ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "team-a"}})):
        server.put("a")
        await settle()
        cache.remove_informer(ConfigMap)
        await anyio.sleep(1)
    assert server.heard.take() == []


def degraded() -> float | None:
    return metrics.REGISTRY.get_sample_value("controller_runtime_cache_degraded", ConfigMap.gvk._asdict())


async def remove_later(cache: Any) -> None:
    await anyio.sleep(1)
    cache.remove_informer(ConfigMap)
