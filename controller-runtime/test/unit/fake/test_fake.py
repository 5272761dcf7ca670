# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client behaves like an API server; the integration tests compare it with a real one."""

import json
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.rbac.v1 import Role
from controller_runtime.client import APPLY, MERGE, Watcher, merge_from, raw_patch
from controller_runtime.fake import FakeClient, FakeRecorder
from controller_runtime.machinery import GVK, errors, unstructured
from ctrl_testkit.kinds import Fleet

NOW = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)
WIDGET = unstructured(GVK("example.org", "v1", "Widget"))


def config_map(name: str = "c", data: dict[str, str] | None = None, **metadata: Any) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": name, "namespace": "n", **metadata}, "data": data or {}})


def pod(name: str = "p", *, metadata: dict[str, Any] | None = None, **spec: Any) -> Pod:
    return Pod.from_dict({"metadata": {"name": name, "namespace": "n", **(metadata or {})}, "spec": spec})


@pytest.fixture
def client() -> FakeClient:
    return FakeClient(now=lambda: NOW)


class TestCreate:
    async def test_gives_what_a_server_gives(self, client: FakeClient) -> None:
        obj = pod(nodeName="x")
        stored = await client.create(obj)
        metadata = stored.metadata
        assert (metadata.uid, metadata.generation) == ("00000000-0000-4000-8000-000000000001", 1)
        assert (metadata.creation_timestamp, metadata.resource_version) == ("2025-06-01T12:00:00Z", "1000")
        assert obj.metadata.uid is None, "the argument is the caller's"
        assert await client.get(Pod, ("n", "p")) == stored

    async def test_names_by_generate_name(self, client: FakeClient) -> None:
        obj = config_map(generateName="c-")
        obj.metadata.name = None
        names = [(await client.create(obj)).name for _ in range(2)]
        assert names == ["c-00001", "c-00002"]


class TestUpdate:
    async def test_kinds_without_a_status_subresource_write_it_like_all_else(self) -> None:
        client = FakeClient(with_status=[Fleet])
        stored = await client.create(
            WIDGET.from_dict({"metadata": {"name": "w", "namespace": "n"}, "status": {"phase": "Running"}})
        )
        assert stored["status"] == {"phase": "Running"}
        with pytest.raises(errors.NotFoundError, match=r"n/w exists, but its kind has no subresource status"):
            await client.status.update(stored)
        with pytest.raises(errors.NotFoundError, match="could not find the requested resource"):
            await client.status.update(await client.create(config_map()))


class TestPatch:
    async def test_a_merge_patch_sends_what_changed(self, client: FakeClient) -> None:
        old = await client.create(config_map(data={"a": "1", "b": "2"}, labels={"x": "y"}))
        new = old.deep_copy()
        new.metadata.labels = None
        new.data = {"a": "1", "c": "3"}
        stored = await client.patch(new, merge_from(old))
        assert client.calls[-1].body == {"data": {"b": None, "c": "3"}, "metadata": {"labels": None}}
        assert (stored.data, stored.labels) == ({"a": "1", "c": "3"}, {})

    async def test_an_apply_patch_is_an_apply(self, client: FakeClient) -> None:
        await client.patch(config_map(), raw_patch(APPLY, config_map().to_json()), field_owner="me")
        assert client.calls[-1].verb == "apply"
        assert await client.get(ConfigMap, ("n", "c"))


class TestRead:
    async def test_a_field_is_looked_up_in_its_index(self) -> None:
        client = FakeClient(
            config_map("a", {"k": "1"}),
            config_map("b", {"k": "2"}),
            indexes={(ConfigMap, ".data.k"): lambda each: [each.data["k"]]},
        )
        found = await client.list(ConfigMap, fields={".data.k": "2"})
        assert [each.name for each in found] == ["b"]
        with pytest.raises(errors.BadRequestError, match=r'^"data" is not a known field selector'):
            await client.list(ConfigMap, fields={"data": "2"})
        with pytest.raises(ValueError, match="exists"):
            await client.index_field(ConfigMap, ".data.k", lambda _: [])

    async def test_a_list_by_an_index_says_that_it_cannot_be_continued(self, client: FakeClient) -> None:
        await client.index_field(ConfigMap, "kind", lambda _: ["x"])
        await client.create(config_map("a"))
        await client.create(config_map("b"))
        assert (await client.list(ConfigMap, fields={"kind": "x"}, limit=2)).continue_token == ""
        page = await client.list(ConfigMap, fields={"kind": "x"}, limit=1)
        assert ([each.name for each in page], bool(page.continue_token)) == (["a"], True)
        with pytest.raises(ValueError, match="cannot be continued"):
            await client.list(ConfigMap, fields={"kind": "x"}, continue_token=page.continue_token)

    async def test_what_is_read_belongs_to_the_reader(self, client: FakeClient) -> None:
        await client.create(
            WIDGET.from_dict({"metadata": {"name": "w", "namespace": "n"}, "spec": {"a": [1]}})
        )
        first = await client.get(WIDGET, ("n", "w"))
        first["spec"]["a"].append(2)
        assert (await client.get(WIDGET, ("n", "w"))).nested("spec", "a") == [1]


async def test_an_object_is_added_once() -> None:
    client = FakeClient(pod())
    with pytest.raises(errors.AlreadyExistsError):
        client.add(pod())


