# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Creations, dry runs and generations."""

from typing import Any

import msgspec

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    Namespace,
    Node,
    PodTemplate,
    Secret,
    ServiceAccount,
)
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import MERGE, Backend, merge_from, raw_patch

from .world import (
    RAW_PLANET,
    RAW_WIDGET,
    Gadget,
    Observation,
    Planet,
    Widget,
    config_map,
    job,
    lease,
    observe,
    planet,
    pod,
    widget,
)


async def create_fills_in_what_a_server_gives(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.create(config_map(ns, {"a": "1"}))),
        await observe(c.create(config_map(ns, {"a": "1"}))),
        await observe(c.create(config_map(ns, resourceVersion="5", name="v"))),
        await observe(c.create(config_map(ns, uid="11111111-1111-4111-8111-111111111111", name="u"))),
        await observe(c.create(config_map(ns, deletionTimestamp="2020-01-01T00:00:00Z", name="d"))),
        await observe(c.create(config_map(ns, generation=7, name="g"))),
        await observe(c.create(config_map(ns, name="s", selfLink="/x"))),
    ]


async def create_without_a_name(c: Backend, ns: str) -> list[Observation]:
    return [await observe(c.create(config_map(ns, name=""))), await observe(c.create(widget(ns, name="")))]


async def create_without_a_namespace(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.create(config_map(""))),
        await observe(c.create(widget(""))),
        await observe(c.create(widget("", RAW_WIDGET))),
    ]


async def create_with_a_bad_name(c: Backend, ns: str) -> list[Observation]:
    return [await observe(c.create(config_map(ns, name="Not_A_Name")))]


async def create_with_names_to_generate(c: Backend, ns: str) -> list[Observation]:
    made = await c.create(config_map(ns, name="", generateName="gen-"))
    return [made.metadata.generate_name, len(made.name), made.name.startswith("gen-")]


async def create_custom_resources(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.create(widget(ns, spec={"a": 1}, status={"b": 1}))),
        await observe(c.create(widget(ns, RAW_WIDGET, name="raw", status={"b": 1}))),
        await observe(c.create(widget(ns, Gadget, spec={"a": 1}, status={"b": 1}))),
        await observe(c.create(planet(ns, mass=1))),
        await observe(c.create(planet(ns, RAW_PLANET, mass=1))),
        await observe(c.delete(planet(ns))),
    ]


async def a_cluster_scoped_object_with_a_namespace(c: Backend, ns: str) -> list[Observation]:
    observations = [
        await observe(c.create(planet(ns, metadata={"namespace": ns}, mass=1), field_owner="maker")),
        await observe(c.get(Planet, ("", f"p-{ns}"))),
        await observe(c.get(Planet, (ns, f"p-{ns}"))),
        await observe(c.get(RAW_PLANET, (ns, f"p-{ns}"))),
        await observe(c.apply(planet(ns, metadata={"namespace": ns}, mass=2), field_owner="me")),
        await observe(c.delete(planet(ns, metadata={"namespace": ns}))),
    ]
    return [*observations, await observe(c.delete(planet(ns)))]


async def dry_runs_store_nothing(c: Backend, ns: str) -> list[Observation]:
    first = await observe(c.create(config_map(ns), dry_run=True))
    first[1]["metadata"].pop("uid")
    stored = await c.create(config_map(ns, {"a": "1"}))
    changed = stored.deep_copy()
    changed.data = {"a": "2"}
    return [
        first,
        await observe(c.update(changed, dry_run=True)),
        await observe(c.patch(changed, merge_from(stored), dry_run=True)),
        await observe(c.apply(config_map(ns, {"b": "1"}), field_owner="me", dry_run=True)),
        await observe(c.remove(stored, dry_run=True)),
        await observe(c.remove(stored, dry_run=True, propagation="Foreground")),
        await observe(c.get(ConfigMap, stored.key)),
    ]


async def a_dry_run_of_what_would_be_refused(c: Backend, ns: str) -> list[Observation]:
    stored = await c.create(config_map(ns, finalizers=["example.org/x"]))
    return [
        await observe(c.create(config_map(ns), dry_run=True)),
        await observe(c.delete(stored, dry_run=True, preconditions={"uid": "wrong"})),
        await observe(c.update(config_map(ns, resourceVersion="1"), dry_run=True)),
        await observe(c.remove(stored, dry_run=True)),
        await observe(c.get(ConfigMap, stored.key)),
    ]


