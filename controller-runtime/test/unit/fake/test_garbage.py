# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deletions that wait for dependents, and the garbage collector that tests call."""

from typing import Any

import pytest

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.fake import FakeClient


def config_map(name: str, *owners: ConfigMap, blocking: bool = True) -> ConfigMap:
    references: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner.name,
            "uid": owner.metadata.uid,
            "blockOwnerDeletion": blocking,
        }
        for owner in owners
    ]
    metadata = {"name": name, "namespace": "n", "ownerReferences": references}
    return ConfigMap.from_dict({"metadata": metadata})


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def names(client: FakeClient) -> list[str]:
    return [each.name for each in await client.list(ConfigMap)]


async def test_dependents_stay_until_garbage_is_collected_and_all_generations_go(client: FakeClient) -> None:
    owner = await client.create(config_map("a"))
    child = await client.create(config_map("b", owner))
    await client.create(config_map("c", child))
    await client.create(config_map("d"))
    client.collect_garbage()
    assert await names(client) == ["a", "b", "c", "d"]
    await client.delete(owner)
    assert await names(client) == ["b", "c", "d"]
    client.collect_garbage()
    assert await names(client) == ["d"]


async def test_an_owner_deleted_in_the_foreground_waits_for_what_blocks_it(client: FakeClient) -> None:
    owner = await client.create(config_map("a"))
    child = config_map("b", owner)
    child.metadata.finalizers = ["example.org/x"]
    child = await client.create(child)
    await client.create(config_map("c", owner))
    await client.delete(owner, propagation="Foreground")
    client.collect_garbage()
    assert await names(client) == ["a", "b"]
    child = await client.get(ConfigMap, child.key)
    child.metadata.finalizers = None
    await client.update(child)
    client.collect_garbage()
    assert await names(client) == []


async def test_orphans_lose_their_owner_and_stay(client: FakeClient) -> None:
    owner = await client.create(config_map("a"))
    await client.create(config_map("b", owner))
    await client.delete(owner, propagation="Orphan")
    client.collect_garbage()
    assert await names(client) == ["b"]
    assert not (await client.get(ConfigMap, ("n", "b"))).metadata.owner_references


async def test_a_dependent_with_another_owner_stays(client: FakeClient) -> None:
    first, second = [await client.create(config_map(name)) for name in "ab"]
    await client.create(config_map("c", first, second))
    await client.delete(first)
    client.collect_garbage()
    assert await names(client) == ["b", "c"]


async def test_a_dependent_with_another_owner_survives_a_foreground_deletion(client: FakeClient) -> None:
    first, second = await client.create(config_map("a")), await client.create(config_map("b"))
    await client.create(config_map("c", first, second))
    await client.delete(first, propagation="Foreground")
    client.collect_garbage()
    assert await names(client) == ["b", "c"]
    left = await client.get(ConfigMap, ("n", "c"))
    assert [each.name for each in left.metadata.owner_references or ()] == ["b"]
