# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deletions: preconditions, propagation, grace periods, finalizers and evictions."""

from typing import Any

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    Pod,
)
from controller_runtime.client import MERGE, Backend, raw_patch
from controller_runtime.machinery import GVK, unstructured

from .world import Observation, Widget, config_map, job, observe, pod, widget


async def deletes_and_their_preconditions(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(config_map(ns))
    newest = await c.patch(obj, raw_patch(MERGE, b'{"data":{"a":"1"}}'))
    return [
        await observe(c.remove(obj, preconditions={"uid": "11111111-1111-4111-8111-111111111111"})),
        await observe(c.remove(obj, preconditions={"resourceVersion": obj.metadata.resource_version or ""})),
        await observe(c.remove(newest, propagation="Sideways")),  # type: ignore[arg-type]  # refused
        await observe(c.remove(newest, preconditions={"uid": newest.metadata.uid or ""})),
        await observe(c.remove(newest)),
        await observe(c.remove(config_map(""))),
        await observe(c.remove(config_map(ns, name=""))),
        await observe(c.remove(newest, preconditions={"uid": "x"})),
    ]


async def deletes_with_each_propagation(c: Backend, ns: str) -> list[Observation]:
    observations = []
    for propagation in ("Background", "Foreground", "Orphan"):
        for make in (config_map, widget):
            obj = await c.create(make(ns, name=propagation.lower()))
            observations += [
                await observe(c.remove(obj, propagation=propagation)),
                await observe(c.get(type(obj), obj.key)),
                await observe(c.remove(obj, propagation=propagation)),
                await observe(c.remove(obj)),
                await observe(c.get(type(obj), obj.key)),
            ]
    return observations


async def a_second_delete_with_another_propagation(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(config_map(ns, finalizers=["example.org/x"]))
    observations = [
        await observe(c.remove(obj)),
        await observe(c.remove(obj, propagation="Foreground")),
        await observe(c.remove(obj, propagation="Orphan")),
        await observe(c.remove(obj, propagation="Background")),
    ]
    left = await c.get(ConfigMap, obj.key)
    left.metadata.finalizers = None
    return [*observations, await observe(c.update(left)), await observe(c.get(ConfigMap, obj.key))]


async def a_job_is_orphaned_unless_told_otherwise(c: Backend, ns: str) -> list[Observation]:
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


async def pods_end_in_their_grace_period(c: Backend, ns: str) -> list[Observation]:
    def state(obj: Any) -> Any:
        return obj and (obj.metadata.deletion_grace_period_seconds, bool(obj.metadata.deletion_timestamp))

    observations: list[Observation] = []
    waiting = await c.create(pod(ns))
    observations.append(state(await c.remove(waiting)))
    bound = await c.create(pod(ns, nodeName="n"))
    observations.append(state(await c.remove(bound)))
    observations.append(state(await c.remove(bound)))
    observations.append(state(await c.remove(bound, grace_period_seconds=5)))
    observations.append(state(await c.remove(bound, grace_period_seconds=0)))
    bound = await c.create(pod(ns, nodeName="n", terminationGracePeriodSeconds=7))
    observations.append(state(await c.remove(bound)))
    observations.append(state(await c.remove(bound, grace_period_seconds=0)))
    ended = await c.create(pod(ns, nodeName="n"))
    ended.status.phase = "Succeeded"
    ended = await c.status.update(ended)
    observations.append(state(await c.remove(ended)))
    return observations


async def evictions(c: Backend, ns: str) -> list[Observation]:
    kind = unstructured(GVK("policy", "v1", "Eviction"))
    made = await c.create(pod(ns))
    body = kind.from_dict({"metadata": {"name": "p", "namespace": ns}})
    return [
        (await observe(c.subresource("eviction").create(made, body)))[0],
        (await observe(c.get(Pod, made.key)))[:4],
        (await observe(c.subresource("eviction").create(made, body)))[:4],
    ]


async def finalizers_keep_an_object(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(widget(ns, metadata={"finalizers": ["example.org/x", "example.org/y"]}))
    observations = [
        await observe(c.remove(obj)),
        await observe(c.remove(obj)),
        await observe(c.create(widget(ns))),
    ]
    left = await c.get(Widget, obj.key)
    more = left.deep_copy()
    more.metadata.finalizers = ["example.org/x", "example.org/y", "example.org/z"]
    observations.append(await observe(c.update(more)))
    observations.append(
        await observe(c.apply(widget(ns, metadata={"finalizers": ["example.org/z"]}), field_owner="me"))
    )
    left.metadata.finalizers = ["example.org/x"]
    left.spec = {"a": 1}
    observations.append(await observe(c.update(left)))
    observations.append(await observe(c.patch(left, raw_patch(MERGE, b'{"metadata":{"finalizers":null}}'))))
    observations.append(await observe(c.get(Widget, obj.key)))
    return observations


async def collections_are_deleted_by_selector(c: Backend, ns: str) -> list[Observation]:
    for number in range(3):
        await c.create(widget(ns, name=f"w{number}", metadata={"labels": {"n": str(number)}}))
    await c.delete_all_of(Widget, namespace=ns, labels="n=0")
    first = [each.name for each in await c.list(Widget, namespace=ns)]
    await c.delete_all_of(Widget, namespace=ns, fields={"metadata.name": "w1"}, propagation="Foreground")
    return [
        first,
        [(each.name, each.metadata.finalizers) for each in await c.list(Widget, namespace=ns)],
        await observe(c.delete_all_of(Widget)),
    ]
