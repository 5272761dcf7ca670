# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Options of the verbs: every client raises TypeError for an unknown option, and the type checker reports it.

The ``type: ignore`` comments below are part of the test: mypy complains about a comment that suppresses no error.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from controller_runtime import cache, rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import LabelSelector, ObjectMeta
from controller_runtime.client import (
    MERGE,
    CachedClient,
    Client,
    LabelSelectorLike,
    LiveClient,
    interceptor,
    merge_from,
    namespaced,
    raw_patch,
    read_only,
)
from controller_runtime.fake import FakeClient

OBJECT = ConfigMap(metadata=ObjectMeta(name="c", namespace="n"))


def live() -> LiveClient:
    answer = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}}
    return LiveClient(rest.FakeTransport(lambda _: rest.FakeResponse(200, answer)))


CLIENTS: dict[str, Callable[[], Client]] = {
    "live": live,
    "fake": FakeClient,
    "cached": lambda: CachedClient(live(), cache.Cache(rest.FakeTransport(lambda _: rest.FakeResponse(404)))),
    "namespaced": lambda: namespaced(live(), "n"),
    "interceptor": lambda: interceptor.wrap(FakeClient(), interceptor.Funcs()),
}
CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "list": lambda c: c.list(ConfigMap, label="a=b"),  # type: ignore[call-arg]
    "create": lambda c: c.create(OBJECT, dry_runs=True),  # type: ignore[call-arg]
    "update": lambda c: c.update(OBJECT, force=True),  # type: ignore[call-arg]
    "patch": lambda c: c.patch(OBJECT, merge_from(OBJECT), owner="me"),  # type: ignore[call-arg]
    "apply": lambda c: c.apply(OBJECT, field_owner="me", forced=True),  # type: ignore[call-arg]
    "apply without owner": lambda c: c.apply(OBJECT),  # type: ignore[call-arg]
    "delete": lambda c: c.delete(OBJECT, grace=0),  # type: ignore[call-arg]
    "delete_all_of": lambda c: c.delete_all_of(ConfigMap, name_space="n"),  # type: ignore[call-arg]
    "status update": lambda c: c.status.update(OBJECT, force=True),  # type: ignore[call-arg]
    "status patch": lambda c: c.status.patch(OBJECT, merge_from(OBJECT), owner="me"),  # type: ignore[call-arg]
    "status apply": lambda c: c.status.apply(OBJECT, field_owner="me", x=1),  # type: ignore[call-arg]
    "eviction": lambda c: c.subresource("eviction").create(OBJECT, OBJECT, x=1),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("key", ["c", "nc", ("c",), ("n", "c", "x"), None], ids=repr)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_key_that_is_not_a_pair_is_a_type_error(client: str, key: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a pair, \(namespace, name\)"):
        await CLIENTS[client]().get(ConfigMap, key)


@pytest.mark.parametrize("value", [1, [1, 2], None], ids=repr)
@pytest.mark.parametrize("client", ["live", "fake"])
async def test_a_label_that_is_not_a_string_is_a_type_error_that_names_it(client: str, value: Any) -> None:
    with pytest.raises(TypeError, match=r"label 'app': .* must be a string or several strings"):
        await CLIENTS[client]().list(ConfigMap, labels={"app": value})


@pytest.mark.parametrize("client", ["live", "fake"])
async def test_the_json_of_a_label_selector_is_not_taken_for_labels(client: str) -> None:
    with pytest.raises(TypeError, match=r"label 'matchLabels' has a map: .* use LabelSelector\.from_dict"):
        await CLIENTS[client]().list(ConfigMap, labels={"matchLabels": {"app": "a"}})


@pytest.mark.parametrize("labels", [None, {}, "", LabelSelector()], ids=repr)
async def test_no_selector_and_an_empty_one_select_all_objects(labels: LabelSelectorLike | None) -> None:
    sent = rest.FakeTransport(lambda _: rest.FakeResponse(200, {"metadata": {}, "items": []}))
    client = LiveClient(sent)
    await client.list(ConfigMap, namespace="n", labels=labels)
    await client.delete_all_of(ConfigMap, namespace="n", labels=labels)
    assert [dict(request.query).get("labelSelector") for request in sent.requests] == [None, None]

    store = FakeClient(OBJECT)
    informers = cache.Cache(store.transport)
    async with anyio.create_task_group() as tasks:
        await tasks.start(informers.start)
        for each in (store, CachedClient(store, informers)):
            assert [obj.name for obj in await each.list(ConfigMap, labels=labels)] == ["c"]
        tasks.cancel_scope.cancel()
    await store.delete_all_of(ConfigMap, namespace="n", labels=labels)
    assert await store.list(ConfigMap) == []


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_an_unknown_option_is_a_type_error(client: str, call: str) -> None:
    with pytest.raises(TypeError, match="Options"):
        await CALLS[call](CLIENTS[client]())


async def test_the_error_names_the_nearest_option() -> None:
    with pytest.raises(TypeError, match=r"^ListOptions has no option label; did you mean labels\?$"):
        await CALLS["list"](live())
    with pytest.raises(TypeError, match=r"^ApplyOptions: field_owner is required$"):
        await CALLS["apply without owner"](live())
    with pytest.raises(
        TypeError, match=r"^UpdateOptions has no option force; known options are dry_run, field_own"
    ):
        await CALLS["update"](live())


async def test_an_option_of_another_type_is_an_error_of_the_type_checker() -> None:
    await read_only(FakeClient()).list(ConfigMap, namespace=None)  # type: ignore[arg-type]


async def test_field_validation_of_one_call_takes_precedence() -> None:
    answer = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(200, answer))
    client = LiveClient(transport, field_validation="Warn")
    await client.create(OBJECT)
    await client.update(OBJECT, field_validation="Strict", field_owner="me")
    await client.status.apply(OBJECT, field_owner="me", force=True, field_validation="Ignore")
    assert [dict(request.query) for request in transport.requests] == [
        {"fieldValidation": "Warn"},
        {"fieldManager": "me", "fieldValidation": "Strict"},
        {"fieldManager": "me", "force": "true", "fieldValidation": "Ignore"},
    ]


async def test_a_field_validation_of_none_keeps_that_of_the_client() -> None:
    answer = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(200, answer))
    client = LiveClient(transport, field_validation="Strict")
    await client.create(OBJECT, field_validation=None)
    await client.update(OBJECT, field_validation=None)
    await client.patch(OBJECT, raw_patch(MERGE, b"{}"), field_validation=None)
    await client.apply(OBJECT, field_owner="me", field_validation=None)
    await client.status.update(OBJECT, field_validation=None)
    await client.status.patch(OBJECT, raw_patch(MERGE, b"{}"), field_validation=None)
    assert {dict(request.query)["fieldValidation"] for request in transport.requests} == {"Strict"}


async def test_a_collection_is_deleted_dry_and_with_a_grace_period() -> None:
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(200, {"kind": "Status", "status": "Success"}))
    await LiveClient(transport).delete_all_of(
        ConfigMap, namespace="n", labels={"a": "b"}, grace_period_seconds=0, dry_run=True
    )
    assert transport.requests[0].target == "/api/v1/namespaces/n/configmaps?labelSelector=a%3Db"
    assert (transport.requests[0].body or b"").endswith(b'"gracePeriodSeconds":0,"dryRun":["All"]}')


async def test_the_fake_client_deletes_a_collection_dry() -> None:
    client = FakeClient(OBJECT)
    await client.delete_all_of(ConfigMap, namespace="n", dry_run=True)
    assert len(await client.list(ConfigMap)) == 1
