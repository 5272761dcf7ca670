# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An object that would take too long to decode is never decoded; its name, owners and deletion are still known."""

from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from controller_runtime import handler, source
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache import BadObjectError, ByObject, UndecodableObjectError, reflector
from controller_runtime.cache.codec import entry_of
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.rawjson import Limits
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import PriorityQueue
from ctrl_testkit.small import settle

WIDE: dict[str, Any] = {"data": {f"k{number}": "" for number in range(100_000)}}
REASON = r"^ConfigMap team-a/wide: more than 24000 items$"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u", "controller": True}


async def test_it_is_left_out_of_lists_and_named_by_reads(server: Any, decoded: list[int]) -> None:
    server.put("narrow")
    server.put("wide", **WIDE)
    made = await server.start()
    await made.index_field(ConfigMap, "k1", lambda obj: [(obj.data or {}).get("k1", "none")])
    with capture_logs() as lines:
        for _ in range(3):
            assert [obj.name for obj in await made.list(ConfigMap)] == ["narrow"]
            for kind in (ConfigMap, unstructured(ConfigMap.gvk)):
                with pytest.raises(UndecodableObjectError, match=REASON) as raised:
                    await made.get(kind, ("team-a", "wide"))
                assert raised.value.uid == "uid-wide"
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["Object skipped"]
    assert (await made.get_informer(ConfigMap)).skipped > 3
    assert max(decoded) < 1000


async def test_handlers_that_need_its_name_or_owners_hear_of_it(server: Any, decoded: list[int]) -> None:
    server.put("wide", metadata={"ownerReferences": [OWNER]}, **WIDE)
    made = await server.start()
    queue: PriorityQueue[Request] = PriorityQueue()
    to_owner = handler.enqueue_request_for_owner(ConfigMap, only_controller=True)
    async with anyio.create_task_group() as tasks:
        for handle in (handler.EnqueueRequestForObject(), to_owner):
            tasks.start_soon(source.Kind(made, ConfigMap, handle).start, queue)
        await anyio.sleep(1)
        for change in ("found", "changed", "removed"):
            if change == "changed":
                server.put("wide", metadata={"ownerReferences": [OWNER]}, **WIDE)
            elif change == "removed":
                server.remove("wide")
            await settle()
            found = set()
            while len(queue):
                request = await queue.get()
                queue.done(request)
                found.add(request.name)
            assert found == {"wide", "owner"}, change
        tasks.cancel_scope.cancel()
    assert await made.list(ConfigMap) == []
    assert decoded == []


async def test_it_replaces_the_state_before_and_is_replaced_by_the_state_after(server: Any) -> None:
    watched = await server.watched()
    server.put("wide")
    await settle()
    server.put("wide", **WIDE)
    await settle()
    with pytest.raises(UndecodableObjectError, match=REASON):
        await watched.get(ConfigMap, ("team-a", "wide"))
    server.put("wide", data={"k": "v"})
    await settle()
    assert (await watched.get(ConfigMap, ("team-a", "wide"))).data == {"k": "v"}
    server.heard.take()
    server.put("wide", **WIDE)
    server.remove("wide")
    await settle()
    assert server.heard.take() == ["delete wide"]


async def test_limits_are_options_and_transforms_do_not_see_it(server: Any) -> None:
    server.put("wide", **WIDE)

    def fail(obj: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(obj)

    made = await server.start(by_object={ConfigMap: ByObject(transform=fail)})
    assert await made.list(ConfigMap) == []
    wider = await server.start(limits=Limits(items=200_000))
    assert len((await wider.get(ConfigMap, ("team-a", "wide"))).data or {}) == 100_000


def test_wide_metadata_is_reduced_to_what_identifies_the_object() -> None:
    labels = {f"key-{number}": "" for number in range(100_000)}
    identity = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}
    finalizers = [f"example.org/{number}" for number in range(100_000)]
    wide = {"metadata": {**identity, "labels": labels, "finalizers": finalizers}}
    entry = entry_of(msgspec.json.encode(wide))
    assert (entry.key, entry.uid, entry.resource_version, entry.labels) == (("n", "a"), "u", "7", {})
    assert msgspec.json.decode(entry.data) == {"metadata": identity}


def test_what_managed_fields_hold_does_not_count() -> None:
    managed = [{"manager": "m", "fieldsV1": {f"f:{number}": {} for number in range(100_000)}}]
    entry = entry_of(
        msgspec.json.encode({"metadata": {"name": "a", "managedFields": managed}, "data": {"k": "v"}})
    )
    assert (entry.too_large_reason, msgspec.json.decode(entry.data)) == (
        "",
        {"metadata": {"name": "a"}, "data": {"k": "v"}},
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"spec":{}}', "metadata is missing"),
        (b'{"metadata":{"name":[]}}', "Expected `str`, got `array`"),
    ],
)
def test_an_object_that_cannot_be_stored_names_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(BadObjectError, match=f"^{reason}"):
        entry_of(text)


@pytest.mark.parametrize(
    ("depth", "reason"),
    [
        (300, ""),
        (900, ""),
        (5000, "more than 100 objects and lists inside each other"),
        (100_000, "more than 12000 objects and lists"),
    ],
)
async def test_deep_objects_are_survived(server: Any, depth: int, reason: str) -> None:
    watched = await server.watched()
    metadata = b'{"name":"deep","namespace":"team-a","uid":"u","resourceVersion":"11"}'
    deep = b'{"metadata":' + metadata + b',"x":' + b"[" * depth + b"]" * depth + b"}"
    server.say(b'{"type":"ADDED","object":' + deep + b"}")
    server.put("a")
    await settle()
    assert [obj.name for obj in await watched.list(unstructured(ConfigMap.gvk))] == ["a"]
    assert ("team-a", "deep") in list((await watched.get_informer(ConfigMap)).keys())
    if depth > 500:
        with pytest.raises(UndecodableObjectError, match=reason or None):
            await watched.get(unstructured(ConfigMap.gvk), ("team-a", "deep"))
    server.say(b'{"type":"DELETED","object":' + deep + b"}")
    await settle()
    with pytest.raises(NotFoundError):
        await watched.get(ConfigMap, ("team-a", "deep"))


@pytest.mark.parametrize("depth", [300, 900, 5000])
async def test_a_deep_object_keeps_no_other_from_being_listed(server: Any, depth: int) -> None:
    server.streams_lists = False
    nested = msgspec.Raw(b"[" * depth + b"]" * depth)
    managed = msgspec.Raw(b'[{"fieldsV1":' + b'{"f:x":' * depth + b"1" + b"}" * depth + b"}]")
    server.put("a")
    server.put("b", metadata={"managedFields": managed})
    server.put("deep", data=nested)
    made = await server.start()
    assert [obj.name for obj in await made.list(ConfigMap)] == ["a", "b"]
    known = (await made.get_informer(ConfigMap)).keys("team-a")
    assert sorted(key.name for key in known) == ["a", "b", "deep"]


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "paging"])
async def test_other_tasks_get_a_turn_after_each_large_object(
    server: Any, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    between, taken = [0], reflector.Reflector.receive

    def counting(self: Any, event: str, raw: Any) -> str:
        between[-1] += 1
        return taken(self, event, raw)

    async def tick() -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            between.append(0)

    monkeypatch.setattr(reflector.Reflector, "receive", counting)
    server.streams_lists = streams
    for number in range(10):
        server.put(f"large-{number}", data={"k": "x" * 300_000})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        made = await server.start()
        await made.get_informer(ConfigMap)
        await made.wait_for_sync(1)
        tasks.cancel_scope.cancel()
    assert max(between) == 1
