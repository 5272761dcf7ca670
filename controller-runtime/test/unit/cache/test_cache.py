# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio
import msgspec
import pytest

from controller_runtime import cache as room
from controller_runtime import fairness, log, offload
from controller_runtime.apis.core.v1 import ConfigMap, Node
from controller_runtime.cache import (
    ByObject,
    CacheDegradedError,
    CacheNotStartedError,
    CacheSyncTimeoutError,
    EventHandlerFuncs,
    IndexMissingError,
    InNamespace,
    NamespaceNotCachedError,
    UndecodableObjectError,
    codec,
)
from controller_runtime.client import CachedClient, LiveClient
from controller_runtime.machinery import GVK, NamespacedName, Object, metadata_only, unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.reconcile import Request
from controller_runtime.rest import FakeResponse, FakeTransport, RESTMapper
from ctrl_testkit.odd_exceptions import Odd, Written, errors
from ctrl_testkit.small import names, settle

CORE = {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}]}


async def test_a_kind_is_watched_when_somebody_first_reads_it(server: Any) -> None:
    server.put("a", data={"k": "v"})
    cache = await server.start()
    assert server.transport.requests == []
    got = await cache.get(ConfigMap, ("team-a", "a"))
    assert got.data == {"k": "v"}
    assert (got.api_version, got.kind, got.metadata.managed_fields) == ("v1", "ConfigMap", None)
    await cache.list(ConfigMap)
    assert len(server.transport.requests) == 1


