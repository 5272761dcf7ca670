# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handlers can tell the echo of this process's own writes, whether it comes before or after the answer."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pkg.apis.core.v1 import ConfigMap
from pkg.ctrl import cache, client

Settle = Callable[[], Awaitable[None]]


@pytest.fixture
async def told(start: Any) -> tuple[cache.Cache, list[str]]:
    lines: list[str] = []

    def say(what: str, obj: cache.Told[ConfigMap]) -> None:
        lines.append(f"{what} {obj.key.name} {'ours' if obj.own_write else 'theirs'}")

    made: cache.Cache = await start()
    informer = await made.get_informer(ConfigMap)
    informer.add_event_handler(
        cache.LookingHandlerFuncs(
            on_add=lambda obj, _: say("add", obj),
            on_update=lambda _, obj: say("update", obj),
            on_delete=lambda obj, _: say("delete", obj),
        )
    )
    await made.wait_for_sync(1)
    return made, lines


async def test_an_echo_after_the_answer_is_ours(told: Any, server: Any, settle: Settle) -> None:
    made, lines = told
    written = server.put("a", silent=True)
    made.remember_write(ConfigMap.from_dict(written))
    server.tell("ADDED", written)
    await settle()
    assert lines == ["add a ours"]


async def test_an_echo_before_the_answer_waits_for_it_and_is_ours(
    told: Any, server: Any, settle: Settle
) -> None:
    made, lines = told
    with made.writing(ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "team-a"}})):
        written = server.put("a")
        server.put("b")
        await settle()
        assert lines == ["add b theirs"]
        assert (await made.get(ConfigMap, ("team-a", "a"))).name == "a"
        made.remember_write(ConfigMap.from_dict(written))
    assert lines == ["add b theirs", "add a ours"]


async def test_what_others_change_during_a_write_is_theirs(told: Any, server: Any, settle: Settle) -> None:
    made, lines = told
    with made.writing(ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "team-a"}})):
        made.remember_write(ConfigMap.from_dict(server.put("a")))
        server.put("a", data={"k": "v"})
        server.remove("a")
        await settle()
    assert lines == ["add a ours", "update a theirs", "delete a theirs"]


async def test_a_write_that_fails_leaves_nothing_untold(told: Any, server: Any, settle: Settle) -> None:
    made, lines = told
    with (
        suppress(RuntimeError),
        made.writing(ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "team-a"}})),
    ):
        server.put("a")
        await settle()
        raise RuntimeError
    assert lines == ["add a theirs"]


async def test_who_begins_to_listen_during_a_write_is_told_once(
    told: Any, server: Any, settle: Settle, heard: Any
) -> None:
    made, lines = told
    with made.writing(ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "team-a"}})):
        server.put("a")
        await settle()
        (await made.get_informer(ConfigMap)).add_event_handler(heard.handler)
        await settle()
    assert (lines, heard.take()) == (["add a theirs"], ["add a initial"])


async def test_peeks_share_one_object_until_it_changes(told: Any, server: Any, settle: Settle) -> None:
    made, _ = told
    server.put("a")
    await settle()
    first = await client.peek(made, ConfigMap, ("team-a", "a"))
    assert await client.peek(client.read_only(made), ConfigMap, ("team-a", "a")) is first
    assert await made.get(ConfigMap, ("team-a", "a")) is not first
    server.put("a", data={"k": "v"})
    await settle()
    assert (await client.peek(made, ConfigMap, ("team-a", "a"))).data == {"k": "v"}
