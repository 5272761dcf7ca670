# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: owners, lists that merge, and refusals."""

from typing import Any

from controller_runtime.apis.core.v1 import (
    PodTemplate,
    Secret,
)
from controller_runtime.client import MERGE, Backend, raw_patch
from controller_runtime.machinery import unstructured

from .world import RAW_WIDGET, Gadget, Observation, Widget, config_map, observe, widget


async def apply_creates_and_prunes(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.apply(config_map(ns, {"a": "1", "b": "1"}, labels={"x": "1"}), field_owner="one")),
        await observe(c.apply(config_map(ns, {"a": "1", "b": "1"}, labels={"x": "1"}), field_owner="one")),
        await observe(c.patch(config_map(ns), raw_patch(MERGE, b'{"data":{"z":"1"}}'), field_owner="them")),
        await observe(c.apply(config_map(ns, {"b": "1"}), field_owner="one")),
        await observe(c.apply(config_map(ns, {"b": "2"}), field_owner="two")),
        await observe(c.apply(config_map(ns, {"b": "2"}), field_owner="two", force=True)),
        await observe(c.apply(config_map(ns), field_owner="one")),
        await observe(c.apply(config_map(ns), field_owner="two")),
        await observe(c.apply(config_map(ns, {"z": "2", "b": "3"}), field_owner="two")),
    ]


async def apply_against_what_was_created(c: Backend, ns: str) -> list[Observation]:
    await c.create(config_map(ns, {"a": "1", "b": "1"}), field_owner="maker")
    return [
        await observe(c.apply(config_map(ns, {"a": "1"}), field_owner="me")),
        await observe(c.apply(config_map(ns, {"a": "2"}), field_owner="me")),
        await observe(c.apply(config_map(ns, {"a": "2"}), field_owner="maker")),
        await observe(c.apply(config_map(ns, {"a": "2"}), field_owner="me", force=True)),
        await observe(c.apply(config_map(ns), field_owner="me")),
    ]


async def apply_that_is_refused(c: Backend, ns: str) -> list[Observation]:
    made = await c.create(config_map(ns))
    foreign = "11111111-1111-4111-8111-111111111111"
    return [
        await observe(c.apply(config_map(ns, name=""), field_owner="me")),
        await observe(c.apply(config_map(""), field_owner="me")),
        await observe(c.apply(config_map(ns), field_owner="")),
        await observe(c.apply(config_map(ns, uid=foreign), field_owner="me")),
        await observe(c.apply(config_map(ns, name="new", uid=foreign), field_owner="me")),
        await observe(c.apply(config_map(ns, name="new", resourceVersion="1"), field_owner="me")),
        await observe(c.apply(config_map(ns, uid=made.metadata.uid, labels={"a": "1"}), field_owner="me")),
        await observe(c.apply(config_map(ns, resourceVersion="1"), field_owner="me")),
        await observe(c.apply(config_map(ns, name="", generateName="g-"), field_owner="me")),
    ]


async def apply_that_must_create(c: Backend, ns: str) -> list[Observation]:
    def secret(value: str, **metadata: Any) -> Secret:
        named = {"namespace": ns, "name": "secret", **metadata}
        return Secret.from_dict(
            {"metadata": named, "type": "Opaque", "immutable": True, "data": {"key": value}}
        )

    version = {"resourceVersion": "1"}
    return [
        await observe(c.apply(widget(ns, metadata=version, spec={"plain": []}), field_owner="me")),
        await observe(c.apply(secret("YQ==", **version), field_owner="me")),
        await observe(c.apply(secret("Yg==", **version), field_owner="me", force=True)),
        await observe(c.apply(widget(ns, metadata=version, spec={"a": 1}), field_owner="me", force=True)),
    ]


async def apply_of_server_fields(c: Backend, ns: str) -> list[Observation]:
    made = await c.create(widget(ns))
    times = {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 9}
    return [
        await observe(c.apply(widget(ns, metadata=times), field_owner="me")),
        await observe(c.apply(made, field_owner="me")),
        await observe(c.apply(widget(ns, name="n", metadata=times, status={"a": 1}), field_owner="me")),
    ]


async def apply_of_lists_of_custom_resources(c: Backend, ns: str) -> list[Observation]:
    def items(*names: str) -> list[dict[str, str]]:
        return [{"name": name, "value": "1"} for name in names]

    observations = []
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
            observations += [
                await observe(c.apply(obj, field_owner="one")),
                await observe(c.apply(other, field_owner="two")),
                await observe(c.apply(other, field_owner="two", force=True)),
                await observe(c.apply(obj, field_owner="one", force=True)),
                await observe(c.apply(widget(ns, kind, name=obj.name), field_owner="one")),
            ]
    return observations


async def apply_of_sets_and_atomic_maps(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.apply(widget(ns, spec={"tags": ["a", "b"], "whole": {"x": "1"}}), field_owner="one")),
        await observe(c.apply(widget(ns, spec={"tags": ["b", "c"]}), field_owner="two")),
        await observe(c.apply(widget(ns, spec={"whole": {"y": "1"}}), field_owner="two")),
        await observe(c.apply(widget(ns, spec={"whole": {"y": "1"}}), field_owner="two", force=True)),
        await observe(c.apply(widget(ns, spec={"tags": ["a"]}), field_owner="one")),
        await observe(c.apply(widget(ns, spec={"free": {"deep": {"er": 1}}}), field_owner="three")),
        await observe(c.apply(widget(ns, spec={"free": {"deep": {"as": 1}}}), field_owner="four")),
    ]


async def apply_orders_the_items_of_lists_that_merge(c: Backend, ns: str) -> list[Observation]:
    orders = []
    for first, second in (("abcd", "dxby"), ("abc", "xc"), ("ab", "ba"), ("axb", "by"), ("abcd", "cnazb")):
        for owner, items in (("one", first), ("two", second), ("one", first[::-1])):
            spec = {"keyed": [{"name": each} for each in items], "tags": list(items)}
            merged = (await c.apply(widget(ns, name=f"w-{second}", spec=spec), field_owner=owner)).spec
            orders.append(["".join(each["name"] for each in merged["keyed"]), "".join(merged["tags"])])
    return orders


async def apply_of_lists_of_kubernetes_kinds(c: Backend, ns: str) -> list[Observation]:
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
        (await observe(c.apply(template(raw, env("B") | {"image": "j"}), field_owner="them")))[2:],
    ]


async def apply_of_finalizers_and_owners(c: Backend, ns: str) -> list[Observation]:
    owner = await c.create(config_map(ns, name="owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    return [
        await observe(c.apply(widget(ns, metadata={"finalizers": ["example.org/a"]}), field_owner="one")),
        await observe(c.apply(widget(ns, metadata={"finalizers": ["example.org/b"]}), field_owner="two")),
        await observe(c.apply(widget(ns, metadata={"ownerReferences": [reference]}), field_owner="three")),
        await observe(c.apply(widget(ns, metadata={"ownerReferences": [reference]}), field_owner="four")),
        await observe(c.apply(widget(ns), field_owner="three")),
        await observe(c.apply(widget(ns), field_owner="one")),
    ]


async def apply_to_kinds_without_a_status_subresource(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.apply(widget(ns, Gadget, spec={"a": 1}, status={"b": 1}), field_owner="me")),
        await observe(c.apply(widget(ns, Gadget, spec={"a": 1}), field_owner="me")),
    ]
