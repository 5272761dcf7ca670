# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handlers of a kind: each receives every change, in order, and the objects that existed before."""

import asyncio
from typing import Any

import anyio
import pytest

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import (
    EventHandlerFuncs,
)
from controller_runtime.machinery import Object, unstructured
from ctrl_testkit.small import settle


class TestHandlers:
    async def test_are_not_told_what_they_know(self, server: Any) -> None:
        await server.watched()
        obj = server.put("a")
        server.tell("MODIFIED", obj)
        await settle()
        assert server.heard.take() == ["add a"]

    async def test_that_come_late_are_told_in_the_background_of_what_exists(self, server: Any) -> None:
        watched = await server.watched()
        for number in range(40):
            server.put(f"n{number}")
        await settle()
        late = type(server.heard)()
        registration = (await watched.get_informer(ConfigMap)).add_event_handler(late.handler)
        assert late.lines == []
        assert not registration.has_synced
        server.put("n38")
        server.remove("n39")
        await settle()
        assert registration.has_synced
        # In any order, each object is delivered once, in its current state. A deleted one is not delivered, and one
        # that changed since the handler was added is not part of the initial list.
        assert sorted(late.lines) == sorted(["add n38", *(f"add n{number} initial" for number in range(38))])

    async def test_that_left_hear_nothing(self, server: Any) -> None:
        cache = await server.start()
        registration = (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
        await cache.wait_for_sync(1)
        registration.remove()
        server.put("a")
        await settle()
        assert server.heard.take() == []

    async def test_that_leave_while_existing_objects_are_reported_hear_no_more(self, server: Any) -> None:
        watched = await server.watched()
        for number in range(3):
            server.put(f"n{number}")
        await settle()
        names: list[str] = []

        def leave(obj: ConfigMap, _initial: bool) -> None:
            names.append(obj.name)
            registration.remove()

        informer = await watched.get_informer(ConfigMap)
        registration = informer.add_event_handler(EventHandlerFuncs(on_add=leave))
        await settle()
        assert names == ["n0"]

    @pytest.mark.parametrize(("drawn", "after"), [(0.0, 900), (0.5, 1000), (1.0, 1100)])
    async def test_are_shown_everything_again_at_each_resync(
        self, server: Any, drawn: float, after: float
    ) -> None:
        server.put("a")
        cache = await server.start(resync_period=1000.0, random=lambda: drawn)
        (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
        await cache.wait_for_sync(1)
        server.heard.take()
        await anyio.sleep(after - 1)
        assert server.heard.take() == []
        await anyio.sleep(2)
        assert server.heard.take() == ["update a 11->11"]

    async def test_get_every_creation_although_a_resync_begins_meanwhile(self, server: Any) -> None:
        for number in range(100):
            server.put(f"n{number}")
        cache = await server.start(resync_period=1000.0, random=lambda: 0.5)
        informer = await cache.get_informer(ConfigMap)
        await cache.wait_for_sync(1)
        added: list[str] = []
        loop: Any = asyncio.get_running_loop()

        def slow(obj: ConfigMap, _initial: bool) -> None:
            added.append(obj.name)
            loop.clock.now += 60.0

        informer.add_event_handler(EventHandlerFuncs(on_add=slow))
        await anyio.sleep(10_000)
        assert added == [f"n{number}" for number in range(100)]

    async def test_of_one_class_get_one_object_per_event(self, server: Any) -> None:
        cache = await server.start()
        got: list[Object] = []
        informer = await cache.get_informer(ConfigMap)
        for _ in range(2):
            informer.add_event_handler(EventHandlerFuncs(on_add=lambda obj, _initial: got.append(obj)))
        loose = await cache.get_informer(unstructured(ConfigMap.gvk))
        loose.add_event_handler(EventHandlerFuncs(on_add=lambda obj, _initial: got.append(obj)))
        await cache.wait_for_sync(1)
        server.put("a")
        await settle()
        assert got[0] is got[1]
        assert type(got[2]) is unstructured(ConfigMap.gvk)
