# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cache returns this process's own writes before the watch delivers them, and forgets them afterwards."""

from typing import Any

import anyio
import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Namespace
from controller_runtime.cache import (
    ByObject,
)
from controller_runtime.machinery import metadata_only
from controller_runtime.machinery.errors import NotFoundError
from ctrl_testkit.small import names, settle


class TestOwnWrites:
    async def test_are_read_before_the_watch_tells_of_them(self, server: Any) -> None:
        watched = await server.watched()
        server.put("a", data={"n": "1"})
        await settle()
        written = ConfigMap.from_dict(server.put("a", data={"n": "2"}, silent=True))
        watched.remember_write(written)
        assert (await watched.get(ConfigMap, ("team-a", "a"))).data == {"n": "2"}
        assert [obj.data for obj in await watched.list(ConfigMap)] == [{"n": "2"}]
        assert server.heard.take() == ["add a"]

    async def test_give_way_to_what_is_newer(self, server: Any) -> None:
        watched = await server.watched()
        server.put("a", silent=True)
        written = ConfigMap.from_dict(server.put("a", data={"n": "1"}, silent=True))
        server.put("a", data={"n": "2"})
        await settle()
        watched.remember_write(written)
        assert (await watched.get(ConfigMap, ("team-a", "a"))).data == {"n": "2"}

    async def test_outlast_older_events_that_arrive_late(self, server: Any) -> None:
        watched = await server.watched()
        server.version = 98  # the next versions are 99 and 100, which compare differently as text
        older = server.put("a", data={"n": "1"}, silent=True)
        newest = server.put("a", data={"n": "2"}, silent=True)
        watched.remember_write(ConfigMap.from_dict(newest))
        server.tell("ADDED", older)
        await settle()
        assert (await watched.get(ConfigMap, ("team-a", "a"))).data == {"n": "2"}
        server.tell("MODIFIED", newest)
        server.remove("a")
        await settle()
        assert await watched.list(ConfigMap) == []

    async def test_are_found_by_index_and_label_as_they_are_now(self, server: Any) -> None:
        server.put("a", data={"n": "1"}, metadata={"labels": {"x": "1"}})
        cache = await server.start()
        await cache.index_field(ConfigMap, "n", lambda obj: [obj.data["n"]])
        await cache.list(ConfigMap)
        cache.remember_write(
            ConfigMap.from_dict(
                server.put("a", data={"n": "2"}, metadata={"labels": {"x": "2"}}, silent=True)
            )
        )
        assert names(await cache.list(ConfigMap, fields={"n": "1"})) == []
        assert names(await cache.list(ConfigMap, fields={"n": "2"})) == ["a"]
        assert names(await cache.list(ConfigMap, labels={"x": "1"})) == []
        assert names(await cache.list(ConfigMap, labels={"x": "2"}, namespace="team-a")) == ["a"]

    async def test_are_seen_by_readers_of_metadata_too(self, server: Any) -> None:
        watched = await server.watched()
        partial = metadata_only(ConfigMap)
        assert await watched.list(partial) == []
        watched.remember_write(
            ConfigMap.from_dict(server.put("a", metadata={"labels": {"x": "y"}}, silent=True))
        )
        assert (await watched.get(partial, ("team-a", "a"))).labels == {"x": "y"}
        # A remembered write of metadata is not returned in place of the whole object.
        watched.remember_write(partial.from_dict(server.put("b", silent=True)))
        assert names(await watched.list(ConfigMap)) == ["a"]

    async def test_that_delete_hide_the_object_until_another_takes_its_name(self, server: Any) -> None:
        watched = await server.watched()
        server.put("a")
        await settle()
        obj = await watched.get(ConfigMap, ("team-a", "a"))
        watched.remember_delete(obj)
        with pytest.raises(NotFoundError):
            await watched.get(ConfigMap, ("team-a", "a"))
        server.put("a", uid="another")
        await settle()
        assert (await watched.get(ConfigMap, ("team-a", "a"))).metadata.uid == "another"

    @pytest.mark.parametrize("reported", [True, False], ids=["its end comes", "its end is missed"])
    async def test_that_delete_outlast_late_news_of_an_earlier_object_of_the_name(
        self, server: Any, *, reported: bool
    ) -> None:
        watched = await server.watched()
        first = server.put("a", uid="first")
        await settle()
        changed = server.put("a", uid="first", data={"n": "1"}, silent=True)
        server.remove("a", silent=True)
        second = server.put("a", uid="second", silent=True)
        written = ConfigMap.from_dict(second)
        watched.remember_write(written)
        server.remove("a", silent=True)
        watched.remember_delete(written, uid="second")
        server.tell("MODIFIED", changed)
        await settle()
        assert await watched.list(ConfigMap) == []
        if reported:
            server.tell("DELETED", first)
        server.tell("ADDED", second)
        await settle()
        assert await watched.list(ConfigMap) == []
        server.tell("DELETED", second)
        server.put("a", uid="third")
        await settle()
        assert [each.metadata.uid for each in await watched.list(ConfigMap)] == ["third"]

    async def test_that_delete_what_goes_slowly_hide_it_no_longer_than_the_watch_is_silent(
        self, server: Any
    ) -> None:
        watched = await server.watched()
        server.put("a")
        await settle()
        watched.remember_delete(await watched.get(ConfigMap, ("team-a", "a")))
        server.put("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]})
        await settle()
        assert names(await watched.list(ConfigMap)) == ["a"]

    async def test_that_take_the_last_finalizer_away_delete(self, server: Any) -> None:
        watched = await server.watched()
        dying = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
        server.put("a", metadata=dying)
        await settle()
        obj = await watched.get(ConfigMap, ("team-a", "a"))
        obj.metadata.finalizers = None
        watched.remember_write(obj)
        assert await watched.list(ConfigMap) == []

    async def test_that_delete_outlast_the_news_that_it_was_dying(self, server: Any) -> None:
        watched = await server.watched()
        server.put("a")
        await settle()
        marked = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        dying = server.put("a", metadata={**marked, "finalizers": ["x/y"]}, silent=True)
        gone = ConfigMap.from_dict(dying)
        gone.metadata.finalizers = None
        watched.remember_write(gone)
        server.tell("MODIFIED", dying)
        await settle()
        assert await watched.list(ConfigMap) == []

    @pytest.mark.parametrize("early", [True, False], ids=["after its event", "before its event"])
    @pytest.mark.parametrize("kind", [Namespace, metadata_only(Namespace)], ids=["whole", "metadata"])
    async def test_of_a_terminating_namespace_do_not_hide_it(
        self, server: Any, kind: Any, *, early: bool
    ) -> None:
        cache = await server.start()
        terminating, spec = {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"finalizers": ["kubernetes"]}
        watched = {"namespace": "", **({"spec": spec} if kind is Namespace else {})}
        server.put("a", metadata=terminating, **watched)
        await cache.get(kind, ("", "a"))
        written = server.put("a", metadata=terminating | {"labels": {"x": "y"}}, **watched, silent=True)
        if early:
            server.tell("MODIFIED", written)
            await settle()
        cache.remember_write(Namespace.from_dict({**written, "kind": "Namespace", "spec": spec}))
        if not early:
            server.tell("MODIFIED", written)
            await settle()
        assert (await cache.get(kind, ("", "a"))).labels == {"x": "y"}

    async def test_that_remove_the_selected_label_hide_the_object(self, server: Any) -> None:
        cache = await server.start(by_object={ConfigMap: ByObject(labels={"app": "x"})})
        selected = {"labels": {"app": "x"}}
        server.put("a", metadata=selected)
        assert names(await cache.list(ConfigMap)) == ["a"]
        cache.remember_write(ConfigMap.from_dict(server.put("a", silent=True)))
        assert await cache.list(ConfigMap) == []
        server.put("a", metadata=selected)
        await settle()
        assert names(await cache.list(ConfigMap)) == ["a"]

    async def test_are_forgotten_when_a_bookmark_passes_them_or_in_time(self, server: Any) -> None:
        watched = await server.watched()
        watched.remember_write(ConfigMap.from_dict(server.put("a", silent=True)))
        assert names(await watched.list(ConfigMap)) == ["a"]
        server.bookmark()
        await settle()
        assert names(await watched.list(ConfigMap)) == []
        watched.remember_write(ConfigMap.from_dict(server.put("b", silent=True)))
        await anyio.sleep(121)
        assert names(await watched.list(ConfigMap)) == []

    async def test_that_the_cache_does_not_select_are_not_remembered(self, server: Any) -> None:
        cache = await server.start(
            by_object={
                ConfigMap: ByObject(
                    labels={"app": "x"}, fields={"metadata.name": "a"}, namespaces=("team-a",)
                )
            }
        )
        await cache.list(ConfigMap)
        (query,) = server.queries
        assert (query["labelSelector"], query["fieldSelector"]) == ("app=x", "metadata.name=a")
        yes = {"labels": {"app": "x"}}
        cache.remember_write(ConfigMap.from_dict(server.put("a", metadata=yes, silent=True)))
        cache.remember_write(ConfigMap.from_dict(server.put("b", silent=True)))
        cache.remember_write(
            ConfigMap.from_dict(server.put("c", namespace="other", metadata=yes, silent=True))
        )
        assert await cache.list(ConfigMap) == []

    async def test_that_delete_what_the_watch_never_told_of_make_room_for_another(self, server: Any) -> None:
        watched = await server.watched()
        written = ConfigMap.from_dict(server.put("a", silent=True))
        watched.remember_write(written)
        watched.remember_delete(written)
        assert await watched.list(ConfigMap) == []
        server.put("a", uid="another")
        await settle()
        assert (await watched.get(ConfigMap, ("team-a", "a"))).metadata.uid == "another"

    async def test_that_delete_are_forgotten_when_an_object_of_the_name_is_reported_deleted_later(
        self, server: Any
    ) -> None:
        watched = await server.watched()
        written = ConfigMap.from_dict(server.put("a", silent=True))
        watched.remember_write(written)
        server.remove("a", silent=True)
        watched.remember_delete(written)
        server.put("a", uid="another", silent=True)
        server.remove("a")
        await settle()
        (informer,) = watched.informers()
        assert not informer.shared.store.unconfirmed_keys()

    async def test_remembered_in_another_order_leave_the_newest(self, server: Any) -> None:
        watched = await server.watched()
        first = ConfigMap.from_dict(server.put("a", data={"n": "1"}, silent=True))
        second = ConfigMap.from_dict(server.put("a", data={"n": "2"}, silent=True))
        watched.remember_write(second)
        watched.remember_write(first)
        assert (await watched.get(ConfigMap, ("team-a", "a"))).data == {"n": "2"}

    @pytest.mark.parametrize("streams", [True, False], ids=["streaming", "paging"])
    async def test_outlast_a_relist_that_is_older(self, server: Any, streams: bool) -> None:
        server.streams_lists = streams
        server.put("gone")
        server.put("reborn")
        cache = await server.start()
        await cache.list(ConfigMap)
        server.remove("gone", silent=True)
        server.put("reborn", silent=True, uid="another")
        snapshot, then = dict(server.objects), server.version
        server.put("gone", silent=True, uid="ours")
        server.put("reborn", silent=True, uid="ours")
        for written in server.objects.values():
            cache.remember_write(ConfigMap.from_dict(written))
        server.objects, server.version = snapshot, then
        server.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await anyio.sleep(5)
        assert {(obj.name, obj.metadata.uid) for obj in await cache.list(ConfigMap)} == {
            ("gone", "ours"),
            ("reborn", "ours"),
        }

    async def test_outlast_a_bookmark_of_another_namespace(self, server: Any) -> None:
        cache = await server.start(default_namespaces=("team-a", "team-b"))
        await cache.list(ConfigMap)
        for namespace in ("team-a", "team-b"):
            written = server.put("w", namespace=namespace, silent=True)
            cache.remember_write(ConfigMap.from_dict(written))
        (open_stream, _), served = server.streams, server.streams
        server.streams = [open_stream]
        server.bookmark()
        await settle()
        server.streams = served
        left = await cache.list(ConfigMap)
        # The watch of one namespace has passed the write without showing it, so that object is gone.
        assert len(left) == 1

    async def test_stay_in_their_namespace(self, server: Any) -> None:
        watched = await server.watched()
        watched.remember_write(ConfigMap.from_dict(server.put("a", silent=True)))
        assert await watched.list(ConfigMap, namespace="team-b") == []
        assert await watched.list(ConfigMap, fields={"metadata.name": "b"}) == []
