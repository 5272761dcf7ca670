# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client behaves like a real API server: the same calls are sent to both, and the results are compared.

A result is the whole object, or the error with its class, code, reason, message and causes. The cases of
:data:`DIFFERENT` are the known differences; a case that no longer differs must leave that table.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from controller_runtime import rest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import (
    ConfigMap,
    Namespace,
    Node,
    Pod,
    PodTemplate,
    Secret,
    ServiceAccount,
)
from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Object, metadata_only, unstructured
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import JSON, MERGE, STRATEGIC, FakeClient, LiveClient, merge_from, raw_patch
from controller_runtime.client.cached import Backend
from controller_runtime.envtest import eventually

pytestmark = pytest.mark.integration

GROUP: Final = "alike.example.org"


class Widget(Object, group=GROUP, version="v1", kind="Widget", plural="widgets"):
    """A custom resource whose status is a subresource; some of its lists merge."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Gadget(Object, group=GROUP, version="v1", kind="Gadget", plural="gadgets"):
    """A custom resource without subresources."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Planet(Object, group=GROUP, version="v1", kind="Planet", plural="planets", namespaced=False):
    """A cluster-scoped custom resource, with another field instead of a spec."""

    mass: int | None = None


RAW_WIDGET: Final = unstructured(Widget.gvk)
RAW_PLANET: Final = unstructured(Planet.gvk)
CRD: Final = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAMED: Final = {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}
LISTS: Final = {
    "plain": {"type": "array", "items": NAMED},
    "containers": {"type": "array", "items": NAMED},
    "keyed": {
        "type": "array",
        "items": NAMED | {"required": ["name"]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "whole": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "atomic",
    },
}


def definition(kind: type[Object], properties: dict[str, Any], **version: Any) -> dict[str, Any]:
    assert kind.resource is not None
    plural = kind.resource.plural
    names = {
        "plural": plural,
        "singular": plural[:-1],
        "kind": kind.gvk.kind,
        "listKind": f"{kind.gvk.kind}List",
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.resource.namespaced else "Cluster",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }


CRDS: Final = [
    definition(
        Widget,
        {"spec": ANYTHING | {"properties": LISTS}, "status": ANYTHING},
        subresources={"status": {}},
    ),
    definition(Gadget, {"spec": ANYTHING, "status": ANYTHING}),
    definition(Planet, {"mass": {"type": "integer"}}),
]

Answer = Any
Case = Callable[[Backend, str], Awaitable[list[Answer]]]
CASES: Final[dict[str, Case]] = {}


def case(function: Case) -> Case:
    """Add a case to the table."""
    CASES[function.__name__] = function
    return function


async def answer(call: Awaitable[Any]) -> Answer:
    """Return the result of a call as plain data."""
    try:
        found = await call
    except errors.StatusError as error:
        causes = {(each.get("reason"), each.get("field")) for each in error.causes}
        return ["error", type(error).__name__, error.code, error.reason, str(error), sorted(map(str, causes))]
    except ValueError as error:
        return ["error", "ValueError", str(error)]
    if isinstance(found, list):
        return ["list", *[each.to_dict() for each in found]]
    return ["object", found.to_dict()] if isinstance(found, Object) else ["value", found]


async def version_of(c: Backend, obj: Object) -> str:
    """Return the server's current resourceVersion."""
    return (await c.get(type(obj), obj.key)).metadata.resource_version or ""


def comparable(answers: Any) -> Any:
    """Return results with uids, versions and times, which differ between servers, replaced by order of appearance."""
    seen: dict[str, str] = {}

    def name(value: str, what: str) -> str:
        return seen.setdefault(
            value, f"<{what} {sum(each.startswith(f'<{what}') for each in seen.values())}>"
        )

    def walk(value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {key: walk(each, key) for key, each in sorted(value.items()) if key != "managedFields"}
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, str) and value:
            if field == "uid" and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
                return name(value, "uid")
            if field == "resourceVersion":
                return name(value, "version")
            if field in ("creationTimestamp", "deletionTimestamp"):
                return "<time>"
            for text, token in seen.items():
                value = re.sub(rf"\b{re.escape(text)}\b", token, value)
            value = re.sub(r"in record \([0-9a-f-]+\)", "in record (<this>)", value)
            value = re.sub(r"in the precondition \(\d+\)", "in the precondition (<that>)", value)
        return value

    return walk(answers)


def config_map(ns: str, data: dict[str, str] | None = None, name: str = "c", **metadata: Any) -> ConfigMap:
    body: dict[str, Any] = {"metadata": {"name": name, "namespace": ns, **metadata}}
    return ConfigMap.from_dict(body if data is None else {**body, "data": data})


def widget(ns: str, kind: type[Any] = Widget, name: str = "w", **parts: Any) -> Any:
    metadata = {"name": name, "namespace": ns, **parts.pop("metadata", {})}
    return kind.from_dict({"metadata": metadata, **parts})


def planet(ns: str, kind: type[Any] = Planet, **parts: Any) -> Any:
    return kind.from_dict({"metadata": {"name": f"p-{ns}", **parts.pop("metadata", {})}, **parts})


def lease(ns: str, **spec: Any) -> Lease:
    return Lease.from_dict({"metadata": {"name": "l", "namespace": ns}, "spec": spec})


def job(ns: str, **metadata: Any) -> Job:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return Job.from_dict(
        {"metadata": {"name": "j", "namespace": ns, **metadata}, "spec": {"template": template}}
    )


def pod(ns: str, **spec: Any) -> Pod:
    containers = [{"name": "one", "image": "i:1"}]
    return Pod.from_dict(
        {"metadata": {"name": "p", "namespace": ns}, "spec": {"containers": containers, **spec}}
    )


def metadata(obj: Object) -> dict[str, Any]:
    """Only the metadata, of a kind whose spec the server defaults."""
    found: Any = obj.to_dict()["metadata"]
    found.pop("labels", None)
    return dict(found)


@case
async def create_fills_in_what_a_server_gives(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.create(config_map(ns, {"a": "1"}))),
        await answer(c.create(config_map(ns, {"a": "1"}))),
        await answer(c.create(config_map(ns, resourceVersion="5", name="v"))),
        await answer(c.create(config_map(ns, uid="11111111-1111-4111-8111-111111111111", name="u"))),
        await answer(c.create(config_map(ns, deletionTimestamp="2020-01-01T00:00:00Z", name="d"))),
        await answer(c.create(config_map(ns, generation=7, name="g"))),
        await answer(c.create(config_map(ns, name="s", selfLink="/x"))),
    ]