@pytest.mark.parametrize(
    ("method", "metadata", "problem"),
    [
        ("PUT", {"namespace": "n"}, "configmaps: an object's name may not be empty"),
        ("POST", {"name": "c"}, "configmaps c: the namespace may not be empty"),
    ],
)
async def test_a_raw_write_of_an_object_without_its_key_is_a_400(
    method: str, metadata: dict[str, str], problem: str
) -> None:
    client = FakeClient(config_map())
    path = "/api/v1/namespaces/n/configmaps/c" if method == "PUT" else "/api/v1/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    response = await client.transport.send(rest.Request(method, path, body=json.dumps(body).encode()))
    assert response.status == 400
    assert json.loads(await response.read())["message"] == problem


async def test_only_roles_may_have_names_with_colons(client: FakeClient) -> None:
    await client.create(Role.from_dict({"metadata": {"name": "system:a", "namespace": "n"}}))
    with pytest.raises(errors.InvalidError, match="a lowercase RFC 1123 subdomain must"):
        await client.create(config_map("system:a"))


async def test_objects_given_are_stored_as_they_are() -> None:
    given = Pod.from_dict({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Running"}})
    client = FakeClient(given)
    stored = await client.get(Pod, ("n", "p"))
    assert stored.metadata.to_dict() == {"name": "p", "namespace": "n", "resourceVersion": "999"}
    assert stored.to_dict()["status"] == {"phase": "Running"}
    assert client.writes == []


async def test_a_watch_tells_every_change_until_it_is_closed(client: FakeClient) -> None:
    watch = client.watch(ConfigMap, namespace="n", resource_version=client.storage.version)
    obj = await client.create(config_map(finalizers=["a/x"]))
    await client.update(obj)
    await client.delete(obj)
    await client.patch(obj, raw_patch(MERGE, b'{"metadata":{"finalizers":null}}'))
    elsewhere = config_map()
    elsewhere.metadata.namespace = "m"
    await client.create(elsewhere)
    seen = [
        (each.type, each.object.metadata.resource_version) for each in [await anext(watch) for _ in range(3)]
    ]
    assert seen == [("ADDED", "1000"), ("MODIFIED", "1001"), ("DELETED", "1002")]
    await watch.aclose()
    await client.create(config_map("late"))
    assert [each async for each in watch] == []


async def test_a_cancelled_wait_loses_no_event(client: FakeClient) -> None:
    watch = client.watch(ConfigMap)
    with anyio.move_on_after(1):
        await anext(watch)
    await client.create(config_map())
    assert (await anext(watch)).object.name == "c"


async def test_a_watch_from_a_version_whose_changes_are_forgotten_is_expired(client: FakeClient) -> None:
    listed = await client.list(ConfigMap)
    for number in range(2001):
        await client.create(config_map(f"c{number}"))
    with pytest.raises(errors.ExpiredError, match=r"too old resource version: 999 \(2000\)"):
        await anext(client.watch(ConfigMap, resource_version=listed.resource_version))
    async with client.watch(ConfigMap, resource_version="2000") as watch:
        assert [(await anext(watch)).object.name for _ in range(1000)] == [f"c{n}" for n in range(1001, 2001)]


async def test_a_watch_that_is_refused_leaves_writes_alone(client: FakeClient) -> None:
    for options in ({"resource_version": "x"}, {"labels": "a==("}, {"fields": {"data.a": "1"}}):
        watch = client.watch(ConfigMap, **options)
        await client.create(config_map(next(iter(options)).replace("_", "-")))
        with pytest.raises(errors.BadRequestError):
            await anext(watch)


async def test_a_watcher_is_either_client(client: FakeClient) -> None:
    async def first(watcher: Watcher) -> str:
        async with watcher.watch(ConfigMap, namespace="n") as events:
            async for event in events:
                return event.object.name
        raise AssertionError("a watch does not end")

    await client.create(config_map())
    assert await first(client) == "c"


async def test_calls_are_remembered_also_when_refused(client: FakeClient) -> None:
    with pytest.raises(errors.NotFoundError):
        await client.get(Pod, ("n", "p"))
    await client.apply(pod(), field_owner="me", force=True)
    read, write = client.calls
    assert (read.verb, read.kind, read.key) == ("get", Pod.gvk, ("n", "p"))
    assert (write.verb, write.body, write.options) == (
        "apply",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {}},
        {"field_owner": "me", "force": True},
    )
    assert client.writes == [write]


def test_events_are_kept_with_the_state_of_their_object() -> None:
    recorder = FakeRecorder()
    obj = ConfigMap(metadata=ctrl.ObjectMeta(namespace="team", name="one"))
    recorder.event(obj, ctrl.recorder.NORMAL, "Created", "it exists")
    obj.metadata.name = "two"
    recorder.event(obj, ctrl.recorder.WARNING, "Broken", "it does not work")
    assert recorder.reasons == ["Created", "Broken"]
    first, second = recorder.events
    assert (first.object.name, first.type, first.message) == ("one", "Normal", "it exists")
    assert (second.object.name, second.type, second.message) == ("two", "Warning", "it does not work")


def test_a_type_that_the_server_would_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="event type 'Error' must be Normal or Warning"):
        FakeRecorder().event(ConfigMap(), "Error", "Broken", "")
