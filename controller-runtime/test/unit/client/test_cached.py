# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CachedClient: which reads use the cache, and which writes are reported to it."""

import gc
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Unpack

import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.client import (
    MERGE,
    CachedClient,
    DeleteOptions,
    LiveClient,
    apply_lazily,
    merge_from,
    patch_lazily,
    raw_patch,
)
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, LazyObject, Object, errors, metadata_only, unstructured
from controller_runtime.rest import AnswerError, FakeResponse, FakeTransport


class MemoryCache(FakeClient):
    """A cache that contains only reported objects."""

    def __init__(self, *objects: Object) -> None:
        super().__init__(*objects)
        self.recorded: list[tuple[str, str, str]] = []
        self.texts: list[bytes | None] = []

    def writing(self, obj: Object) -> AbstractContextManager[None]:
        del obj
        return nullcontext()

    def remember_write(self, obj: Object | LazyObject[Object]) -> None:
        stored = LazyObject.of(obj)
        self.recorded.append(("write", stored.key.name, stored.resource_version))
        self.texts.append(stored.text)

    def uid_of(self, obj: Object) -> str:
        return "uid-before" if obj.name == "live" else ""

    def remember_delete(self, obj: Object, *, uid: str = "") -> None:
        self.recorded.append(("delete", obj.name, uid))


def config_map(name: str = "c", **metadata: Any) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": name, "namespace": "n", **metadata}})


def pod(name: str, **metadata: Any) -> Pod:
    return Pod.from_dict({"metadata": {"name": name, "namespace": "n", **metadata}})


@pytest.fixture
def live() -> FakeClient:
    return FakeClient(config_map("live"))


@pytest.fixture
def cache() -> MemoryCache:
    return MemoryCache(config_map("cached"))


async def test_reads_come_from_the_cache(live: FakeClient, cache: MemoryCache) -> None:
    client = CachedClient(live, cache)
    assert [each.name for each in await client.list(ConfigMap, namespace="n")] == ["cached"]
    assert (await client.get(ConfigMap, ("n", "cached"))).name == "cached"
    with pytest.raises(errors.NotFoundError):
        await client.get(ConfigMap, ("n", "live"))
    assert live.calls == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(ConfigMap, {"uncached": [ConfigMap]}, id="chosen"),
        pytest.param(metadata_only(ConfigMap), {"uncached": [ConfigMap]}, id="chosen, metadata only"),
        pytest.param(unstructured(ConfigMap.gvk), {"live_unstructured": True}, id="unstructured"),
    ],
)
async def test_some_reads_go_to_the_server(
    live: FakeClient, cache: MemoryCache, kind: type[Object], options: dict[str, Any]
) -> None:
    client = CachedClient(live, cache, **options)
    assert [each.name for each in await client.list(kind)] == ["live"]
    assert (await client.get(kind, ("n", "live"))).name == "live"


async def test_unstructured_kinds_are_read_from_the_cache(live: FakeClient, cache: MemoryCache) -> None:
    client = CachedClient(live, cache)
    assert [each.name for each in await client.list(unstructured(GVK("", "v1", "ConfigMap")))] == ["cached"]


@pytest.mark.parametrize("precondition", [False, True], ids=["by name", "with a precondition"])
async def test_what_a_delete_removed_is_known_by_the_uid_from_before(
    cache: MemoryCache, precondition: bool
) -> None:
    live = FakeClient(config_map("live", uid="uid-stored"))
    preconditions = {"uid": "uid-stored"} if precondition else None
    await CachedClient(live, cache).delete(config_map("live"), preconditions=preconditions)
    assert cache.recorded == [("delete", "live", "uid-stored" if precondition else "uid-before")]


