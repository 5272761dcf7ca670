# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client behaves like an API server; the integration tests compare it with a real one."""

import json
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import APPLY, JSON, MERGE, STRATEGIC, Watcher, merge_from, raw_patch
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, errors, metadata_only, unstructured
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

    async def test_refuses_a_name_that_is_taken(self, client: FakeClient) -> None:
        await client.create(config_map())
        with pytest.raises(errors.AlreadyExistsError, match=r'^configmaps "c" already exists$'):
            await client.create(config_map())

    async def test_refuses_a_resource_version_and_a_missing_name(self, client: FakeClient) -> None:
        with pytest.raises(errors.ServerError, match="resourceVersion should not be set"):
            await client.create(config_map(resourceVersion="1"))
        with pytest.raises(errors.InvalidError, match=r"metadata\.name: Required value"):
            await client.create(config_map(""))

    async def test_leaves_the_status_to_its_subresource(self, client: FakeClient) -> None:
        stored = await client.create(Pod.from_dict({**pod().to_dict(), "status": {"phase": "Running"}}))
        assert "status" not in stored.to_dict()

    async def test_a_dry_run_stores_nothing(self, client: FakeClient) -> None:
        assert (await client.create(config_map(), dry_run=True)).metadata.uid
        assert await client.list(ConfigMap) == []


