# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments and options: every client raises one TypeError that names what is wrong, and the type checker reports it.

The ``type: ignore[call-arg]`` comments are part of the test: mypy complains about a comment that suppresses no error.
"""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import cache, rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import LabelSelector
from controller_runtime.client import (
    MERGE,
    CachedClient,
    Client,
    LabelSelectorLike,
    LiveClient,
    dry_run,
    interceptor,
    merge_from,
    namespaced,
    raw_patch,
    read_only,
    strategic_merge_from,
    with_field_owner,
)
from controller_runtime.fake import FakeClient

OBJECT = ConfigMap(metadata=ctrl.ObjectMeta(name="c", namespace="n"))
PATCH = ctrl.merge_from(OBJECT)


def live() -> LiveClient:
    client = FakeClient(OBJECT)
    return LiveClient(client.transport, client.mapper)


CLIENTS: dict[str, Callable[[], Client]] = {
    "live": live,
    "fake": lambda: FakeClient(OBJECT),
    "cached": lambda: CachedClient(live(), cache.Cache(rest.FakeTransport(lambda _: rest.FakeResponse(404)))),
    "namespaced": lambda: namespaced(live(), "n"),
    "with settings": lambda: with_field_owner(FakeClient(OBJECT), "me"),
    "dry": lambda: dry_run(live()),
    "interceptor": lambda: interceptor.wrap(FakeClient(OBJECT), interceptor.Funcs()),
}
OBJECTS: dict[str, Any] = {
    "a map": {"metadata": {"name": "c"}},
    "a class": ConfigMap,
    "nothing": None,
    "a list": [OBJECT],
    "a key": ("n", "c"),
}
OF_OBJECTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "create": ("obj", lambda c, obj: c.create(obj)),
    "update": ("obj", lambda c, obj: c.update(obj)),
    "patch": ("obj", lambda c, obj: c.patch(obj, PATCH)),
    "apply": ("obj", lambda c, obj: c.apply(obj, field_owner="me")),
    "delete": ("obj", lambda c, obj: c.delete(obj)),
    "status update": ("obj", lambda c, obj: c.status.update(obj)),
    "status patch": ("obj", lambda c, obj: c.status.patch(obj, PATCH)),
    "status apply": ("obj", lambda c, obj: c.status.apply(obj, field_owner="me")),
    "eviction": ("body", lambda c, obj: c.subresource("eviction").create(OBJECT, obj)),
    "eviction of": ("obj", lambda c, obj: c.subresource("eviction").create(obj, OBJECT)),
    "subresource": ("obj", lambda c, obj: c.subresource("x").get(obj, ConfigMap)),
    "scale": ("obj", lambda c, obj: c.subresource("scale").get(obj)),
    "scale update": ("scale", lambda c, obj: c.subresource("scale").update(OBJECT, obj)),
    "log": ("pod", lambda c, obj: c.subresource("log").get(obj)),
}


@pytest.mark.parametrize("verb", OF_OBJECTS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_what_is_no_object_is_refused_at_once(client: str, verb: str) -> None:
    argument, call = OF_OBJECTS[verb]
    for value in OBJECTS.values():
        with pytest.raises(TypeError, match=f"^{argument} must be an object of a kind, such as"):
            await call(CLIENTS[client](), value)


@pytest.mark.parametrize(
    "kind", ["ConfigMap", OBJECT, dict, ConfigMap.gvk, None], ids=lambda kind: type(kind).__name__
)
@pytest.mark.parametrize("client", CLIENTS)
async def test_what_is_no_kind_is_refused_at_once(client: str, kind: Any) -> None:
    made = CLIENTS[client]()
    calls: list[Callable[[], Any]] = [
        lambda: made.get(kind, ("n", "c")),
        lambda: made.list(kind),
        lambda: made.delete_all_of(kind, namespace="n"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^kind must be the class of a kind, such as ConfigMap, not "):
            await call()


@pytest.mark.parametrize("patch", [{"a": 1}, OBJECT, b"{}", None, ctrl.merge_from], ids=type)
@pytest.mark.parametrize("client", CLIENTS)
async def test_what_is_no_patch_is_refused_at_once(client: str, patch: Any) -> None:
    made = CLIENTS[client]()
    for call in (made.patch, made.status.patch, made.subresource("scale").patch):
        with pytest.raises(TypeError, match=r"^patch must be ctrl\.merge_from"):
            await call(OBJECT, patch)


OPTIONS: dict[str, tuple[Callable[[Any, Any], Any], dict[str, list[Any]]]] = {
    "list": (
        lambda c, options: c.list(ConfigMap, **options),
        {
            "namespace": [["a"], 5, b"n"],
            "labels": [5, ["a=b"]],
            "fields": [5, ["a"]],
            "limit": ["5", 2.5, True],
            "continue_token": [5],
        },
    ),
    "create": (
        lambda c, options: c.create(OBJECT, **options),
        {"field_owner": [5], "dry_run": ["none", ["All"]], "field_validation": [True]},
    ),
    "patch": (lambda c, options: c.patch(OBJECT, PATCH, **options), {"force": ["true", 1]}),
    "apply": (
        lambda c, options: c.apply(OBJECT, field_owner="me", **options),
        {"force": ["true"], "field_validation": [5]},
    ),
    "delete": (
        lambda c, options: c.delete(OBJECT, **options),
        {
            "propagation": [True, ["Background"]],
            "grace_period_seconds": ["0", False],
            "preconditions": ["uid", ("uid", "1"), {"resource_version": "1"}],
        },
    ),
    "delete_all_of": (
        lambda c, options: c.delete_all_of(ConfigMap, **{"namespace": "n", **options}),
        {"namespace": [["a"]], "labels": [5], "propagation": [5], "grace_period_seconds": ["0"]},
    ),
    "log": (
        lambda c, options: c.subresource("log").get(OBJECT, **options),
        {"tail_lines": ["2"], "previous": ["yes"], "container": [5]},
    ),
}


@pytest.mark.parametrize("client", [each for each in CLIENTS if each != "dry"])  # which replaces the options
@pytest.mark.parametrize("verb", OPTIONS)
async def test_an_option_of_a_wrong_type_is_named_with_what_is_wanted(client: str, verb: str) -> None:
    call, options = OPTIONS[verb]
    for name, value in itertools.chain(*([(n, v) for v in values] for n, values in options.items())):
        with pytest.raises((TypeError, ValueError), match=rf"^\w+Options: {name} must be "):
            await call(CLIENTS[client](), {name: value})


async def test_none_means_the_default_of_each_option() -> None:
    client = FakeClient(OBJECT)
    unset: Any = dict.fromkeys(("namespace", "labels", "fields", "limit", "continue_token"))
    assert len(await client.list(ConfigMap, **unset)) == 1
    unset = dict.fromkeys(("propagation", "grace_period_seconds", "dry_run", "preconditions"))
    await client.delete(OBJECT, **unset)
    assert len(await client.list(ConfigMap)) == 0


def test_patches_are_made_of_objects_and_bytes() -> None:
    for make in (ctrl.merge_from, strategic_merge_from):
        with pytest.raises(TypeError, match=r"^old must be an object of a kind, .* not a map"):
            make({"metadata": {}})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^body must be the bytes of the patch, .* not {'spec': 1}"):
        raw_patch("application/merge-patch+json", {"spec": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^content_type must be a text such as application/merge-patch"):
        raw_patch({}, b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", None, ConfigMap], ids=repr)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_subresource_has_a_name(client: str, name: Any) -> None:
    with pytest.raises(TypeError, match=r"^a subresource has a name, such as 'status', not "):
        CLIENTS[client]().subresource(name)


def test_lists_say_where_the_fields_of_other_clients_are() -> None:
    listed: Any = ctrl.client.ObjectList([OBJECT])
    with pytest.raises(AttributeError, match=r"no attribute items: the list itself contains the objects"):
        _ = listed.items
    with pytest.raises(AttributeError, match=r"no attribute metadata: use resource_version, continue_token"):
        _ = listed.metadata
    assert not hasattr(listed, "other")


async def test_a_cache_itself_refuses_what_is_no_kind() -> None:
    read: Any = cache.Cache(rest.FakeTransport(lambda _: rest.FakeResponse(404)))
    for kind in ("ConfigMap", OBJECT):
        with pytest.raises(TypeError, match=r"^kind must be the class of a kind"):
            await read.get(kind, ("n", "c"))
    with pytest.raises(TypeError, match=r"for a cache, fields must be a map of indices, not 'a=b'"):
        await read.list(ConfigMap, fields="a=b")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: ctrl.ignore_not_found(ctrl.Request("n", "c")), "^of must be an object of a kind"),  # type: ignore[arg-type]
        (lambda: ctrl.ignore_not_found({"a": 1}), "^of must be an object of a kind"),  # type: ignore[arg-type]
        (lambda: ctrl.ignore_not_found(dict, ("n", "c")), "^of must be the class of a kind"),  # type: ignore[arg-type]
        (lambda: ctrl.ignore_not_found(ConfigMap, "c"), r"must be a pair"),  # type: ignore[arg-type]
        (lambda: ctrl.ignore_not_found(OBJECT, ("n", "other")), r"^ignore_not_found\(obj\): n/c is the key"),
    ],
)
def test_the_absence_of_what_is_no_object_cannot_be_ignored(call: Callable[[], object], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        call()


KEYS: list[Any] = ["c", "nc", ("c",), ("n", "c", "x"), None, ("n", None), ("n", 5), (5, "c")]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_key_that_is_not_a_pair_of_texts_is_refused(client: str, key: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a pair, \(namespace, name\)"):
        await CLIENTS[client]().get(ConfigMap, key)


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
@pytest.mark.parametrize("client", [each for each in CLIENTS if each != "with settings"])  # it has an owner
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
