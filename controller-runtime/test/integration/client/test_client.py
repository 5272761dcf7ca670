# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The contract of clients, tested on a real API server and in memory: the results must be equal."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import JSON, MERGE, STRATEGIC, Client, LiveClient, merge_from, raw_patch
from controller_runtime.client.cached import Backend
from controller_runtime.envtest import eventually
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Object, errors, metadata_only, unstructured

pytestmark = pytest.mark.integration

CRD = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
WIDGET = unstructured(GVK("client.example.org", "v1", "Widget"))


def crd() -> Object:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
        },
    }
    spec = {"group": "client.example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    return CRD.from_dict({"metadata": {"name": "widgets.client.example.org"}, "spec": spec})


@pytest.fixture(params=["server", "memory"])
async def client(request: pytest.FixtureRequest, live_client: LiveClient) -> AsyncIterator[Backend]:
    """Run each test with a client of the server, and with an in-memory client, which needs no namespace to exist."""
    if request.param == "server":
        yield live_client
    else:
        yield FakeClient()


@pytest.fixture
async def widgets(live_client: LiveClient) -> None:
    """Install the Widget kind, and wait until the server serves it."""
    await live_client.apply(crd(), field_owner="test")

    async def served() -> list[list[Any]] | None:
        try:
            return [await live_client.list(WIDGET)]
        except rest.NoKindMatchError:
            live_client.mapper.reset()
            return None

    await eventually(served, reason="widgets are served")


def config_map(
    namespace: str, name: str = "c", data: dict[str, str] | None = None, **metadata: Any
) -> ConfigMap:
    return ConfigMap.from_dict(
        {"metadata": {"name": name, "namespace": namespace, **metadata}, **({"data": data} if data else {})}
    )


def pod(namespace: str, *containers: dict[str, Any], name: str = "p") -> Pod:
    return Pod.from_dict(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": list(containers)}}
    )


async def test_an_object_lives_from_create_to_delete(client: Backend, namespace: str) -> None:
    created = await client.create(config_map(namespace, data={"a": "1"}))
    assert created.metadata.uid
    assert created.metadata.creation_timestamp
    with pytest.raises(errors.AlreadyExistsError, match=r'^configmaps "c" already exists$'):
        await client.create(config_map(namespace))
    created.data = {"a": "2"}
    updated = await client.update(created)
    assert updated.metadata.resource_version != created.metadata.resource_version
    assert (await client.update(updated)).metadata.resource_version == updated.metadata.resource_version
    with pytest.raises(errors.ConflictError, match="the object has been modified"):
        await client.update(created)
    found = await client.get(ConfigMap, (namespace, "c"))
    assert found.data == {"a": "2"}
    assert await client.remove(found) is None
    with pytest.raises(errors.NotFoundError, match=r'^configmaps "c" not found$') as caught:
        await client.get(ConfigMap, (namespace, "c"))
    assert caught.value.details["name"] == "c"


async def test_names_are_generated(client: Client, namespace: str) -> None:
    obj = ConfigMap.from_dict({"metadata": {"generateName": "gen-", "namespace": namespace}})
    names = {(await client.create(obj)).name for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) == len("gen-") + 5 for name in names)


async def test_a_create_must_not_carry_a_resource_version(client: Client, namespace: str) -> None:
    with pytest.raises(
        errors.StatusError, match="resourceVersion should not be set on objects to be created"
    ):
        await client.create(config_map(namespace, resourceVersion="1"))


async def test_a_dry_run_answers_and_stores_nothing(client: Client, namespace: str) -> None:
    assert (await client.create(config_map(namespace), dry_run=True)).metadata.uid
    assert (await client.apply(config_map(namespace), field_owner="me", dry_run=True)).metadata.uid
    assert await client.list(ConfigMap, namespace=namespace, labels="a=b") == []
    stored = await client.create(config_map(namespace, data={"a": "1"}))
    changed = stored.deep_copy()
    changed.data = {"a": "2"}
    assert (await client.update(changed, dry_run=True)).data == {"a": "2"}
    assert (await client.patch(changed, merge_from(stored), dry_run=True)).data == {"a": "2"}
    await client.delete(stored, dry_run=True)
    assert await client.get(ConfigMap, stored.key) == stored