async def test_the_cache_is_told_of_every_write(live: FakeClient, cache: MemoryCache) -> None:
    client = CachedClient(live, cache)
    obj = await client.create(config_map())
    changed = obj.deep_copy()
    changed.data = {"a": "1"}
    changed = await client.patch(changed, merge_from(obj))
    changed.data = {"a": "2"}
    changed = await client.update(changed)
    await client.apply(pod("other"), field_owner="me")
    await client.status.apply(pod("other"), field_owner="me")
    await client.delete(changed)
    assert cache.recorded == [
        ("write", "c", "1000"),
        ("write", "c", "1001"),
        ("write", "c", "1002"),
        ("write", "other", "1003"),
        ("write", "other", "1003"),
        ("delete", "c", changed.metadata.uid),
    ]


async def test_what_is_written_lazily_is_told_of_too(live: FakeClient, cache: MemoryCache) -> None:
    client = CachedClient(live, cache)
    stored = await apply_lazily(client, pod("other"), field_owner="me")
    assert stored.object.name == "other"
    changed = stored.object.deep_copy()
    changed.status.phase = "Running"
    assert (await patch_lazily(client.status, changed, merge_from(stored.object))).metadata.name == "other"
    assert [each[:2] for each in cache.recorded] == [("write", "other")] * 2


async def test_a_marked_object_is_a_write(live: FakeClient, cache: MemoryCache) -> None:
    client = CachedClient(live, cache)
    await client.delete(await client.create(config_map(finalizers=["a/x"])))
    assert cache.recorded[-1] == ("write", "c", "1001")


async def test_a_dry_run_and_a_refusal_are_no_news(live: FakeClient, cache: MemoryCache) -> None:
    client = CachedClient(live, cache)
    await client.create(config_map(), dry_run=True)
    await client.delete(config_map("live"), dry_run=True)
    with pytest.raises(errors.NotFoundError):
        await client.update(Secret.from_dict({"metadata": {"name": "s", "namespace": "n"}}))
    assert cache.recorded == []


async def test_a_subresource_is_read_and_posted_to_on_the_server(
    live: FakeClient, cache: MemoryCache
) -> None:
    live.add(Pod.from_dict({"metadata": {"name": "p", "namespace": "n"}}))
    client = CachedClient(live, cache)
    pod = await client.status.get(Pod.from_dict({"metadata": {"name": "p", "namespace": "n"}}), Pod)
    eviction = unstructured(GVK("policy", "v1", "Eviction")).from_dict(
        {"metadata": {"name": "p", "namespace": "n"}}
    )
    await client.subresource("eviction").create(pod, eviction)
    with pytest.raises(errors.NotFoundError):
        await live.get(Pod, ("n", "p"))
    with pytest.raises(errors.NotFoundError, match="could not find the requested resource"):
        await client.subresource("token").create(pod, eviction)
    assert (cache.calls, cache.recorded) == ([], [])


@pytest.mark.parametrize("verb", ["update", "patch", "update of the status", "patch of the status", "delete"])
async def test_what_a_write_did_not_find_is_not_read_any_more(cache: MemoryCache, verb: str) -> None:
    client = CachedClient(FakeClient(), cache)
    gone = pod("gone", uid="u")
    nothing = raw_patch(MERGE, b"{}")
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "update": lambda: client.update(gone),
        "patch": lambda: client.patch(gone, nothing),
        "update of the status": lambda: client.status.update(gone),
        "patch of the status": lambda: patch_lazily(client.status, gone, nothing),
        "delete": lambda: client.delete(gone),
    }
    with pytest.raises(errors.NotFoundError):
        await writes[verb]()
    assert cache.recorded == [("delete", "gone", "u")]


