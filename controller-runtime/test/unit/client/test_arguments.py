# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of wrong types: every verb of every client raises one TypeError that names the argument and what is wanted."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import controller_runtime as ctrl
from controller_runtime import cache, rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import (
    CachedClient,
    LiveClient,
    dry_run,
    interceptor,
    namespaced,
    raw_patch,
    strategic_merge_from,
    with_field_owner,
)
from controller_runtime.fake import FakeClient

OBJECT = ConfigMap(metadata=ctrl.ObjectMeta(name="c", namespace="n"))
PATCH = ctrl.merge_from(OBJECT)


def live() -> LiveClient:
    client = FakeClient(OBJECT)
    return LiveClient(client.transport, client.mapper)


CLIENTS: dict[str, Callable[[], Any]] = {
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


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("key", [("n", None), ("n", 5), (5, "c")], ids=repr)
async def test_a_key_of_other_values_than_texts_is_refused(client: str, key: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a pair, \(namespace, name\)"):
        await CLIENTS[client]().get(ConfigMap, key)


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
