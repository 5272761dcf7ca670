# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Indices whose functions read a few declared fields."""

from typing import Any

import msgspec

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.fake import FakeClient
from ctrl_testkit.small import names, settle


class View(msgspec.Struct):
    """Declares the only field that the index functions read."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


given: list[type] = []


def shade(obj: Any) -> list[str]:
    given.append(type(obj))
    return [value for key, value in (obj.data or {}).items() if key == "shade"]


def size(obj: Any) -> list[str]:
    return [value for key, value in (obj.data or {}).items() if key == "size"]


async def test_an_index_gets_the_declared_fields_and_follows_changes(server: Any) -> None:
    given.clear()
    cache = await server.start()
    await cache.index_field(ConfigMap, "shade", shade, reads=View)
    await cache.index_field(ConfigMap, "size", size, reads=View)
    await cache.list(ConfigMap)
    server.put("a", data={"shade": "red", "size": "1"})
    server.put("b")
    await settle()
    assert names(await cache.list(ConfigMap, fields={"shade": "red", "size": "1"})) == ["a"]
    server.put("a", data={"shade": "blue"})
    await settle()
    assert names(await cache.list(ConfigMap, fields={"shade": "red"})) == []
    assert names(await cache.list(ConfigMap, fields={"shade": "blue"})) == ["a"]
    assert given == [View] * 3


async def test_fields_of_another_shape_are_skipped_as_the_object_is(server: Any) -> None:
    server.put("odd", data={"shade": 1})
    server.put("even", data={"shade": "red"})
    cache = await server.start()
    await cache.index_field(ConfigMap, "shade", shade, reads=View)
    assert names(await cache.list(ConfigMap, fields={"shade": "red"})) == ["even"]
    assert (await cache.get_informer(ConfigMap)).skipped == 1


async def test_a_fake_client_gives_the_object() -> None:
    given.clear()
    obj = ConfigMap.from_dict({"metadata": {"namespace": "n", "name": "a"}, "data": {"shade": "red"}})
    client = FakeClient(obj)
    await client.index_field(ConfigMap, "shade", shade, reads=View)
    assert names(await client.list(ConfigMap, namespace="n", fields={"shade": "red"})) == ["a"]
    assert given == [ConfigMap]