@case
async def create_without_a_name(c: Backend, ns: str) -> list[Answer]:
    return [await answer(c.create(config_map(ns, name=""))), await answer(c.create(widget(ns, name="")))]


@case
async def create_without_a_namespace(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.create(config_map(""))),
        await answer(c.create(widget(""))),
        await answer(c.create(widget("", RAW_WIDGET))),
    ]


@case
async def create_with_a_bad_name(c: Backend, ns: str) -> list[Answer]:
    return [await answer(c.create(config_map(ns, name="Not_A_Name")))]


@case
async def create_with_names_to_generate(c: Backend, ns: str) -> list[Answer]:
    made = await c.create(config_map(ns, name="", generateName="gen-"))
    return [made.metadata.generate_name, len(made.name), made.name.startswith("gen-")]


@case
async def create_custom_resources(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.create(widget(ns, spec={"a": 1}, status={"b": 1}))),
        await answer(c.create(widget(ns, RAW_WIDGET, name="raw", status={"b": 1}))),
        await answer(c.create(widget(ns, Gadget, spec={"a": 1}, status={"b": 1}))),
        await answer(c.create(planet(ns, mass=1))),
        await answer(c.create(planet(ns, RAW_PLANET, mass=1))),
        await answer(c.delete(planet(ns))),
    ]


@case
async def a_cluster_scoped_object_with_a_namespace(c: Backend, ns: str) -> list[Answer]:
    answers = [
        await answer(c.create(planet(ns, metadata={"namespace": ns}, mass=1), field_owner="maker")),
        await answer(c.get(Planet, ("", f"p-{ns}"))),
        await answer(c.get(Planet, (ns, f"p-{ns}"))),
        await answer(c.get(RAW_PLANET, (ns, f"p-{ns}"))),
        await answer(c.apply(planet(ns, metadata={"namespace": ns}, mass=2), field_owner="me")),
        await answer(c.delete(planet(ns, metadata={"namespace": ns}))),
    ]
    return [*answers, await answer(c.delete(planet(ns)))]


@case
async def dry_runs_store_nothing(c: Backend, ns: str) -> list[Answer]:
    first = await answer(c.create(config_map(ns), dry_run=True))
    first[1]["metadata"].pop("uid")
    stored = await c.create(config_map(ns, {"a": "1"}))
    changed = stored.deep_copy()
    changed.data = {"a": "2"}
    return [
        first,
        await answer(c.update(changed, dry_run=True)),
        await answer(c.patch(changed, merge_from(stored), dry_run=True)),
        await answer(c.apply(config_map(ns, {"b": "1"}), field_owner="me", dry_run=True)),
        await answer(c.remove(stored, dry_run=True)),
        await answer(c.remove(stored, dry_run=True, propagation="Foreground")),
        await answer(c.get(ConfigMap, stored.key)),
    ]


@case
async def a_dry_run_of_what_would_be_refused(c: Backend, ns: str) -> list[Answer]:
    stored = await c.create(config_map(ns, finalizers=["example.org/x"]))
    return [
        await answer(c.create(config_map(ns), dry_run=True)),
        await answer(c.delete(stored, dry_run=True, preconditions={"uid": "wrong"})),
        await answer(c.update(config_map(ns, resourceVersion="1"), dry_run=True)),
        await answer(c.remove(stored, dry_run=True)),
        await answer(c.get(ConfigMap, stored.key)),
    ]