async def test_deletes_keep_to_their_preconditions(client: Client, namespace: str) -> None:
    first = await client.create(config_map(namespace))
    second = first.deep_copy()
    second.data = {"a": "1"}
    second = await client.update(second)
    for wrong in ({"uid": "other"}, {"resourceVersion": first.metadata.resource_version or ""}):
        with pytest.raises(errors.ConflictError, match=r"[Pp]recondition"):
            await client.delete(second, preconditions=wrong)
    await client.delete(
        second,
        preconditions={
            "uid": second.metadata.uid or "",
            "resourceVersion": second.metadata.resource_version or "",
        },
    )


async def test_finalizers_hold_an_object_back(client: Backend, namespace: str) -> None:
    obj = await client.create(config_map(namespace, finalizers=["example.org/x"]))
    left = await client.remove(obj)
    assert isinstance(left, ConfigMap)
    assert left.metadata.deletion_timestamp
    again = await client.get(ConfigMap, obj.key)
    again.metadata.finalizers = ["example.org/x", "example.org/y"]
    with pytest.raises(errors.InvalidError, match="no new finalizers can be added"):
        await client.update(again)
    again.metadata.finalizers = []
    await client.update(again)
    with pytest.raises(errors.NotFoundError):
        await client.get(ConfigMap, obj.key)


@pytest.mark.usefixtures("widgets")
async def test_status_and_spec_are_written_apart(client: Client, namespace: str) -> None:
    def widget(**parts: Any) -> Any:
        return WIDGET.from_dict({"metadata": {"name": "w", "namespace": namespace}, **parts})

    obj = await client.create(widget(spec={"a": 1}, status={"b": 1}))
    assert obj.nested("status") is None
    assert obj.metadata.generation == 1
    obj["spec"], obj["status"] = {"a": 2}, {"b": 2}
    obj = await client.status.update(obj)
    assert (obj.nested("spec", "a"), obj.nested("status", "b"), obj.metadata.generation) == (1, 2, 1)
    obj["spec"], obj["status"] = {"a": 3}, {"b": 3}
    obj = await client.update(obj)
    assert (obj.nested("spec", "a"), obj.nested("status", "b"), obj.metadata.generation) == (3, 2, 2)
    obj = await client.status.patch(obj, raw_patch(MERGE, b'{"spec":{"a":4},"status":{"c":4}}'))
    assert (obj.nested("spec", "a"), obj["status"], obj.metadata.generation) == (3, {"b": 2, "c": 4}, 2)
    obj = await client.status.apply(widget(status={"d": 5}), field_owner="me")
    assert obj["status"] == {"b": 2, "c": 4, "d": 5}
    obj = await client.apply(widget(spec={"e": 6}, status={"f": 6}), field_owner="me")
    assert obj["spec"] == {"a": 3, "e": 6}
    assert obj["status"] == {"b": 2, "c": 4, "d": 5}


async def test_patches_of_each_type(client: Client, namespace: str) -> None:
    old = await client.create(config_map(namespace, data={"a": "1", "b": "1"}))
    new = old.deep_copy()
    new.data = {"b": "1", "c": "1"}
    assert (await client.patch(new, merge_from(old))).data == {"b": "1", "c": "1"}
    with pytest.raises(errors.ConflictError):
        await client.patch(new, merge_from(old, optimistic_lock=True))
    steps = b'[{"op":"test","path":"/data/b","value":"1"},{"op":"remove","path":"/data/b"}]'
    assert (await client.patch(old, raw_patch(JSON, steps))).data == {"c": "1"}
    with pytest.raises(errors.InvalidError):
        await client.patch(old, raw_patch(JSON, steps))
    one, two = ({"name": name, "image": "i:1"} for name in ("one", "two"))
    await client.create(pod(namespace, one, two))
    strategic = raw_patch(STRATEGIC, b'{"spec":{"containers":[{"name":"two","image":"i:2"}]}}')
    patched = await client.patch(pod(namespace), strategic)
    assert [container.image for container in patched.spec.containers or ()] == ["i:1", "i:2"]