class TestUpdate:
    async def test_a_stale_object_is_refused(self, client: FakeClient) -> None:
        first = await client.create(config_map())
        await client.update(config_map(data={"a": "1"}))
        with pytest.raises(errors.ConflictError, match="the object has been modified"):
            await client.update(first)

    async def test_without_a_change_the_version_stays(self, client: FakeClient) -> None:
        first = await client.create(config_map(data={"a": "1"}))
        assert (await client.update(first)).metadata.resource_version == first.metadata.resource_version

    async def test_the_generation_counts_changes_outside_metadata_and_status(
        self, client: FakeClient
    ) -> None:
        obj = await client.create(pod(nodeName="x"))
        obj.metadata.labels = {"a": "b"}
        obj = await client.update(obj)
        assert obj.metadata.generation == 1
        changed = Pod.from_dict({**obj.to_dict(), "spec": {"nodeName": "y"}, "status": {"phase": "Failed"}})
        changed = await client.update(changed)
        assert changed.metadata.generation == 2
        assert "status" not in changed.to_dict()

    async def test_the_status_writer_changes_the_status_alone(self, client: FakeClient) -> None:
        obj = await client.create(pod(nodeName="x"))
        sent = Pod.from_dict({**obj.to_dict(), "spec": {"nodeName": "y"}, "status": {"phase": "Running"}})
        stored = await client.status.update(sent)
        assert stored.to_dict()["spec"] == {"nodeName": "x"}
        assert stored.to_dict()["status"] == {"phase": "Running"}
        assert stored.metadata.generation == 1

    async def test_what_is_the_servers_cannot_be_written(self, client: FakeClient) -> None:
        obj = await client.create(config_map())
        stored = await client.update(config_map(creationTimestamp="1999-01-01T00:00:00Z"))
        assert stored.metadata.creation_timestamp == obj.metadata.creation_timestamp
        with pytest.raises(errors.InvalidError, match=r"metadata\.deletionTimestamp: .*field is immutable"):
            await client.update(config_map(deletionTimestamp="1999-01-01T00:00:00Z"))

    async def test_another_object_of_the_same_name_is_refused(self, client: FakeClient) -> None:
        await client.create(config_map())
        with pytest.raises(errors.ConflictError, match="UID in precondition: other"):
            await client.update(config_map(uid="other"))

    async def test_an_absent_object_is_not_found(self, client: FakeClient) -> None:
        with pytest.raises(errors.NotFoundError, match=r'^fleets.fleets.example.org "x" not found$'):
            await client.update(Fleet.from_dict({"metadata": {"name": "x", "namespace": "n"}}))

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

    async def test_an_optimistic_lock_refuses_a_patch_of_a_changed_object(self, client: FakeClient) -> None:
        old = await client.create(config_map())
        await client.update(config_map(data={"a": "1"}))
        with pytest.raises(errors.ConflictError):
            await client.patch(old, merge_from(old, optimistic_lock=True))
        await client.patch(old, merge_from(old))

    async def test_a_status_patch_goes_to_the_status(self, client: FakeClient) -> None:
        old = await client.create(pod())
        patch = raw_patch(MERGE, b'{"spec":{"nodeName":"y"},"status":{"phase":"Running"}}')
        stored = await client.status.patch(old, patch)
        assert stored.to_dict()["status"] == {"phase": "Running"}
        assert stored.to_dict().get("spec", {}) == {}
        stored = await client.patch(old, patch)
        assert stored.to_dict()["spec"] == {"nodeName": "y"}

    async def test_a_json_patch_is_done_step_by_step(self, client: FakeClient) -> None:
        await client.create(config_map(data={"a": "1"}))
        body = b'[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"2"}]'
        assert (await client.patch(config_map(), raw_patch(JSON, body))).data == {"a": "1", "b": "2"}
        with pytest.raises(errors.InvalidError):
            await client.patch(config_map(), raw_patch(JSON, b'[{"op":"remove","path":"/data/z"}]'))

    async def test_a_strategic_patch_merges_lists_by_key_and_custom_resources_know_none(
        self, client: FakeClient
    ) -> None:
        await client.create(pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]))
        patch = raw_patch(STRATEGIC, b'{"spec":{"containers":[{"name":"b","image":"2"}]}}')
        stored = await client.patch(pod(), patch)
        assert stored.to_dict()["spec"]["containers"] == [
            {"name": "a", "image": "1"},
            {"name": "b", "image": "2"},
        ]
        widget = WIDGET.from_dict({"metadata": {"name": "w", "namespace": "n"}})
        await client.create(widget)
        with pytest.raises(errors.StatusError, match="unknown format") as caught:
            await client.patch(widget, patch)
        assert caught.value.code == 415

    async def test_a_name_cannot_be_patched(self, client: FakeClient) -> None:
        await client.create(config_map())
        with pytest.raises(errors.BadRequestError, match="does not match the name on the URL"):
            await client.patch(config_map(), raw_patch(MERGE, b'{"metadata":{"name":"other"}}'))

    @pytest.mark.parametrize(
        "metadata", [b'"x"', b'{"labels":{"a":1}}', b'{"finalizers":"x"}', b'{"resourceVersion":5}']
    )
    async def test_metadata_of_other_types_are_refused(self, client: FakeClient, metadata: bytes) -> None:
        await client.create(config_map())
        for patch in (
            raw_patch(MERGE, b'{"metadata":%b}' % metadata),
            raw_patch(STRATEGIC, b'{"metadata":%b}' % metadata),
            raw_patch(JSON, b'[{"op":"replace","path":"/metadata","value":%b}]' % metadata),
        ):
            with pytest.raises(errors.InvalidError):
                await client.patch(config_map(), patch)

    async def test_an_unknown_propagation_is_refused(self, client: FakeClient) -> None:
        obj = await client.create(config_map())
        with pytest.raises(
            errors.InvalidError, match=r'supported values: "Foreground", "Background", "Orphan"'
        ):
            await client.delete(obj, propagation="Sideways")  # type: ignore[arg-type]  # refused

    async def test_an_apply_patch_is_an_apply(self, client: FakeClient) -> None:
        await client.patch(config_map(), raw_patch(APPLY, config_map().to_json()), field_owner="me")
        assert client.calls[-1].verb == "apply"
        assert await client.get(ConfigMap, ("n", "c"))