@case
async def generations_of_kinds(c: Backend, ns: str) -> list[Answer]:
    made = await c.create(PriorityClass.from_dict({"metadata": {"name": f"pc-{ns}"}, "value": 5}))
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    named = {"name": "n", "namespace": ns}
    answers = [
        made.metadata.generation,
        (await c.create(lease(ns, holderIdentity="a"))).metadata.generation,
        (await c.create(job(ns))).metadata.generation,
        (await c.create(pod(ns))).metadata.generation,
        (
            await c.create(PodTemplate.from_dict({"metadata": named, "template": template}))
        ).metadata.generation,
        (await c.create(Secret.from_dict({"metadata": named}))).metadata.generation,
        (await c.create(ServiceAccount.from_dict({"metadata": named}))).metadata.generation,
        (await c.create(Namespace.from_dict({"metadata": {"name": f"{ns}-2"}}))).metadata.generation,
        (await c.create(Node.from_dict({"metadata": {"name": f"n-{ns}"}}))).metadata.generation,
    ]
    await c.delete(made)
    await c.delete(Node.from_dict({"metadata": {"name": f"n-{ns}"}}))
    return answers


@case
async def generations_count_changes_outside_metadata(c: Backend, ns: str) -> list[Answer]:
    answers = []
    for kind in (Widget, Gadget):
        obj = await c.create(widget(ns, kind))
        for parts in ({"labels": {"a": "1"}}, {"spec": {"a": 1}}, {"status": {"b": 1}}):
            body = obj.to_dict()
            body = {**body, "metadata": {**body["metadata"], **parts}} if "labels" in parts else body | parts
            obj = await c.update(kind.from_dict(body))
            answers.append(obj.metadata.generation)
    star = await c.create(planet(ns, mass=1))
    star.mass = 2
    star = await c.update(star)
    answers += [star.metadata.generation, await answer(c.remove(star))]
    held = await c.create(widget(ns, name="held", metadata={"finalizers": ["example.org/x"]}))
    return [*answers, await answer(c.remove(held)), await answer(c.remove(held))]


@case
async def get_what_is_not_there(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.get(ConfigMap, (ns, "none"))),
        await answer(c.get(Widget, (ns, "none"))),
        await answer(c.get(metadata_only(Widget), (ns, "none"))),
        await answer(c.get(Planet, ("", "none"))),
    ]


@case
async def get_without_a_namespace_or_a_name(c: Backend, ns: str) -> list[Answer]:
    await c.create(config_map(ns))
    return [
        await answer(c.get(ConfigMap, ("", "c"))),
        await answer(c.get(unstructured(ConfigMap.gvk), ("", "c"))),
        await answer(c.get(Widget, ("", "c"))),
        await answer(c.get(ConfigMap, (ns, ""))),
        await answer(c.get(metadata_only(ConfigMap), ("", "c"))),
    ]


@case
async def list_with_selectors(c: Backend, ns: str) -> list[Answer]:
    for number in range(3):
        await c.create(config_map(ns, name=f"c{number}", labels={"n": str(number)}))
    await c.create(widget(ns, metadata={"labels": {"n": "1"}}))
    return [
        await answer(c.list(ConfigMap, namespace=ns, labels="n in (0,2)")),
        await answer(c.list(ConfigMap, namespace=ns, labels="n,n!=1", fields={"metadata.name": "c0"})),
        await answer(c.list(ConfigMap, namespace=ns, fields={"data.a": "1"})),
        await answer(c.list(ConfigMap, namespace=ns, labels="n==(")),
        await answer(c.list(Widget, namespace=ns, fields={"metadata.name": "w"})),
        await answer(c.list(Widget, namespace=ns, fields={"spec.a": "1"})),
        await answer(c.list(RAW_WIDGET, namespace=ns, labels={"n": "1"})),
        await answer(c.list(metadata_only(Widget), namespace=ns)),
        await answer(c.list(ConfigMap, namespace=f"{ns}-not")),
    ]


@case
async def list_in_pages(c: Backend, ns: str) -> list[Answer]:
    for number in range(3):
        await c.create(widget(ns, name=f"w{number}"))
    page = await c.list(Widget, namespace=ns, limit=2)
    rest_ = await c.list(Widget, namespace=ns, limit=2, continue_token=page.continue_token)
    return [
        [each.name for each in page],
        page.remaining,
        [each.name for each in rest_],
        rest_.remaining,
        rest_.continue_token,
        (await answer(c.list(Widget, namespace=ns, continue_token="nonsense")))[:4],
    ]


@case
async def fields_that_pods_are_selected_by(c: Backend, ns: str) -> list[Answer]:
    await c.create(pod(ns, nodeName="n", schedulerName="s"))
    wanted = [
        {"spec.nodeName": "n"},
        {"spec.schedulerName": "other"},
        {"spec.serviceAccountName": "default"},
        {"status.nominatedNodeName": ""},
        {"spec.hostNetwork": "false"},
        {"spec.priority": "0"},
    ]
    answers: list[Answer] = []
    for fields in wanted:
        found = await answer(c.list(Pod, namespace=ns, fields=fields))
        answers.append(len(found) - 1 if found[0] == "list" else found)
    return answers