@pytest.mark.usefixtures("widgets")
async def test_custom_resources_know_no_strategic_patch(client: Client, namespace: str) -> None:
    obj = await client.create(WIDGET.from_dict({"metadata": {"name": "w", "namespace": namespace}}))
    with pytest.raises(errors.StatusError) as caught:
        await client.patch(obj, raw_patch(STRATEGIC, b'{"spec":{"a":1}}'))
    assert caught.value.code == 415


async def test_applied_fields_belong_to_their_owners(client: Client, namespace: str) -> None:
    await client.apply(config_map(namespace, data={"a": "1", "b": "1"}, labels={"x": "1"}), field_owner="one")
    await client.patch(
        config_map(namespace), raw_patch(MERGE, b'{"data":{"theirs":"1"}}'), field_owner="them"
    )
    first = await client.apply(config_map(namespace, data={"b": "1"}), field_owner="one")
    assert first.data == {"b": "1", "theirs": "1"}
    assert not first.labels
    again = await client.apply(config_map(namespace, data={"b": "1"}), field_owner="one")
    assert again.metadata.resource_version == first.metadata.resource_version
    with pytest.raises(errors.ConflictError, match=r"Apply failed with 1 conflict.*\.data\.b") as caught:
        await client.apply(config_map(namespace, data={"b": "2"}), field_owner="two")
    assert caught.value.causes[0]["field"] == ".data.b"
    forced = await client.apply(config_map(namespace, data={"b": "2"}), field_owner="two", force=True)
    assert forced.data == {"b": "2", "theirs": "1"}
    left = await client.apply(config_map(namespace), field_owner="one")
    assert left.data == {"b": "2", "theirs": "1"}
    with pytest.raises(
        errors.InvalidError, match=r"fieldManager: Required value: is required for apply patch$"
    ):
        await client.apply(config_map(namespace), field_owner="")


async def test_applied_lists_merge_by_their_keys(client: Client, namespace: str) -> None:
    def env(*names: str) -> list[dict[str, str]]:
        return [{"name": name, "value": "1"} for name in names]

    # A template's containers are mutable, unlike a pod's.
    template = unstructured(GVK("", "v1", "PodTemplate"))

    def make(*containers: dict[str, Any]) -> Any:
        metadata = {"name": "t", "namespace": namespace}
        return template.from_dict(
            {"metadata": metadata, "template": {"spec": {"containers": list(containers)}}}
        )

    def containers(obj: Any) -> list[tuple[str, list[str]]]:
        found = obj.nested("template", "spec", "containers")
        return [(each["name"], [var["name"] for var in each.get("env", ())]) for each in found]

    one = {"name": "one", "image": "i"}
    await client.apply(make(one | {"env": env("A", "B")}, {"name": "two", "image": "i"}), field_owner="me")
    await client.apply(make({"name": "one", "env": env("C")}), field_owner="them")
    stored = await client.apply(make(one | {"env": env("B")}), field_owner="me")
    assert containers(stored) == [("one", ["B", "C"])]
    stored = await client.apply(make(one), field_owner="me")
    assert containers(stored) == [("one", ["C"])]