class TestApply:
    async def test_creates_what_is_missing(self, client: FakeClient) -> None:
        stored = await client.apply(config_map(data={"a": "1"}), field_owner="me")
        assert (stored.metadata.uid is not None, stored.data) == (True, {"a": "1"})

    async def test_removes_what_its_owner_no_longer_applies_and_nothing_else(
        self, client: FakeClient
    ) -> None:
        await client.apply(config_map(data={"a": "1", "b": "1"}, labels={"x": "y"}), field_owner="me")
        await client.patch(config_map(), raw_patch(MERGE, b'{"data":{"theirs":"1"}}'))
        stored = await client.apply(config_map(data={"b": "1"}), field_owner="me")
        assert (stored.data, stored.metadata.labels) == ({"b": "1", "theirs": "1"}, None)

    async def test_what_two_apply_stays_until_both_let_go(self, client: FakeClient) -> None:
        for owner in ("one", "two"):
            await client.apply(config_map(data={"a": "1"}), field_owner=owner)
        assert (await client.apply(config_map(), field_owner="one")).data == {"a": "1"}
        assert not (await client.apply(config_map(), field_owner="two")).data

    async def test_the_same_again_changes_nothing(self, client: FakeClient) -> None:
        first = await client.apply(config_map(data={"a": "1"}), field_owner="me")
        assert await client.apply(config_map(data={"a": "1"}), field_owner="me") == first

    async def test_another_owners_value_is_a_conflict_unless_forced(self, client: FakeClient) -> None:
        await client.apply(config_map(data={"a": "1"}), field_owner="one")
        mine = config_map(data={"a": "2"})
        with pytest.raises(
            errors.ConflictError,
            match=r'^Apply failed with 1 conflict: conflict with "one": \.data\.a$',
        ) as caught:
            await client.apply(mine, field_owner="two")
        assert caught.value.causes[0]["field"] == ".data.a"
        assert (await client.apply(mine, field_owner="two", force=True)).data == {"a": "2"}
        stored = await client.apply(config_map(), field_owner="one")
        assert stored.data == {"a": "2"}, "a manager that lost a field cannot remove it"

    async def test_each_field_in_conflict_is_named(self, client: FakeClient) -> None:
        await client.apply(config_map(data={"a": "1", "b": "1"}), field_owner="one")
        with pytest.raises(errors.ConflictError) as caught:
            await client.apply(config_map(data={"a": "2", "b": "2"}), field_owner="two")
        listed = 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'
        assert caught.value.message == listed

    async def test_lists_with_keys_merge_item_by_item(self, client: FakeClient) -> None:
        await client.apply(
            pod(
                containers=[{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]
            ),
            field_owner="me",
        )
        other = pod(containers=[{"name": "a", "env": [{"name": "Y", "value": "1"}]}])
        await client.apply(other, field_owner="other")
        stored = await client.apply(pod(containers=[{"name": "a", "image": "2"}]), field_owner="me")
        assert stored.to_dict()["spec"]["containers"] == [
            {"name": "a", "image": "2", "env": [{"name": "Y", "value": "1"}]}
        ]

    async def test_an_item_goes_with_what_others_filled_in_unless_they_own_it(
        self, client: FakeClient
    ) -> None:
        ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
        await client.apply(pod(containers=[{"name": "a", "ports": ports}]), field_owner="me")
        stored = await client.apply(pod(containers=[{"name": "a", "ports": ports[1:]}]), field_owner="me")
        assert stored.to_dict()["spec"]["containers"] == [{"name": "a", "ports": ports[1:]}]

    async def test_lists_without_keys_go_whole(self, client: FakeClient) -> None:
        await client.apply(pod(containers=[{"name": "a", "args": ["1", "2"]}]), field_owner="me")
        stored = await client.apply(pod(containers=[{"name": "a", "args": ["3"]}]), field_owner="me")
        assert stored.to_dict()["spec"]["containers"] == [{"name": "a", "args": ["3"]}]

    async def test_the_status_is_applied_by_its_own_writer(self, client: FakeClient) -> None:
        with_status = Pod.from_dict({**pod(nodeName="x").to_dict(), "status": {"phase": "Running"}})
        assert "status" not in (await client.apply(with_status, field_owner="me")).to_dict()
        stored = await client.status.apply(with_status, field_owner="me")
        assert stored.to_dict()["status"] == {"phase": "Running"}
        stored = await client.apply(pod(nodeName="x"), field_owner="me")
        assert stored.to_dict()["status"] == {"phase": "Running"}, "the object's writer owns no status"

    async def test_the_status_of_an_absent_object_is_not_found(self, client: FakeClient) -> None:
        with pytest.raises(errors.NotFoundError):
            await client.status.apply(pod(), field_owner="me")

    async def test_finalizers_are_a_set(self, client: FakeClient) -> None:
        await client.apply(config_map(finalizers=["a/x"]), field_owner="one")
        stored = await client.apply(config_map(finalizers=["b/y"]), field_owner="two")
        assert stored.metadata.finalizers == ["a/x", "b/y"]
        stored = await client.apply(config_map(), field_owner="one")
        assert stored.metadata.finalizers == ["b/y"]

    async def test_needs_an_owner(self, client: FakeClient) -> None:
        with pytest.raises(errors.InvalidError, match="fieldManager: Required value"):
            await client.apply(config_map(), field_owner="")


class TestDelete:
    async def test_removes_at_once_without_finalizers(self, client: FakeClient) -> None:
        obj = await client.create(config_map())
        await client.delete(obj)
        with pytest.raises(errors.NotFoundError):
            await client.delete(obj)

    async def test_marks_while_there_are_finalizers_and_removes_with_the_last(
        self, client: FakeClient
    ) -> None:
        obj = await client.create(config_map(finalizers=["a/x", "b/y"]))
        await client.delete(obj)
        marked = await client.get(ConfigMap, obj.key)
        assert marked.metadata.deletion_timestamp == "2025-06-01T12:00:00Z"
        await client.delete(marked)
        assert await client.get(ConfigMap, obj.key) == marked, "a second delete changes nothing"
        marked.metadata.finalizers = ["b/y"]
        marked = await client.update(marked)
        marked.metadata.finalizers = ["b/y", "c/z"]
        with pytest.raises(errors.InvalidError, match="no new finalizers can be added"):
            await client.update(marked)
        marked.metadata.finalizers = []
        await client.update(marked)
        assert await client.list(ConfigMap) == []

    @pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
    async def test_a_failed_precondition_is_a_conflict(self, client: FakeClient, precondition: str) -> None:
        obj = await client.create(config_map())
        with pytest.raises(errors.ConflictError, match="in the precondition"):
            await client.delete(obj, preconditions={precondition: "other"})
        assert await client.list(ConfigMap)

    async def test_a_collection_goes_by_selector(self, client: FakeClient) -> None:
        for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
            await client.create(config_map(name, labels={"app": app}))
        await client.delete_all_of(ConfigMap, namespace="n", labels={"app": "x"})
        assert [each.name for each in await client.list(ConfigMap)] == ["b"]


class TestRead:
    async def test_lists_by_namespace_label_and_field(self) -> None:
        first = pod("a", metadata={"labels": {"app": "x"}}, nodeName="node-1")
        second = pod("b", metadata={"labels": {"app": "y"}}, nodeName="node-1")
        third = Pod.from_dict({"metadata": {"name": "a", "namespace": "m"}, "spec": {}})
        client = FakeClient(first, second, third)

        async def names(**options: Any) -> list[str]:
            return [str(each.key) for each in await client.list(Pod, **options)]

        assert await names() == ["m/a", "n/a", "n/b"]
        assert await names(namespace="n") == ["n/a", "n/b"]
        assert await names(labels={"app": ["x", "z"]}) == ["n/a"]
        assert await names(labels="app!=x") == ["m/a", "n/b"]
        assert await names(fields={"spec.nodeName": "node-1", "metadata.name": "b"}) == ["n/b"]

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

    async def test_pages_add_up(self, client: FakeClient) -> None:
        for name in "abc":
            await client.create(config_map(name))
        first = await client.list(ConfigMap, limit=2)
        await client.delete(config_map("a"))
        await client.create(config_map("aa"))
        second = await client.list(ConfigMap, limit=2, continue_token=first.continue_token)
        assert [each.name for each in [*first, *second]] == ["a", "b", "c"]
        assert (first.remaining, second.continue_token) == (1, "")

    async def test_a_limit_below_one_is_none(self, client: FakeClient) -> None:
        await client.create(config_map("a"))
        await client.create(config_map("b"))
        assert len(await client.list(ConfigMap, limit=0)) == len(await client.list(ConfigMap, limit=-1)) == 2

    async def test_a_list_by_an_index_says_that_it_cannot_be_continued(self, client: FakeClient) -> None:
        await client.index_field(ConfigMap, "kind", lambda _: ["x"])
        await client.create(config_map("a"))
        await client.create(config_map("b"))
        assert (await client.list(ConfigMap, fields={"kind": "x"}, limit=2)).continue_token == ""
        page = await client.list(ConfigMap, fields={"kind": "x"}, limit=1)
        assert ([each.name for each in page], bool(page.continue_token)) == (["a"], True)
        with pytest.raises(ValueError, match="cannot be continued"):
            await client.list(ConfigMap, fields={"kind": "x"}, continue_token=page.continue_token)

    async def test_metadata_only_and_unstructured_reads_see_the_same_object(self, client: FakeClient) -> None:
        stored = await client.create(pod(nodeName="x"))
        partial = await client.get(metadata_only(Pod), ("n", "p"))
        assert partial.to_dict() == {"apiVersion": "v1", "kind": "Pod", "metadata": stored.metadata.to_dict()}
        plain = await client.get(unstructured(Pod.gvk), ("n", "p"))
        assert plain.nested("spec", "nodeName") == "x"

    async def test_what_is_read_belongs_to_the_reader(self, client: FakeClient) -> None:
        await client.create(
            WIDGET.from_dict({"metadata": {"name": "w", "namespace": "n"}, "spec": {"a": [1]}})
        )
        first = await client.get(WIDGET, ("n", "w"))
        first["spec"]["a"].append(2)
        assert (await client.get(WIDGET, ("n", "w"))).nested("spec", "a") == [1]


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


async def test_a_watch_returns_existing_objects_first(client: FakeClient) -> None:
    await client.create(config_map("b"))
    await client.create(config_map("a"))
    async with client.watch(ConfigMap) as watch:
        assert [(await anext(watch)).object.name for _ in range(2)] == ["a", "b"]
        await client.create(config_map("c"))
        assert (await anext(watch)).object.name == "c"
        assert watch.resource_version == "1002"
    await watch.aclose()
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


OWNER: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}
ONE_CONTROLLER = (
    'ConfigMap "c" is invalid: metadata.ownerReferences: Invalid value: '
    '[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1","controller":true},'
    '{"apiVersion":"v1","kind":"Pod","name":"b","uid":"2","controller":true}]: Only one reference can have Controller '
    'set to true. Found "true" in references for Pod/a and Pod/b'
)