@case
async def update_and_its_conflicts(c: Backend, ns: str) -> list[Answer]:
    first = await c.create(config_map(ns, {"a": "1"}))
    second = first.deep_copy()
    second.data = {"a": "2"}
    answers = [await answer(c.update(second)), await answer(c.update(second))]
    newest = await c.get(ConfigMap, first.key)
    other = newest.deep_copy()
    other.metadata.uid = "11111111-1111-4111-8111-111111111111"
    return [
        *answers,
        await answer(c.update(newest)),
        (await answer(c.update(other)))[:4],
        await answer(c.update(config_map(ns, {"a": "3"}))),
        await answer(c.update(config_map(ns, name="none"))),
        await answer(c.update(config_map(ns, name="none", resourceVersion="1"))),
        await answer(c.update(config_map(ns, name="none", uid="11111111-1111-4111-8111-111111111111"))),
        await answer(c.update(config_map(ns, {"a": "3"}, resourceVersion="x"))),
        await answer(c.update(config_map("", {"a": "3"}))),
    ]


@case
async def update_without_a_resource_version(c: Backend, ns: str) -> list[Answer]:
    await c.create(widget(ns))
    await c.create(widget(ns, Gadget))
    await c.create(lease(ns, holderIdentity="a"))
    await c.create(job(ns))
    made = await c.create(pod(ns))
    suspended = job(ns).to_dict()
    suspended["spec"]["suspend"] = True
    return [
        await answer(c.update(widget(ns, spec={"a": 1}))),
        await answer(c.update(widget(ns, RAW_WIDGET, spec={"a": 1}))),
        await answer(c.status.update(widget(ns, status={"a": 1}))),
        await answer(c.update(widget(ns, Gadget, spec={"a": 1}))),
        await answer(c.update(widget(ns, name="none"))),
        (await answer(c.update(lease(ns, holderIdentity="b"))))[0],
        (await answer(c.update(lease(ns, holderIdentity="b"), dry_run=True)))[-1],
        await answer(c.get(Lease, (ns, "l"))),
        made.name,
    ]


@case
async def update_of_what_belongs_to_the_server(c: Backend, ns: str) -> list[Answer]:
    made = await c.create(widget(ns, spec={"a": 1}))
    body = made.to_dict()
    body["metadata"] |= {
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "generation": 99,
        "deletionTimestamp": "2020-01-01T00:00:00Z",
    }
    unkeyed = made.to_dict()
    unkeyed["metadata"].pop("uid")
    return [await answer(c.update(Widget.from_dict(body))), await answer(c.update(Widget.from_dict(unkeyed)))]


@case
async def status_and_spec_apart(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(widget(ns, spec={"a": 1}))
    obj.spec, obj.status = {"a": 2}, {"b": 2}
    answers = [await answer(c.status.update(obj))]
    obj = await c.get(Widget, obj.key)
    obj.spec, obj.status = {"a": 3}, {"b": 3}
    obj.metadata.labels = {"x": "1"}
    answers.append(await answer(c.update(obj)))
    answers.append(await answer(c.status.update(obj)))
    obj = await c.get(Widget, obj.key)
    patch = raw_patch(MERGE, b'{"metadata":{"labels":{"p":"1"}},"spec":{"a":4},"status":{"c":4}}')
    answers.append(await answer(c.status.patch(obj, patch)))
    answers.append(await answer(c.patch(obj, patch)))
    answers.append(await answer(c.status.apply(widget(ns, spec={"z": 1}, status={"d": 5}), field_owner="me")))
    answers.append(await answer(c.apply(widget(ns, spec={"z": 1}, status={"d": 6}), field_owner="me")))
    answers.append(await answer(c.status.get(obj, Widget)))
    return answers


@case
async def status_of_an_object_that_is_not_there(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.status.update(widget(ns))),
        await answer(c.status.patch(widget(ns), raw_patch(MERGE, b'{"status":{}}'))),
        await answer(c.status.apply(widget(ns, status={"a": 1}), field_owner="me")),
        await answer(c.status.get(widget(ns), Widget)),
    ]


@case
async def status_of_kinds_without_the_subresource(c: Backend, ns: str) -> list[Answer]:
    made = await c.create(config_map(ns))
    gadget = await c.create(widget(ns, Gadget, status={"a": 1}))
    locked = await c.create(lease(ns, holderIdentity="a"))
    return [
        await answer(c.status.update(made)),
        await answer(c.status.patch(made, raw_patch(MERGE, b'{"metadata":{"labels":{"a":"1"}}}'))),
        await answer(c.status.apply(config_map(ns), field_owner="me")),
        await answer(c.status.update(gadget)),
        await answer(c.status.patch(gadget, raw_patch(MERGE, b'{"status":{"a":2}}'))),
        await answer(c.status.update(locked)),
        await answer(c.status.update(config_map(ns, name="none"))),
        await answer(c.status.get(gadget, Gadget)),
    ]