async def test_lists_are_picked_and_paged(client: Client, namespace: str) -> None:
    for number in range(5):
        await client.create(
            config_map(namespace, f"c{number}", labels={"parity": "odd" if number % 2 else "even"})
        )

    async def names(**options: Any) -> list[str]:
        options = {"namespace": namespace, **options}
        return [
            each.name for each in await client.list(ConfigMap, **options) if each.name != "kube-root-ca.crt"
        ]

    assert await names(labels={"parity": "even"}) == ["c0", "c2", "c4"]
    assert await names(labels="parity notin (even),parity") == ["c1", "c3"]
    assert await names(fields={"metadata.name": "c3"}) == ["c3"]
    page = await client.list(ConfigMap, namespace=namespace, labels="parity", limit=2)
    seen = [each.name for each in page]
    while page.continue_token:
        page = await client.list(
            ConfigMap, namespace=namespace, labels="parity", limit=2, continue_token=page.continue_token
        )
        seen += [each.name for each in page]
    assert seen == ["c0", "c1", "c2", "c3", "c4"]
    assert page.resource_version
    await client.delete_all_of(ConfigMap, namespace=namespace, labels="parity=odd")
    assert await names() == ["c0", "c2", "c4"]


async def test_metadata_can_be_had_alone(client: Client, namespace: str) -> None:
    await client.create(config_map(namespace, data={"a": "1"}, labels={"x": "1"}))
    kind = metadata_only(ConfigMap)
    found = await client.get(kind, (namespace, "c"))
    assert (found.api_version, found.kind, found.labels) == ("v1", "ConfigMap", {"x": "1"})
    assert "data" not in found.to_dict()
    assert [each.gvk for each in await client.list(kind, namespace=namespace, labels="x")] == [ConfigMap.gvk]
    patched = await client.patch(found, raw_patch(MERGE, b'{"metadata":{"labels":{"y":"2"}}}'))
    assert patched.labels == {"x": "1", "y": "2"}
    assert (await client.get(ConfigMap, (namespace, "c"))).data == {"a": "1"}


async def test_a_kind_that_is_not_served_is_no_absent_object(live_client: LiveClient, namespace: str) -> None:
    with pytest.raises(
        rest.NoKindMatchError, match=r'no matches for kind "Nothing" in version "example.org/v1"'
    ):
        await live_client.get(unstructured(GVK("example.org", "v1", "Nothing")), (namespace, "x"))


async def test_a_wrong_token_is_refused_in_one_line(rest_config: rest.Config) -> None:
    rest_config.credentials = rest.StaticToken("wrong")
    assert rest_config.tls is not None
    rest_config.tls = rest.TLSConfig(ca=rest_config.tls.ca)
    async with rest.Transport(rest_config) as transport:
        with pytest.raises(errors.UnauthorizedError, match=r"^Unauthorized$"):
            await LiveClient(transport).list(ConfigMap)


async def test_a_subresource_may_answer_with_another_kind(live_client: LiveClient, namespace: str) -> None:
    account_kind = unstructured(GVK("", "v1", "ServiceAccount"))
    request_kind = unstructured(GVK("authentication.k8s.io", "v1", "TokenRequest"))
    account = await live_client.create(
        account_kind.from_dict({"metadata": {"name": "me", "namespace": namespace}})
    )
    wanted = request_kind.from_dict({"spec": {"expirationSeconds": 3600}})
    issued = await live_client.subresource("token").create(account, wanted)
    assert issued.nested("status", "token")


async def test_an_unknown_field_is_refused_where_that_is_asked_for(
    live_client: LiveClient, namespace: str
) -> None:
    strict = LiveClient(live_client.transport, live_client.mapper, field_validation="Strict")
    odd = ConfigMap.from_dict({"metadata": {"name": "odd", "namespace": namespace}, "colour": "red"})
    with pytest.raises(errors.BadRequestError, match='unknown field "colour"'):
        await strict.create(odd)
    await live_client.create(odd)
    with pytest.raises(errors.InvalidError, match='unknown field "colour"'):
        await strict.patch(odd, raw_patch(MERGE, b'{"colour": "red"}'))
