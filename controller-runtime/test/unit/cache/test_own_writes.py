# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handlers can recognize events of this process's own writes, whether they arrive before or after the response."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import msgspec
import pytest

from controller_runtime import cache, client
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.machinery import LazyObject
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import FakeResponse
from ctrl_testkit.small import settle

A = ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "team-a"}})


@pytest.fixture
async def told(server: Any) -> tuple[cache.Cache, list[str]]:
    lines: list[str] = []

    def say(what: str, obj: LazyObject[ConfigMap]) -> None:
        lines.append(f"{what} {obj.key.name} {'ours' if obj.own_write else 'theirs'}")

    made: cache.Cache = await server.start()
    informer = await made.get_informer(ConfigMap)
    informer.add_event_handler(
        cache.LazyHandlerFuncs(
            on_add=lambda obj, _: say("add", obj),
            on_update=lambda _, obj: say("update", obj),
            on_delete=lambda obj, _: say("delete", obj),
        )
    )
    await made.wait_for_sync(1)
    return made, lines


async def test_an_echo_after_the_answer_is_ours(told: Any, server: Any) -> None:
    made, lines = told
    written = server.put("a", silent=True)
    made.remember_write(ConfigMap.from_dict(written))
    server.tell("ADDED", written)
    await settle()
    assert lines == ["add a ours"]


async def test_an_echo_before_the_answer_waits_for_it_and_is_ours(told: Any, server: Any) -> None:
    made, lines = told
    with made.writing(A):
        written = server.put("a")
        server.put("b")
        await settle()
        assert lines == ["add b theirs"]
        assert (await made.get(ConfigMap, ("team-a", "a"))).name == "a"
        made.remember_write(ConfigMap.from_dict(written))
    assert lines == ["add b theirs", "add a ours"]


async def test_what_others_change_during_a_write_is_theirs(told: Any, server: Any) -> None:
    made, lines = told
    with made.writing(A):
        made.remember_write(ConfigMap.from_dict(server.put("a")))
        server.put("a", data={"k": "v"})
        server.remove("a")
        await settle()
    assert lines == ["add a ours", "update a theirs", "delete a theirs"]


async def test_a_write_that_fails_leaves_nothing_untold(told: Any, server: Any) -> None:
    made, lines = told
    with suppress(RuntimeError), made.writing(A):
        server.put("a")
        await settle()
        raise RuntimeError
    assert lines == ["add a theirs"]


async def test_who_begins_to_listen_during_a_write_is_told_once(told: Any, server: Any) -> None:
    made, lines = told
    with made.writing(A):
        server.put("a")
        await settle()
        (await made.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
        await settle()
    assert (lines, server.heard.take()) == (["add a theirs"], ["add a initial"])


async def test_peeks_share_one_object_until_it_changes(told: Any, server: Any) -> None:
    made, _ = told
    server.put("a")
    await settle()
    first = (await client.peek(made, ConfigMap, ("team-a", "a"))).object
    assert (await client.peek(client.read_only(made), ConfigMap, ("team-a", "a"))).object is first
    assert await made.get(ConfigMap, ("team-a", "a")) is not first
    server.put("a", data={"k": "v"})
    await settle()
    assert (await client.peek(made, ConfigMap, ("team-a", "a"))).object.data == {"k": "v"}


async def test_an_answer_after_the_end_of_its_object_changes_nothing(told: Any, server: Any) -> None:
    made, lines = told
    written = ConfigMap.from_dict(server.put("a"))
    server.remove("a")
    await settle()
    made.remember_write(written)
    with pytest.raises(NotFoundError):
        await made.get(ConfigMap, ("team-a", "a"))
    assert await made.list(ConfigMap) == []
    assert lines == ["add a theirs", "delete a theirs"]


async def test_an_answer_after_the_deletion_of_an_object_whose_state_no_event_showed_changes_nothing(
    told: Any, server: Any
) -> None:
    made, lines = told
    server.put("a")
    written = ConfigMap.from_dict(server.put("a", data={"n": "1"}, silent=True))
    server.remove("a")  # the watch is past the version of the write
    await settle()
    made.remember_write(written)
    assert await made.list(ConfigMap) == []
    assert lines == ["add a theirs", "delete a theirs"]


async def test_a_write_that_an_event_has_shown_is_not_remembered(told: Any, server: Any) -> None:
    made, _ = told
    written = server.put("a", silent=True)
    made.remember_write(ConfigMap.from_dict(written))
    store = (await made.get_informer(ConfigMap)).shared.store
    assert store.unconfirmed(("team-a", "a")) is not None
    server.tell("ADDED", written)
    await settle()
    assert store.unconfirmed(("team-a", "a")) is None


async def test_the_next_write_of_an_object_has_the_whole_time_for_its_answer(told: Any, server: Any) -> None:
    made, lines = told
    with made.writing(A):
        made.remember_write(ConfigMap.from_dict(server.put("a")))
        await settle()
        await anyio.sleep(0.1)
    with made.writing(A):
        await anyio.sleep(0.05)
        second = server.put("a", data={"n": "2"})
        await settle()
        await anyio.sleep(0.15)  # more than 0.25 s after the first event
        made.remember_write(ConfigMap.from_dict(second))
    assert lines == ["add a ours", "update a ours"]


async def test_an_answer_during_a_list_is_read_although_the_list_has_shown_a_newer_object(
    told: Any, server: Any
) -> None:
    """Only the end of a list says which changes the list contains: it shows the objects in any order."""
    made, _ = told
    server.put("ours")
    server.put("newer")
    await settle()
    written = ConfigMap.from_dict(server.put("ours", silent=True, data={"n": "2"}))
    shown = server.put("newer", silent=True)

    async def begin() -> AsyncIterator[bytes]:
        yield msgspec.json.encode({"type": "ADDED", "object": shown})
        await anyio.sleep_forever()

    server.faults.append(lambda _: FakeResponse(lines=begin()))
    server.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    await anyio.sleep(5)
    newer = await made.get(ConfigMap, ("team-a", "newer"))
    assert newer.metadata.resource_version == shown["metadata"]["resourceVersion"]
    made.remember_write(written)
    assert (await made.get(ConfigMap, ("team-a", "ours"))).data == {"n": "2"}


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "paging"])
async def test_an_answer_after_a_list_without_its_object_changes_nothing(
    told: Any, server: Any, streams: bool
) -> None:
    made, _ = told
    server.streams_lists = streams
    written = ConfigMap.from_dict(server.put("a", silent=True))
    server.remove("a", silent=True)
    await relist(server)
    made.remember_write(written)
    assert await made.list(ConfigMap) == []


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "paging"])
async def test_the_end_of_what_only_we_knew_is_reported(told: Any, server: Any, streams: bool) -> None:
    made, lines = told
    server.streams_lists = streams
    made.remember_write(ConfigMap.from_dict(server.put("a", silent=True)))
    assert [obj.name for obj in await made.list(ConfigMap)] == ["a"]
    server.remove("a", silent=True)
    await relist(server)
    assert await made.list(ConfigMap) == []
    assert lines == ["add a ours", "delete a theirs"]