@case
async def patches_of_each_type(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(config_map(ns, {"a": "1", "b": "1"}, labels={"x": "1"}))
    steps = b'[{"op":"test","path":"/data/b","value":"1"},{"op":"remove","path":"/data/b"}]'
    strategic = b'{"metadata":{"labels":{"y":"1"}},"data":{"a":null,"c":"1"}}'
    return [
        await answer(c.patch(obj, raw_patch(MERGE, b'{"data":{"a":null,"c":"1"}}'))),
        await answer(c.patch(obj, raw_patch(MERGE, b"{}"))),
        await answer(c.patch(obj, raw_patch(JSON, steps))),
        await answer(c.patch(obj, raw_patch(STRATEGIC, strategic))),
        await answer(c.patch(config_map(ns, name="none"), raw_patch(MERGE, b"{}"))),
        await answer(c.patch(config_map(""), raw_patch(MERGE, b"{}"))),
        await answer(c.patch(obj, raw_patch("application/what+json", b"{}"))),
    ]


@case
async def patches_that_are_refused(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(config_map(ns, {"a": "1"}))
    test = b'[{"op":"test","path":"/data/a","value":"2"}]'
    absent = b'[{"op":"remove","path":"/data/none"}]'
    return [
        (await answer(c.patch(obj, raw_patch(JSON, test))))[:4],
        (await answer(c.patch(obj, raw_patch(JSON, absent))))[:4],
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"name":"other"}}'))),
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"namespace":"other"}}'))),
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"resourceVersion":"1"}}'))),
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"uid":"1"}}'))),
        (await answer(c.patch(obj, raw_patch(MERGE, b"[]"))))[:3],
        (await answer(c.patch(obj, raw_patch(MERGE, b"{"))))[:3],
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"resourceVersion":""}}'))),
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"uid":null}}'))),
        (await answer(c.patch(obj, raw_patch(MERGE, b'{"kind":"Secret"}'))))[:4],
        (await answer(c.patch(obj, raw_patch(MERGE, b'{"apiVersion":"v2"}'))))[:4],
    ]


@case
async def patches_of_custom_resources(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(widget(ns, spec={"a": 1, "plain": [{"name": "x", "value": "1"}]}))
    lists = b'{"spec":{"plain":[{"name":"y"}]}}'
    return [
        await answer(c.patch(obj, raw_patch(MERGE, lists))),
        await answer(c.patch(obj, raw_patch(STRATEGIC, lists))),
        await answer(
            c.patch(obj, raw_patch(JSON, b'[{"op":"add","path":"/spec/plain/-","value":{"name":"z"}}]'))
        ),
        await answer(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"generation":50}}'))),
        await answer(c.patch(obj, raw_patch(MERGE, b'{"status":{"a":1}}'))),
    ]


@case
async def patches_with_a_lock(c: Backend, ns: str) -> list[Answer]:
    old = await c.create(widget(ns, spec={"a": 1}))
    new = old.deep_copy()
    new.spec = {"a": 2}
    return [
        await answer(c.patch(new, merge_from(old, optimistic_lock=True))),
        await answer(c.patch(new, merge_from(old, optimistic_lock=True))),
        await answer(c.status.patch(new, merge_from(old, optimistic_lock=True))),
    ]