async def test_a_large_object_is_decoded_in_a_thread(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decoding: list[bool] = []

    def from_json(text: bytes) -> ConfigMap:
        decoding.append(threading.current_thread() is threading.main_thread())
        return ConfigMap.from_dict(msgspec.json.decode(text))

    server.put("small", data={"k": "v"})
    server.put("large", data={"k": "v" * 2 * offload.LARGE})
    cache = await server.start()
    monkeypatch.setattr(ConfigMap, "from_json", staticmethod(from_json))
    for name in ("small", "large"):
        assert (await cache.get(ConfigMap, ("team-a", name))).name == name
        lazy = await cache.peek(ConfigMap, ("team-a", name))
        assert (await offload.decoded(lazy)) is (await offload.decoded(lazy))
    assert decoding == [True, True, False, False]


@pytest.mark.parametrize("declared", [True, False])
async def test_the_namespace_of_a_cluster_scoped_object_is_ignored(server: Any, declared: bool) -> None:
    server.put("n", namespace="")
    cache = await server.start()
    kind: type[Object] = Node
    if not declared:
        kind = unstructured(GVK("", "v1", "Node"))
        nodes = {"resources": [{"name": "nodes", "kind": "Node", "namespaced": False}]}
        cache._mapper = RESTMapper(FakeTransport(lambda _: FakeResponse(200, nodes)))
    assert (await cache.get(kind, ("team-a", "n"))).name == "n"
    assert (await cache.peek(kind, ("team-a", "n"))).object.name == "n"
    assert names(await cache.list(kind, namespace="team-a")) == ["n"]
    informer = await cache.get_informer(kind)
    assert informer.has(NamespacedName("team-a", "n"))
    assert list(informer.keys("team-a")) == [NamespacedName("", "n")]


async def test_our_writes_of_a_cluster_scoped_object_count_although_it_names_a_namespace(server: Any) -> None:
    written = server.put("n", namespace="")
    cache = await server.start()
    await cache.get(Node, ("", "n"))
    named = Node.from_dict({"metadata": {"name": "n", "namespace": "team-a"}})
    told: list[bool] = []
    (await cache.get_informer(Node)).add_event_handler(
        room.LazyHandlerFuncs(
            on_add=lambda _, __: None,
            on_update=lambda _, obj: told.append(obj.own_write),
            on_delete=lambda _, __: None,
        )
    )
    with cache.writing(named):
        written = server.put("n", namespace="")
        await anyio.sleep(0.001)
        assert told == []
        cache.remember_write(Node.from_dict({**written, "kind": "Node"}))
    assert told == [True]
    assert cache.uid_of(named) == "uid-n"
    cache.remember_delete(named, uid="uid-n")
    with pytest.raises(NotFoundError):
        await cache.get(Node, ("", "n"))


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_of_0_or_less_is_none(limit: int, server: Any) -> None:
    server.put("a")
    cache = await server.start()
    assert len(await cache.list(ConfigMap, limit=limit)) == 1


@pytest.mark.parametrize("live", [False, True])
async def test_a_map_function_that_lists_an_unstructured_kind_sends_one_request_in_all(
    server: Any, live: bool
) -> None:
    for number in range(20):
        server.put(f"c{number}")
    cache = await server.start()
    kind = unstructured(GVK("", "v1", "ConfigMap"))
    mapper = RESTMapper(FakeTransport(lambda _: FakeResponse(200, CORE)))
    client = CachedClient(LiveClient(server.transport, mapper), cache, live_unstructured=live)
    cache._mapper = mapper

    async def requests_for(obj: ConfigMap) -> list[Request]:
        return [Request(*each.key) for each in await client.list(kind, namespace=obj.namespace)]

    for obj in await cache.list(ConfigMap):
        assert len(await requests_for(obj)) == 20
    assert len(server.transport.requests) == (21 if live else 1)


async def test_a_namespace_may_have_selectors_of_its_own(server: Any) -> None:
    own = InNamespace(labels={"app": "web"}, fields={"metadata.name": "a"})
    kind = ByObject(
        labels={"app": "any"}, namespaces={"team-a": own, "team-b": InNamespace(), "team-c": None}
    )
    cache = await server.start(by_object={ConfigMap: kind})
    await cache.list(ConfigMap, namespace="team-a")
    selected = {
        request.path.split("/")[4]: (query.get("labelSelector"), query.get("fieldSelector"))
        for request, query in zip(server.transport.requests, server.queries, strict=True)
    }
    assert selected == {
        "team-a": ("app=web", "metadata.name=a"),
        "team-b": ("app=any", None),
        "team-c": ("app=any", None),
    }


async def test_reads_see_a_write_that_the_selectors_of_its_namespace_pick(server: Any) -> None:
    kind = ByObject(namespaces={"a": InNamespace(labels="app=web"), "b": None})
    cache = await server.start(by_object={ConfigMap: kind})
    await cache.list(ConfigMap)
    for namespace in "ab":
        made = ConfigMap.from_dict(
            {"metadata": {"name": "w", "namespace": namespace, "resourceVersion": "99"}}
        )
        cache.remember_write(made)
    assert [each.namespace for each in await cache.list(ConfigMap)] == ["b"]


def test_all_namespaces_have_no_others_beside_them() -> None:
    kind = ByObject(namespaces={"": InNamespace(), "a": None})
    with pytest.raises(ValueError, match="all namespaces"):
        room.Options(by_object={ConfigMap: kind}).for_kind(ConfigMap)


async def test_a_read_gives_up_after_its_timeout(server: Any) -> None:
    async def never() -> AsyncIterator[bytes]:
        await anyio.sleep(3600)
        yield b""

    server.faults.extend([lambda _request: FakeResponse(lines=never())] * 9)
    cache = await server.start(read_timeout=7.0)
    began = anyio.current_time()
    with pytest.raises(CacheSyncTimeoutError, match="no list within 7 s"):
        await cache.get(ConfigMap, ("team-a", "a"))
    assert anyio.current_time() - began == pytest.approx(7)


async def test_reading_before_the_cache_runs_says_so(server: Any) -> None:
    with pytest.raises(CacheNotStartedError, match="ConfigMap: the cache is not started"):
        await room.Cache(server.transport).get(ConfigMap, ("team-a", "a"))


async def test_an_absent_object_is_the_servers_own_not_found(server: Any) -> None:
    watched = await server.watched()
    with pytest.raises(NotFoundError, match=r'^configmaps "a\\nb\\"" not found$'):
        await watched.get(ConfigMap, ("team-a", 'a\nb"'))


async def test_an_informer_knows_which_objects_the_watch_reported(server: Any) -> None:
    server.put("a")
    made = await server.start()
    informer = await made.get_informer(ConfigMap)
    await informer.wait_for_sync()
    a, b = NamespacedName("team-a", "a"), NamespacedName("team-a", "b")
    assert (informer.has(a), informer.has(b), informer.has(NamespacedName("", "a"))) == (True, False, False)
    server.put("b")
    server.remove("a")
    await settle()
    assert (informer.has(a), informer.has(b)) == (False, True)


async def test_readers_share_nothing(server: Any) -> None:
    watched = await server.watched()
    server.put("a", data={"k": "v"})
    await settle()
    (await watched.get(ConfigMap, ("team-a", "a"))).data["k"] = "changed"
    (await watched.list(ConfigMap))[0].data["k"] = "changed"
    assert (await watched.get(ConfigMap, ("team-a", "a"))).data == {"k": "v"}


async def test_lists_are_narrowed_by_namespace_labels_name_and_index(server: Any) -> None:
    for name, namespace, color in [
        ("a", "x", "red"),
        ("b", "x", "blue"),
        ("a", "y", "red"),
        ("c", "y", "green"),
    ]:
        server.put(name, namespace=namespace, metadata={"labels": {"color": color}}, data={"shade": color[0]})
    cache = await server.start()
    await cache.index_field(ConfigMap, "shade", lambda obj: [obj.data["shade"]])

    def keys(objects: Iterable[Object]) -> list[tuple[str, str]]:
        return [(obj.namespace, obj.name) for obj in objects]

    assert keys(await cache.list(ConfigMap, namespace="x")) == [("x", "a"), ("x", "b")]
    assert keys(await cache.list(ConfigMap, labels={"color": "red"})) == [("x", "a"), ("y", "a")]
    assert keys(await cache.list(ConfigMap, labels="color in (blue,green)")) == [("x", "b"), ("y", "c")]
    assert keys(await cache.list(ConfigMap, labels="color!=red", namespace="y")) == [("y", "c")]
    assert keys(await cache.list(ConfigMap, fields={"shade": "r"})) == [("x", "a"), ("y", "a")]
    assert keys(await cache.list(ConfigMap, fields={"shade": "r"}, namespace="y")) == [("y", "a")]
    assert keys(await cache.list(ConfigMap, fields={"shade": "r", "metadata.namespace": "x"})) == [("x", "a")]
    assert keys(await cache.list(ConfigMap, fields={"metadata.namespace": "x"}, namespace="y")) == []
    assert keys(await cache.list(ConfigMap, fields={"metadata.namespace": ""})) == []
    assert keys(await cache.list(ConfigMap, fields={"metadata.name": "b"})) == [("x", "b")]
    assert keys(await cache.list(ConfigMap, limit=1)) == [("x", "a")]
    assert keys(await cache.list(ConfigMap, fields={"shade": "none"})) == []


async def test_an_index_follows_changes_and_deletions(server: Any) -> None:
    cache = await server.start()
    await cache.index_field(ConfigMap, "key", lambda obj: list(obj.data or ()))
    await cache.list(ConfigMap)
    server.put("a", data={"one": "", "two": ""})
    await settle()
    assert names(await cache.list(ConfigMap, fields={"key": "one"})) == ["a"]
    server.put("a", data={"two": "", "three": ""})
    await settle()
    assert names(await cache.list(ConfigMap, fields={"key": "one"})) == []
    assert names(await cache.list(ConfigMap, fields={"key": "three"})) == ["a"]
    server.remove("a")
    await settle()
    assert names(await cache.list(ConfigMap, fields={"key": "two"})) == []


async def test_a_field_without_an_index_is_refused_by_name(server: Any) -> None:
    watched = await server.watched()
    with pytest.raises(IndexMissingError, match=r"ConfigMap: no index with name 'spec\.x' is registered"):
        await watched.list(ConfigMap, fields={"spec.x": "y"})


async def test_an_index_is_registered_once_and_in_time(server: Any) -> None:
    cache = await server.start()
    await cache.index_field(ConfigMap, "a", lambda _obj: ())
    with pytest.raises(ValueError, match="an index with name 'a' is registered already"):
        await cache.index_field(ConfigMap, "a", lambda _obj: ())
    await cache.list(ConfigMap)
    with pytest.raises(ValueError, match="index 'b' is too late"):
        await cache.index_field(ConfigMap, "b", lambda _obj: ())


async def test_a_transform_that_fails_on_one_object_loses_only_that(server: Any, odd: Odd) -> None:
    def fussy(obj: dict[str, Any]) -> dict[str, Any]:
        match obj.get("data"):
            case {"bad": "raise"}:
                raise odd()
            case {"bad": "nothing"}:
                return None  # type: ignore[return-value]  # a transform might return it by mistake
            case {"bad": "nameless"}:
                return {"metadata": {}}
        return obj

    for number, bad in enumerate(("raise", "nothing", "nameless")):
        server.put(f"bad-{number}", data={"bad": bad})
    server.put("good")
    cache = await server.start(by_object={ConfigMap: ByObject(transform=fussy)})
    informer = await cache.get_informer(ConfigMap)
    informer.add_event_handler(server.heard.handler)
    assert names(await cache.list(ConfigMap)) == ["good"]
    assert informer.skipped == 3
    server.put("good", data={"bad": "raise"})
    cache.remember_write(ConfigMap.from_dict(server.put("new", data={"bad": "raise"}, silent=True)))
    await settle()
    assert names(await cache.list(ConfigMap)) == ["good"]
    server.remove("good")
    await settle()
    assert names(await cache.list(ConfigMap)) == []
    assert server.heard.take() == ["add good initial", "delete good unknown"]


async def test_a_handler_that_fails_costs_neither_the_watch_nor_other_handlers(
    server: Any, odd: Odd, written: Written
) -> None:
    watched = await server.watched()

    def fail(*_: Any) -> None:
        raise odd()

    informer = await watched.get_informer(ConfigMap)
    informer.add_event_handler(EventHandlerFuncs(on_add=fail, on_update=fail, on_delete=fail))
    informer.add_event_handler(server.heard.handler)
    await settle()
    server.heard.take()
    for step in (server.put, server.put, server.remove):
        step("a")
        await settle()
    assert server.heard.take() == ["add a"] * 2 + ["update a 11->12"] * 2 + ["delete a"] * 2
    assert errors(written) == ["Handler failed"] * 3


async def test_what_labels_were_seen_is_not_kept(server: Any) -> None:
    watched = await server.watched()
    for number in range(codec.MAX_SHARED):  # each of them is two texts
        server.put("a", metadata={"labels": {f"key-{number}": f"value-{number}", "long": "x" * 1000}})
    await settle()
    await anyio.sleep(1)
    (found,) = await watched.list(ConfigMap)
    assert f"key-{number}" in found.labels
    assert len(codec._shared) <= codec.MAX_SHARED
    assert max(map(len, codec._shared)) < 1000


async def test_an_index_function_that_fails_for_one_object_loses_only_that(
    server: Any, odd: Odd, written: Written
) -> None:
    def extract(obj: ConfigMap) -> list[str]:
        if obj.data is None:
            raise odd()
        return [obj.data["k"]]

    server.put("odd")
    server.put("even", data={"k": "v"})
    cache = await server.start()
    await cache.index_field(ConfigMap, "k", extract)
    assert names(await cache.list(ConfigMap, fields={"k": "v"})) == ["even"]
    assert names(await cache.list(ConfigMap)) == ["odd", "even"]
    assert (await cache.get_informer(ConfigMap)).skipped == 1
    assert [line["msg"] for line in written() if line["level"] == "warn"] == ["Object skipped"]


async def test_an_object_of_another_shape_is_left_out_of_lists_and_named_by_get(server: Any) -> None:
    server.put("odd", data={"k": 1})
    server.put("even", data={"k": "v"})
    cache = await server.start()
    (await cache.get_informer(ConfigMap)).add_event_handler(server.heard.handler)
    listed = await cache.list(ConfigMap)
    assert names(listed) == ["even"]
    assert [str(each).partition(": ")[0] for each in listed.skipped] == ["ConfigMap team-a/odd"]
    assert server.heard.take() == ["add even initial"]
    with pytest.raises(UndecodableObjectError, match=r"ConfigMap team-a/odd: data\.k: .*string"):
        await cache.get(ConfigMap, ("team-a", "odd"))
    assert (await cache.get_informer(ConfigMap)).skipped == 3
    whatever = await cache.get(unstructured(ConfigMap.gvk), ("team-a", "odd"))
    assert whatever["data"] == {"k": 1}
    assert len(server.transport.requests) == 1


async def test_an_odd_object_is_told_once_it_is_mended_and_its_end_by_its_metadata(server: Any) -> None:
    watched = await server.watched()
    server.put("mended", data={"k": 1})
    server.put("removed", data={"k": 1})
    await settle()
    assert server.heard.take() == []
    server.put("mended", data={"k": "v"})
    server.remove("removed")
    await settle()
    assert server.heard.take() == ["add mended", "delete removed"]
    server.put("mended", data={"k": 2})
    await settle()
    assert server.heard.take() == []
    assert (await watched.get_informer(ConfigMap)).skipped == 3


class Full(Object, group="", version="v1", kind="ConfigMap", plural="configmaps"):
    """A ConfigMap that must have data."""

    data: dict[str, str]


@pytest.mark.parametrize("first", [ConfigMap, Full])
async def test_the_end_of_an_odd_object_is_told_although_its_class_requires_a_field(
    server: Any, first: type[Object]
) -> None:
    server.put("odd", data={"k": 1})
    cache = await server.start()
    await cache.get_informer(first)
    (await cache.get_informer(Full)).add_event_handler(server.heard.handler)
    await cache.wait_for_sync(1)
    server.remove("odd")
    await settle()
    assert server.heard.take() == ["delete odd"]


async def test_metadata_only_is_asked_for_and_kept_apart(server: Any) -> None:
    server.put("a", metadata={"labels": {"x": "y"}})
    cache = await server.start()
    got = await cache.get(metadata_only(ConfigMap), ("team-a", "a"))
    assert (got.kind, got.api_version, got.labels) == ("ConfigMap", "v1", {"x": "y"})
    assert "as=PartialObjectMetadata;" in server.transport.requests[0].headers["Accept"]
    await cache.get(ConfigMap, ("team-a", "a"))
    assert len(server.transport.requests) == 2


async def test_the_server_selects_what_is_stored_and_label_selectors_of_reads_the_transformed_object(
    server: Any,
) -> None:
    def relabel(obj: dict[str, Any]) -> dict[str, Any]:
        obj["metadata"]["labels"] = {"size": "small"}
        del obj["data"]
        return obj

    server.put("a", metadata={"labels": {"app": "x"}}, data={"big": "x" * 1000})
    cache = await server.start(by_object={ConfigMap: ByObject(labels={"app": "x"}, transform=relabel)})
    assert (await cache.get(ConfigMap, ("team-a", "a"))).data is None
    assert names(await cache.list(ConfigMap, labels={"size": "small"})) == ["a"]
    assert names(await cache.list(ConfigMap, labels={"app": "x"})) == []
    # The server selects by the labels that it stores.
    for name, app in (("b", "x"), ("c", "y")):
        written = server.put(name, metadata={"labels": {"app": app}}, data={}, silent=True)
        cache.remember_write(ConfigMap.from_dict(written))
    assert names(await cache.list(ConfigMap, labels={"size": "small"})) == ["a", "b"]


async def test_a_transform_that_renames_an_object_loses_it(server: Any) -> None:
    def rename(obj: dict[str, Any]) -> dict[str, Any]:
        obj["metadata"]["name" if obj["data"]["lose"] == "name" else "namespace"] = "other"
        return obj

    server.put("a", data={"lose": "name"})
    server.put("b", data={"lose": "namespace"})
    cache = await server.start(by_object={ConfigMap: ByObject(transform=rename)})
    assert names(await cache.list(ConfigMap)) == []
    assert (await cache.get_informer(ConfigMap)).skipped == 2


async def test_an_informer_has_not_the_context_of_the_reconcile_that_needs_it_first(server: Any) -> None:
    contexts: list[tuple[str, dict[str, object]]] = []

    def look(obj: dict[str, Any]) -> dict[str, Any]:
        contexts.append((fairness.tenant().namespace, dict(log.context.bound())))
        return obj

    server.put("a")
    cache = await server.start(by_object={ConfigMap: ByObject(transform=look)})
    with fairness.working_for(fairness.Tenant("team-a")), log.into_context(reconcileID="1"):
        assert names(await cache.list(ConfigMap)) == ["a"]
    assert contexts == [("", {})]


async def test_each_chosen_namespace_has_its_own_watch_and_cluster_kinds_one(server: Any) -> None:
    cache = await server.start(default_namespaces=("x", "y"))
    await cache.list(ConfigMap)
    await cache.list(Node)
    assert [request.path for request in server.transport.requests] == [
        "/api/v1/namespaces/x/configmaps",
        "/api/v1/namespaces/y/configmaps",
        "/api/v1/nodes",
    ]


async def test_a_kind_that_discovery_does_not_know_degrades_itself_alone(server: Any) -> None:
    server.faults.append(lambda _request: FakeResponse(404, b""))
    cache = await server.start()
    missing = await cache.get_informer(unstructured(GVK("example.org", "v1", "Thing")))
    await cache.wait_for_sync(1)
    assert missing.problem == 'no matches for kind "Thing" in version "example.org/v1"'
    assert await cache.list(ConfigMap) == []


async def test_a_removed_informer_stops_and_a_new_one_starts_afresh(server: Any) -> None:
    watched = await server.watched()
    server.put("a")
    await settle()
    watched.remove_informer(ConfigMap)
    await settle()
    assert names(await watched.list(ConfigMap)) == ["a"]
    assert len(server.transport.requests) == 2


async def test_a_denied_namespace_leaves_the_others_readable(server: Any) -> None:
    server.put("a")
    served, refusal = server.transport, {"code": 403, "reason": "Forbidden", "message": "not for you"}

    async def deny_one(request: Any) -> Any:
        denied = "/namespaces/denied/" in request.path
        return FakeResponse(403, {"kind": "Status", **refusal}) if denied else await served.send(request)

    server.transport = FakeTransport(deny_one)
    cache = await server.start(default_namespaces=("team-a", "denied"))
    await (await cache.get_informer(ConfigMap)).wait_for_sync(1, or_problem=True)
    assert (await cache.get(ConfigMap, ("team-a", "a"))).name == "a"
    assert names(await cache.list(ConfigMap, namespace="team-a")) == ["a"]
    assert names(await cache.list(ConfigMap, fields={"metadata.namespace": "team-a"})) == ["a"]
    assert list(cache.degraded()) == [ConfigMap.gvk]
    for reading in (cache.list(ConfigMap), cache.get(ConfigMap, ("denied", "a"))):
        with pytest.raises(CacheDegradedError, match="not for you"):
            await reading


async def test_a_read_outside_the_cached_namespaces_is_an_error(server: Any) -> None:
    server.put("a")
    cache = await server.start(default_namespaces=("team-a",))
    for reading in (
        cache.get(ConfigMap, ("team-b", "a")),
        cache.peek(ConfigMap, ("team-b", "a")),
        cache.list(ConfigMap, namespace="team-b"),
        cache.list(ConfigMap, fields={"metadata.namespace": "team-b"}),
    ):
        with pytest.raises(NamespaceNotCachedError, match="ConfigMap: namespace 'team-b' is not cached"):
            await reading


@pytest.mark.parametrize(("namespaced", "watches"), [(False, 1), (True, 2)])
async def test_discovery_says_whether_a_kind_without_a_model_has_namespaces(
    server: Any, namespaced: bool, watches: int
) -> None:
    things = {"resources": [{"name": "things", "kind": "Thing", "namespaced": namespaced}]}
    served, paths = server.transport, []

    async def discover(request: Any) -> Any:
        if request.path == "/apis/example.org/v1":
            return FakeResponse(200, things)
        paths.append(request.path)
        return await served.send(request)

    server.put("a", namespace="team-a" if namespaced else "")
    server.transport = FakeTransport(discover)
    cache = await server.start(default_namespaces=("team-a", "team-b"))
    thing = unstructured(GVK("example.org", "v1", "Thing"))
    assert names(await cache.list(thing)) == ["a"]
    await anyio.sleep(10)
    assert len(paths) == watches
    assert all(("/namespaces/" in path) is namespaced for path in paths)
    assert (await cache.resource_for(thing)).namespaced is namespaced
    if not namespaced:
        assert (await cache.get(thing, ("", "a"))).name == "a"


async def test_a_truncated_list_says_that_it_cannot_be_continued(server: Any) -> None:
    server.put("a", namespace="x")
    server.put("b", namespace="x")
    cache = await server.start()
    for options in ({}, {"labels": "none!=1"}, {"fields": {"metadata.namespace": "x"}}):
        page = await cache.list(ConfigMap, limit=1, **options)
        assert (len(page), page.continue_token) == (1, "continue-not-supported")
        assert (await cache.list(ConfigMap, limit=2, **options)).continue_token == ""
    with pytest.raises(ValueError, match="cannot be continued"):
        await cache.list(ConfigMap, limit=1, continue_token=page.continue_token)