async def generations_of_kinds(c: Backend, ns: str) -> list[Observation]:
    made = await c.create(PriorityClass.from_dict({"metadata": {"name": f"pc-{ns}"}, "value": 5}))
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    named = {"name": "n", "namespace": ns}
    observations = [
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
    return observations


async def generations_count_changes_outside_metadata(c: Backend, ns: str) -> list[Observation]:
    observations = []
    for kind in (Widget, Gadget):
        obj = await c.create(widget(ns, kind))
        for parts in ({"labels": {"a": "1"}}, {"spec": {"a": 1}}, {"status": {"b": 1}}):
            body = obj.to_dict()
            body = {**body, "metadata": {**body["metadata"], **parts}} if "labels" in parts else body | parts
            obj = await c.update(kind.from_dict(body))
            observations.append(obj.metadata.generation)
    star = await c.create(planet(ns, mass=1))
    star.mass = 2
    star = await c.update(star)
    observations += [star.metadata.generation, await observe(c.remove(star))]
    held = await c.create(widget(ns, name="held", metadata={"finalizers": ["example.org/x"]}))
    return [*observations, await observe(c.remove(held)), await observe(c.remove(held))]


async def the_server_names_what_is_not_allowed_in_metadata(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.create(config_map(ns, labels={"a b": "1"}))),
        await observe(c.create(config_map(ns, labels={"a": "x y"}))),
        await observe(c.create(config_map(ns, finalizers=["nodomain"]))),
        await observe(c.create(config_map(ns, annotations={"a b": "1"}))),
        await observe(
            c.create(config_map(ns, ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]))
        ),
    ]


def custom(ns: str, **metadata: Any) -> Widget:
    found: Widget = widget(ns, metadata=metadata)
    return found


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "blockOwnerDeletion": False}


async def the_server_refuses_owners(c: Backend, ns: str) -> list[Observation]:
    one, two = OWNER | {"controller": True}, OWNER | {"name": "y", "uid": "2", "controller": True}
    three = two | {"name": "<z>", "uid": "3"}
    observations = [
        await observe(c.create(make(ns, name=f"o{number}", ownerReferences=owners)))
        for make in (config_map, custom)
        for number, owners in enumerate(
            (
                [one, two],
                [one, OWNER, two, three],
                [one, two | {"controller": False}, OWNER],
                [OWNER | {"apiVersion": "a/b/c"}],
                [OWNER | {"apiVersion": "v1/", "uid": ""}],
                [OWNER | {"apiVersion": "", "kind": "", "name": "", "uid": ""}],
                [OWNER | {"kind": "Event"}],
                [OWNER | {"kind": "Event", "apiVersion": "events.k8s.io/v1"}],
            )
        )
    ]
    stored = await c.create(config_map(ns, name="stored", ownerReferences=[one]))
    stored.metadata.owner_references = [OwnerReference.from_dict(each) for each in (one, two)]
    observations.append(await observe(c.update(stored)))
    body = msgspec.json.encode({"metadata": {"ownerReferences": [one, two]}})
    observations.append(await observe(c.patch(stored, raw_patch(MERGE, body))))
    applied = config_map(ns, name="stored", ownerReferences=[two])
    return [*observations, await observe(c.apply(applied, field_owner="other"))]


async def the_server_names_every_problem_of_metadata(c: Backend, ns: str) -> list[Observation]:
    found: list[dict[str, Any]] = [
        {"labels": {"a/b/c": "x"}},
        {"labels": {"": "x"}},
        {"annotations": {"a/b/c": "x"}},
        {"annotations": {"A.b/C": "x"}},
        {"annotations": {"a": "x" * 2**18}},
        {"annotations": {"a": "\N{SNOWMAN}" * (2**18 // 3)}},
        {"annotations": {"a": "x" * (2**18 - 1)}},
        {"finalizers": ["a b"]},
        {"finalizers": ["a/b/c", "plain"]},
        {"finalizers": ["orphan", "foregroundDeletion"]},
        {
            "labels": {"a b": "x y"},
            "annotations": {"a b": ""},
            "finalizers": ["a b"],
            "ownerReferences": [{}],
        },
    ]
    return [
        await observe(c.create(make(ns, name=f"n{number}", **metadata)))
        for make in (config_map, custom)
        for number, metadata in enumerate(found)
    ]


async def schemas_prune_unknown_fields(c: Backend, ns: str) -> list[Observation]:
    """Fields that the schema of a custom resource does not know are dropped."""
    made = await c.create(planet(ns, RAW_PLANET, moons=2))
    await c.delete(made)
    return [made.nested("moons")]