@case
async def strategic_patches_of_lists(c: Backend, ns: str) -> list[Answer]:
    await c.create(pod(ns, containers=[{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:1"}]))
    patched = await c.patch(
        pod(ns), raw_patch(STRATEGIC, b'{"spec":{"containers":[{"name":"two","image":"i:2"}]}}')
    )
    return [[each.image for each in patched.spec.containers or ()]]


@case
async def apply_creates_and_prunes(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.apply(config_map(ns, {"a": "1", "b": "1"}, labels={"x": "1"}), field_owner="one")),
        await answer(c.apply(config_map(ns, {"a": "1", "b": "1"}, labels={"x": "1"}), field_owner="one")),
        await answer(c.patch(config_map(ns), raw_patch(MERGE, b'{"data":{"z":"1"}}'), field_owner="them")),
        await answer(c.apply(config_map(ns, {"b": "1"}), field_owner="one")),
        await answer(c.apply(config_map(ns, {"b": "2"}), field_owner="two")),
        await answer(c.apply(config_map(ns, {"b": "2"}), field_owner="two", force=True)),
        await answer(c.apply(config_map(ns), field_owner="one")),
        await answer(c.apply(config_map(ns), field_owner="two")),
        await answer(c.apply(config_map(ns, {"z": "2", "b": "3"}), field_owner="two")),
    ]


@case
async def apply_against_what_was_created(c: Backend, ns: str) -> list[Answer]:
    await c.create(config_map(ns, {"a": "1", "b": "1"}), field_owner="maker")
    return [
        await answer(c.apply(config_map(ns, {"a": "1"}), field_owner="me")),
        await answer(c.apply(config_map(ns, {"a": "2"}), field_owner="me")),
        await answer(c.apply(config_map(ns, {"a": "2"}), field_owner="maker")),
        await answer(c.apply(config_map(ns, {"a": "2"}), field_owner="me", force=True)),
        await answer(c.apply(config_map(ns), field_owner="me")),
    ]


@case
async def apply_that_is_refused(c: Backend, ns: str) -> list[Answer]:
    made = await c.create(config_map(ns))
    foreign = "11111111-1111-4111-8111-111111111111"
    return [
        await answer(c.apply(config_map(ns, name=""), field_owner="me")),
        await answer(c.apply(config_map(""), field_owner="me")),
        await answer(c.apply(config_map(ns), field_owner="")),
        await answer(c.apply(config_map(ns, uid=foreign), field_owner="me")),
        await answer(c.apply(config_map(ns, name="new", uid=foreign), field_owner="me")),
        await answer(c.apply(config_map(ns, name="new", resourceVersion="1"), field_owner="me")),
        await answer(c.apply(config_map(ns, uid=made.metadata.uid, labels={"a": "1"}), field_owner="me")),
        await answer(c.apply(config_map(ns, resourceVersion="1"), field_owner="me")),
        await answer(c.apply(config_map(ns, name="", generateName="g-"), field_owner="me")),
    ]


@case
async def apply_of_server_fields(c: Backend, ns: str) -> list[Answer]:
    made = await c.create(widget(ns))
    times = {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 9}
    return [
        await answer(c.apply(widget(ns, metadata=times), field_owner="me")),
        await answer(c.apply(made, field_owner="me")),
        await answer(c.apply(widget(ns, name="n", metadata=times, status={"a": 1}), field_owner="me")),
    ]


@case
async def apply_of_lists_of_custom_resources(c: Backend, ns: str) -> list[Answer]:
    def items(*names: str) -> list[dict[str, str]]:
        return [{"name": name, "value": "1"} for name in names]

    answers = []
    for field in ("plain", "containers", "keyed"):
        for kind in (Widget, RAW_WIDGET):
            obj = widget(
                ns, kind, name=f"{field}-{kind.__mro__[1].__name__.lower()}", spec={field: items("a", "b")}
            )
            other = obj.deep_copy()
            if kind is Widget:
                other.spec = {field: items("b", "c")}
            else:
                other["spec"] = {field: items("b", "c")}
            answers += [
                await answer(c.apply(obj, field_owner="one")),
                await answer(c.apply(other, field_owner="two")),
                await answer(c.apply(other, field_owner="two", force=True)),
                await answer(c.apply(obj, field_owner="one", force=True)),
                await answer(c.apply(widget(ns, kind, name=obj.name), field_owner="one")),
            ]
    return answers


@case
async def apply_of_sets_and_atomic_maps(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.apply(widget(ns, spec={"tags": ["a", "b"], "whole": {"x": "1"}}), field_owner="one")),
        await answer(c.apply(widget(ns, spec={"tags": ["b", "c"]}), field_owner="two")),
        await answer(c.apply(widget(ns, spec={"whole": {"y": "1"}}), field_owner="two")),
        await answer(c.apply(widget(ns, spec={"whole": {"y": "1"}}), field_owner="two", force=True)),
        await answer(c.apply(widget(ns, spec={"tags": ["a"]}), field_owner="one")),
        await answer(c.apply(widget(ns, spec={"free": {"deep": {"er": 1}}}), field_owner="three")),
        await answer(c.apply(widget(ns, spec={"free": {"deep": {"as": 1}}}), field_owner="four")),
    ]


@case
async def apply_of_lists_of_kubernetes_kinds(c: Backend, ns: str) -> list[Answer]:
    def template(kind: type[Any], *containers: dict[str, Any]) -> Any:
        spec = {"spec": {"containers": list(containers)}}
        return kind.from_dict({"metadata": {"name": "t", "namespace": ns}, "template": spec})

    def env(*names: str) -> dict[str, Any]:
        return {"name": "one", "env": [{"name": name, "value": "1"} for name in names]}

    def left(obj: Any) -> Any:
        spec: Any = obj.to_dict()["template"]["spec"]
        return [[each["name"], [var["name"] for var in each.get("env", ())]] for each in spec["containers"]]

    raw = unstructured(PodTemplate.gvk)
    two = {"name": "two", "image": "i"}
    return [
        left(await c.apply(template(raw, env("A", "B") | {"image": "i"}, two), field_owner="me")),
        left(await c.apply(template(PodTemplate, env("C")), field_owner="them")),
        left(await c.apply(template(raw, env("B") | {"image": "i"}), field_owner="me")),
        (await answer(c.apply(template(raw, env("B") | {"image": "j"}), field_owner="them")))[2:],
    ]


@case
async def apply_of_finalizers_and_owners(c: Backend, ns: str) -> list[Answer]:
    owner = await c.create(config_map(ns, name="owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    return [
        await answer(c.apply(widget(ns, metadata={"finalizers": ["example.org/a"]}), field_owner="one")),
        await answer(c.apply(widget(ns, metadata={"finalizers": ["example.org/b"]}), field_owner="two")),
        await answer(c.apply(widget(ns, metadata={"ownerReferences": [reference]}), field_owner="three")),
        await answer(c.apply(widget(ns, metadata={"ownerReferences": [reference]}), field_owner="four")),
        await answer(c.apply(widget(ns), field_owner="three")),
        await answer(c.apply(widget(ns), field_owner="one")),
    ]


@case
async def apply_to_kinds_without_a_status_subresource(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.apply(widget(ns, Gadget, spec={"a": 1}, status={"b": 1}), field_owner="me")),
        await answer(c.apply(widget(ns, Gadget, spec={"a": 1}), field_owner="me")),
    ]


@case
async def deletes_and_their_preconditions(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(config_map(ns))
    newest = await c.patch(obj, raw_patch(MERGE, b'{"data":{"a":"1"}}'))
    return [
        await answer(c.remove(obj, preconditions={"uid": "11111111-1111-4111-8111-111111111111"})),
        await answer(c.remove(obj, preconditions={"resourceVersion": obj.metadata.resource_version or ""})),
        await answer(c.remove(newest, preconditions={"uid": newest.metadata.uid or ""})),
        await answer(c.remove(newest)),
        await answer(c.remove(config_map(""))),
        await answer(c.remove(config_map(ns, name=""))),
        await answer(c.remove(newest, preconditions={"uid": "x"})),
    ]


@case
async def deletes_with_each_propagation(c: Backend, ns: str) -> list[Answer]:
    answers = []
    for propagation in ("Background", "Foreground", "Orphan"):
        for make in (config_map, widget):
            obj = await c.create(make(ns, name=propagation.lower()))
            answers += [
                await answer(c.remove(obj, propagation=propagation)),
                await answer(c.get(type(obj), obj.key)),
                await answer(c.remove(obj, propagation=propagation)),
                await answer(c.remove(obj)),
                await answer(c.get(type(obj), obj.key)),
            ]
    return answers


@case
async def a_second_delete_with_another_propagation(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(config_map(ns, finalizers=["example.org/x"]))
    answers = [
        await answer(c.remove(obj)),
        await answer(c.remove(obj, propagation="Foreground")),
        await answer(c.remove(obj, propagation="Orphan")),
        await answer(c.remove(obj, propagation="Background")),
    ]
    left = await c.get(ConfigMap, obj.key)
    left.metadata.finalizers = None
    return [*answers, await answer(c.update(left)), await answer(c.get(ConfigMap, obj.key))]


@case
async def a_job_is_orphaned_unless_told_otherwise(c: Backend, ns: str) -> list[Answer]:
    def state(obj: Any) -> Any:
        return obj and (
            obj.metadata.finalizers,
            bool(obj.metadata.deletion_timestamp),
            obj.metadata.generation,
        )

    made = await c.create(job(ns))
    first = state(await c.remove(made))
    made = await c.create(job(ns, name="k"))
    return [first, state(await c.remove(made, propagation="Background"))]


@case
async def pods_end_in_their_grace_period(c: Backend, ns: str) -> list[Answer]:
    def state(obj: Any) -> Any:
        return obj and (obj.metadata.deletion_grace_period_seconds, bool(obj.metadata.deletion_timestamp))

    answers: list[Answer] = []
    waiting = await c.create(pod(ns))
    answers.append(state(await c.remove(waiting)))
    bound = await c.create(pod(ns, nodeName="n"))
    answers.append(state(await c.remove(bound)))
    answers.append(state(await c.remove(bound)))
    answers.append(state(await c.remove(bound, grace_period_seconds=5)))
    answers.append(state(await c.remove(bound, grace_period_seconds=0)))
    bound = await c.create(pod(ns, nodeName="n", terminationGracePeriodSeconds=7))
    answers.append(state(await c.remove(bound)))
    answers.append(state(await c.remove(bound, grace_period_seconds=0)))
    ended = await c.create(pod(ns, nodeName="n"))
    ended.status.phase = "Succeeded"
    ended = await c.status.update(ended)
    answers.append(state(await c.remove(ended)))
    return answers


@case
async def evictions(c: Backend, ns: str) -> list[Answer]:
    kind = unstructured(GVK("policy", "v1", "Eviction"))
    made = await c.create(pod(ns))
    body = kind.from_dict({"metadata": {"name": "p", "namespace": ns}})
    return [
        (await answer(c.subresource("eviction").create(made, body)))[0],
        (await answer(c.get(Pod, made.key)))[:4],
        (await answer(c.subresource("eviction").create(made, body)))[:4],
    ]


@case
async def finalizers_keep_an_object(c: Backend, ns: str) -> list[Answer]:
    obj = await c.create(widget(ns, metadata={"finalizers": ["example.org/x", "example.org/y"]}))
    answers = [await answer(c.remove(obj)), await answer(c.remove(obj)), await answer(c.create(widget(ns)))]
    left = await c.get(Widget, obj.key)
    more = left.deep_copy()
    more.metadata.finalizers = ["example.org/x", "example.org/y", "example.org/z"]
    answers.append(await answer(c.update(more)))
    answers.append(
        await answer(c.apply(widget(ns, metadata={"finalizers": ["example.org/z"]}), field_owner="me"))
    )
    left.metadata.finalizers = ["example.org/x"]
    left.spec = {"a": 1}
    answers.append(await answer(c.update(left)))
    answers.append(await answer(c.patch(left, raw_patch(MERGE, b'{"metadata":{"finalizers":null}}'))))
    answers.append(await answer(c.get(Widget, obj.key)))
    return answers


@case
async def collections_are_deleted_by_selector(c: Backend, ns: str) -> list[Answer]:
    for number in range(3):
        await c.create(widget(ns, name=f"w{number}", metadata={"labels": {"n": str(number)}}))
    await c.delete_all_of(Widget, namespace=ns, labels="n=0")
    first = [each.name for each in await c.list(Widget, namespace=ns)]
    await c.delete_all_of(Widget, namespace=ns, fields={"metadata.name": "w1"}, propagation="Foreground")
    return [
        first,
        [(each.name, each.metadata.finalizers) for each in await c.list(Widget, namespace=ns)],
        await answer(c.delete_all_of(Widget)),
    ]


@case
async def metadata_alone(c: Backend, ns: str) -> list[Answer]:
    await c.create(config_map(ns, {"a": "1"}))
    kind = metadata_only(ConfigMap)
    found = await c.get(kind, (ns, "c"))
    return [
        found.to_dict(),
        await answer(c.patch(found, raw_patch(MERGE, b'{"metadata":{"labels":{"y":"2"}}}'))),
        await answer(c.delete(found)),
    ]


@case
async def the_server_names_what_is_not_allowed_in_metadata(c: Backend, ns: str) -> list[Answer]:
    return [
        await answer(c.create(config_map(ns, labels={"a b": "1"}))),
        await answer(c.create(config_map(ns, labels={"a": "x y"}))),
        await answer(c.create(config_map(ns, finalizers=["nodomain"]))),
        await answer(c.create(config_map(ns, annotations={"a b": "1"}))),
        await answer(
            c.create(config_map(ns, ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]))
        ),
    ]


async def namespaces_must_exist(c: Backend, ns: str) -> list[Answer]:
    """In memory a namespace need not exist, so that a test can use one without creating it."""
    return [await answer(c.create(config_map(f"{ns}-not")))]


async def namespaces_end_with_their_content(c: Backend, ns: str) -> list[Answer]:
    """No namespace controller: in memory a namespace is deleted like any object, and its content stays."""
    return [await answer(c.remove(Namespace.from_dict({"metadata": {"name": ns}})))]


async def schemas_fill_in_defaults(c: Backend, ns: str) -> list[Answer]:
    """In memory there are no schemas: no defaults are set."""
    made = await c.create(pod(ns))
    return [made.spec.restart_policy, made.status.phase]


async def schemas_refuse_wrong_types(c: Backend, ns: str) -> list[Answer]:
    """In memory there are no schemas: nothing is validated except metadata."""
    return [await answer(c.create(planet(ns, RAW_PLANET, mass="heavy")))]


async def schemas_prune_unknown_fields(c: Backend, ns: str) -> list[Answer]:
    """In memory there are no schemas: unknown fields are kept."""
    made = await c.create(planet(ns, RAW_PLANET, moons=2))
    await c.delete(made)
    return [made.nested("moons")]


async def a_status_writer_owns_the_metadata_it_sends(c: Backend, ns: str) -> list[Answer]:
    """A server records it as the owner of labels that it did not store; in memory it owns the status alone."""
    await c.create(widget(ns))
    applied = widget(ns, status={"a": 1}, metadata={"labels": {"q": "1"}})
    await c.status.apply(applied, field_owner="one")
    return [await answer(c.apply(widget(ns, metadata={"labels": {"q": "2"}}), field_owner="two"))]


DIFFERENT: Final[dict[str, Case]] = {
    each.__name__: each
    for each in (
        namespaces_must_exist,
        namespaces_end_with_their_content,
        schemas_fill_in_defaults,
        schemas_refuse_wrong_types,
        schemas_prune_unknown_fields,
        a_status_writer_owns_the_metadata_it_sends,
    )
}
"""The in-memory client's differences; ``docs/testing-operators.md`` lists the same ones."""


@pytest.fixture
def memory() -> Callable[[], FakeClient]:
    """Return a function that creates an empty in-memory client for the same kinds."""
    return lambda: FakeClient(crds=CRDS)


@pytest.fixture
async def served(live_client: LiveClient) -> LiveClient:
    """A client of a server that serves the kinds above."""
    for each in CRDS:
        await live_client.apply(CRD.from_dict(each), field_owner="test")
    for kind in (RAW_WIDGET, unstructured(Gadget.gvk), RAW_PLANET):

        async def listed(kind: type[Object] = kind) -> list[Any] | None:
            try:
                return [await live_client.list(kind)]
            except rest.NoKindMatchError:
                live_client.mapper.reset()
                return None

        await eventually(listed, reason=f"{kind.gvk} is served")
    return live_client


@pytest.mark.parametrize("name", CASES)
async def test_memory_answers_as_a_server(
    name: str, served: LiveClient, namespace: str, memory: Callable[[], FakeClient]
) -> None:
    real = comparable(await CASES[name](served, namespace))
    fake = comparable(await CASES[name](memory(), namespace))
    assert fake == real


@pytest.mark.parametrize("name", DIFFERENT)
async def test_memory_differs_from_a_server_where_documented(
    name: str, served: LiveClient, namespace: str, memory: Callable[[], FakeClient]
) -> None:
    real = comparable(await DIFFERENT[name](served, namespace))
    assert comparable(await DIFFERENT[name](memory(), namespace)) != real