async def test_an_object_has_one_controller(client: FakeClient) -> None:
    one, two = OWNER | {"controller": True}, OWNER | {"name": "b", "uid": "2", "controller": True}
    both = config_map(ownerReferences=[one, two])

    with pytest.raises(errors.InvalidError) as refused:
        await client.create(both)
    assert (str(refused.value), refused.value.code, refused.value.reason) == (ONE_CONTROLLER, 422, "Invalid")
    stored = await client.create(config_map(ownerReferences=[one, OWNER | {"name": "b", "uid": "2"}]))
    stored.metadata.owner_references = both.metadata.owner_references
    body = json.dumps({"metadata": {"ownerReferences": [one, two]}}).encode()
    for write in (
        client.update(stored),
        client.apply(config_map(ownerReferences=[two]), field_owner="other", force=True),
        client.patch(stored, raw_patch(MERGE, body)),
    ):
        with pytest.raises(errors.InvalidError, match="Only one reference can have Controller set to true"):
            await write


@pytest.mark.parametrize(
    ("owner", "at", "text"),
    [
        ({"apiVersion": ""}, ".apiVersion", '"": version must not be empty'),
        ({"kind": ""}, ".kind", '"": must not be empty'),
        ({"name": ""}, ".name", '"": must not be empty'),
        ({"uid": ""}, ".uid", '"": must not be empty'),
        (
            {"kind": "Event"},
            "",
            '{"apiVersion":"v1","kind":"Event","name":"a","uid":"1"}: /v1, Kind=Event is disallowed from being an owner',
        ),
    ],
)
async def test_an_owner_is_named_completely(
    client: FakeClient, owner: dict[str, Any], at: str, text: str
) -> None:
    with pytest.raises(errors.InvalidError) as refused:
        await client.create(config_map(ownerReferences=[OWNER | owner]))
    error = f'ConfigMap "c" is invalid: metadata.ownerReferences{at}: Invalid value: {text}'
    assert str(refused.value) == error


async def test_annotations_have_a_total_size(client: FakeClient) -> None:
    await client.create(config_map("fits", annotations={"a": "x" * (2**18 - 1)}))
    with pytest.raises(errors.InvalidError, match="Too long: may not be more than 262144 bytes"):
        await client.create(config_map(annotations={"a": "x" * 2**18}))
