# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deletions: preconditions, propagation, grace periods, finalizers and evictions."""

from typing import Any

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    Pod,
)
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.client.cached import Backend
from controller_runtime.machinery import GVK, unstructured

from .world import Answer, Widget, answer, config_map, job, pod, widget


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


async def evictions(c: Backend, ns: str) -> list[Answer]:
    kind = unstructured(GVK("policy", "v1", "Eviction"))
    made = await c.create(pod(ns))
    body = kind.from_dict({"metadata": {"name": "p", "namespace": ns}})
    return [
        (await answer(c.subresource("eviction").create(made, body)))[0],
        (await answer(c.get(Pod, made.key)))[:4],
        (await answer(c.subresource("eviction").create(made, body)))[:4],
    ]


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