@pytest.mark.parametrize(
    "details",
    [
        pytest.param({}, id="the kind is not served"),
        pytest.param({"name": "n", "kind": "namespaces"}, id="the namespace"),
        pytest.param({"name": "gone", "group": "example.com", "kind": "others"}, id="another kind's"),
    ],
)
async def test_what_is_missing_beside_the_object_does_not_end_it(
    cache: MemoryCache, details: dict[str, Any]
) -> None:
    class Refusing(FakeClient):
        async def update(self, obj: Any, **options: Any) -> Any:
            raise errors.NotFoundError("not found", code=404, details=details)

        async def remove(self, obj: Any, **options: Unpack[DeleteOptions]) -> Any:
            raise errors.NotFoundError("not found", code=404, details=details)

    client, gone = CachedClient(Refusing(), cache), pod("gone", uid="u")
    for write in (client.update, client.delete):
        with pytest.raises(errors.NotFoundError):
            await write(gone)
    assert cache.recorded == []


async def test_a_missing_subresource_does_not_end_its_object(cache: MemoryCache) -> None:
    widget = unstructured(GVK("example.com", "v1", "Widget"))
    live = FakeClient(with_status=())
    stored = await live.create(widget.from_dict({"metadata": {"name": "w", "namespace": "n"}}))
    client = CachedClient(live, cache)
    for _ in range(2):
        with pytest.raises(errors.NotFoundError, match="n/w exists, but its kind has no subresource status"):
            await client.status.update(stored)
    assert cache.recorded == []
    await live.delete(stored)
    with pytest.raises(errors.NotFoundError):
        await client.status.update(stored)
    assert cache.recorded == [("delete", "w", stored.metadata.uid)]


async def test_a_dry_run_that_does_not_find_its_object_is_no_news(cache: MemoryCache) -> None:
    client = CachedClient(FakeClient(), cache)
    for write in (client.update, client.delete):
        with pytest.raises(errors.NotFoundError):
            await write(pod("gone", uid="u"), dry_run=True)
    assert cache.recorded == []


async def test_only_a_response_that_is_the_object_is_recorded_and_by_its_text(cache: MemoryCache) -> None:
    body = config_map("c", resourceVersion="7").to_json()
    client = CachedClient(LiveClient(FakeTransport(lambda _: FakeResponse(body=body))), cache)
    for name in ("c", "other"):
        obj = config_map(name)
        for write in (
            client.patch(obj, merge_from(obj)),
            client.apply(obj, field_owner="me"),
            client.status.patch(obj, merge_from(obj)),
        ):
            with nullcontext() if name == "c" else pytest.raises(AnswerError, match="'c', not 'other'"):
                assert (await write).metadata.resource_version == "7"
    assert cache.recorded == [("write", "c", "7")] * 3
    assert cache.texts == [body] * 3


async def test_a_write_that_the_cache_refuses_is_not_begun(live: FakeClient) -> None:
    class Refusing(MemoryCache):
        def writing(self, obj: Object) -> AbstractContextManager[None]:
            raise RuntimeError("the cache has stopped")

    client, obj = CachedClient(live, Refusing()), config_map()
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: client.create(obj),
        lambda: client.update(obj),
        lambda: client.patch(obj, merge_from(obj)),
        lambda: patch_lazily(client, obj, merge_from(obj)),
        lambda: client.apply(obj, field_owner="me"),
        lambda: apply_lazily(client, obj, field_owner="me"),
        lambda: client.status.update(obj),
    ]
    for write in writes:
        with pytest.raises(RuntimeError, match="the cache has stopped"):
            await write()
    gc.collect()  # a coroutine that was never awaited would warn now, and warnings are errors
    assert live.calls == []


async def test_the_token_of_a_list_is_passed_to_the_reader_that_made_it(
    live: FakeClient, cache: MemoryCache
) -> None:
    seen: list[str] = []

    class Reads(MemoryCache):
        async def list(self, kind: type[Any], **options: Any) -> Any:
            seen.append(options["continue_token"])
            raise ValueError("cannot be continued")

    client = CachedClient(live, Reads())
    with pytest.raises(ValueError, match="cannot be continued"):
        await client.list(ConfigMap, limit=1, continue_token="continue-not-supported")
    assert seen == ["continue-not-supported"]