async def test_the_end_of_what_only_we_knew_is_reported_when_another_has_its_name(
    told: Any, server: Any
) -> None:
    made, lines = told
    made.remember_write(ConfigMap.from_dict(server.put("a", silent=True)))
    server.remove("a", silent=True)
    server.put("a", silent=True, uid="another")
    await relist(server)
    assert (await made.get(ConfigMap, ("team-a", "a"))).metadata.uid == "another"
    assert lines == ["add a ours", "delete a theirs", "add a theirs"]


@pytest.mark.parametrize("answered_first", [True, False], ids=["answer first", "list first"])
async def test_a_list_that_shows_our_write_may_hide_another_change_before_it(
    told: Any, server: Any, answered_first: bool
) -> None:
    made, lines = told
    server.put("a")
    await settle()
    server.put("a", silent=True, data={"from": "another writer"})
    with made.writing(A):
        written = ConfigMap.from_dict(server.put("a", silent=True))
        if answered_first:
            made.remember_write(written)
        expire(server)
        await settle()
        if not answered_first:
            made.remember_write(written)
    await anyio.sleep(5)
    assert lines == ["add a theirs", "update a theirs"]


async def test_a_delete_by_name_does_not_hide_the_object_that_took_the_name(told: Any, server: Any) -> None:
    made, _ = told
    server.put("a")
    await settle()
    uid = made.uid_of(A)
    assert uid == "uid-a"
    server.remove("a")
    server.put("a", uid="another")
    await settle()
    made.remember_delete(A, uid=uid)
    made.remember_delete(A)
    assert (await made.get(ConfigMap, ("team-a", "a"))).metadata.uid == "another"
    made.remember_delete(A, uid="another")
    assert (await made.list(ConfigMap), made.uid_of(A)) == ([], "")


async def test_a_write_that_hangs_does_not_keep_changes_from_handlers(told: Any, server: Any) -> None:
    made, lines = told
    with made.writing(A):
        server.put("a")
        await anyio.sleep(0.2)
        assert lines == []
        await anyio.sleep(0.1)
        assert lines == ["add a theirs"]
        await anyio.sleep(10)
        server.put("a", data={"k": "1"})
        await anyio.sleep(0.3)
        assert lines == ["add a theirs", "update a theirs"]
        written = server.put("a", data={"k": "2"})
        await settle()
        made.remember_write(ConfigMap.from_dict(written))
        assert lines == ["add a theirs", "update a theirs"]
    assert lines == ["add a theirs", "update a theirs", "update a ours"]


@pytest.mark.parametrize("answered_first", [True, False], ids=["answer first", "event first"])
async def test_our_deletion_of_an_object_with_finalizers_is_reported_as_any_other(
    told: Any, server: Any, answered_first: bool
) -> None:
    """Finalizers have to be removed, also by a controller that stops events of its own writes."""
    made, lines = told
    finalizers = {"finalizers": ["example.com/cleanup"]}
    obj = ConfigMap.from_dict(server.put("a", metadata=finalizers))
    await settle()
    metadata = {**finalizers, "deletionTimestamp": "2026-01-01T00:00:00Z"}

    class Live:
        async def remove(self, _: Any, **__: Any) -> ConfigMap:
            self.left = server.put("a", silent=answered_first, metadata=metadata)
            await settle()
            return ConfigMap.from_dict(self.left)

    live: Any = Live()
    await client.CachedClient(live, made).delete(obj)
    if answered_first:
        server.tell("MODIFIED", live.left)
    await settle()
    made.remember_write(ConfigMap.from_dict(patched := server.put("a", silent=True, metadata=metadata)))
    server.tell("MODIFIED", patched)
    await settle()
    assert lines == ["add a theirs", "update a theirs", "update a ours"]


def expire(server: Any) -> None:
    """End the watch so that everything is listed again."""
    server.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


async def relist(server: Any) -> None:
    """Have everything listed again, and wait for it."""
    expire(server)
    await anyio.sleep(5)
