# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Patches of each type."""

from controller_runtime.client import JSON, MERGE, STRATEGIC, Backend, merge_from, raw_patch

from .world import Observation, config_map, observe, pod, widget


async def patches_of_each_type(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(config_map(ns, {"a": "1", "b": "1"}, labels={"x": "1"}))
    steps = b'[{"op":"test","path":"/data/b","value":"1"},{"op":"remove","path":"/data/b"}]'
    strategic = b'{"metadata":{"labels":{"y":"1"}},"data":{"a":null,"c":"1"}}'
    return [
        await observe(c.patch(obj, raw_patch(MERGE, b'{"data":{"a":null,"c":"1"}}'))),
        await observe(c.patch(obj, raw_patch(MERGE, b"{}"))),
        await observe(c.patch(obj, raw_patch(JSON, steps))),
        await observe(c.patch(obj, raw_patch(STRATEGIC, strategic))),
        await observe(c.patch(config_map(ns, name="none"), raw_patch(MERGE, b"{}"))),
        await observe(c.patch(config_map(""), raw_patch(MERGE, b"{}"))),
        await observe(c.patch(obj, raw_patch("application/what+json", b"{}"))),
    ]


async def patches_that_are_refused(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(config_map(ns, {"a": "1"}))
    test = b'[{"op":"test","path":"/data/a","value":"2"}]'
    absent = b'[{"op":"remove","path":"/data/none"}]'
    return [
        (await observe(c.patch(obj, raw_patch(JSON, test))))[:4],
        (await observe(c.patch(obj, raw_patch(JSON, absent))))[:4],
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"name":"other"}}'))),
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"namespace":"other"}}'))),
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"resourceVersion":"1"}}'))),
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"uid":"1"}}'))),
        (await observe(c.patch(obj, raw_patch(MERGE, b"[]"))))[:3],
        (await observe(c.patch(obj, raw_patch(MERGE, b"{"))))[:3],
        (await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":"x"}'))))[:3],
        (await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"labels":{"a":1}}}'))))[:3],
        (await observe(c.patch(obj, raw_patch(STRATEGIC, b'{"metadata":{"finalizers":"x"}}'))))[:3],
        (await observe(c.patch(obj, raw_patch(JSON, b'[{"op":"add","path":"/metadata","value":5}]'))))[:3],
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"resourceVersion":""}}'))),
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"uid":null}}'))),
        (await observe(c.patch(obj, raw_patch(MERGE, b'{"kind":"Secret"}'))))[:4],
        (await observe(c.patch(obj, raw_patch(MERGE, b'{"apiVersion":"v2"}'))))[:4],
    ]


async def patches_of_custom_resources(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(widget(ns, spec={"a": 1, "plain": [{"name": "x", "value": "1"}]}))
    lists = b'{"spec":{"plain":[{"name":"y"}]}}'
    return [
        await observe(c.patch(obj, raw_patch(MERGE, lists))),
        await observe(c.patch(obj, raw_patch(STRATEGIC, lists))),
        await observe(
            c.patch(obj, raw_patch(JSON, b'[{"op":"add","path":"/spec/plain/-","value":{"name":"z"}}]'))
        ),
        await observe(c.patch(obj, raw_patch(MERGE, b'{"metadata":{"generation":50}}'))),
        await observe(c.patch(obj, raw_patch(MERGE, b'{"status":{"a":1}}'))),
    ]


async def patches_with_a_lock(c: Backend, ns: str) -> list[Observation]:
    old = await c.create(widget(ns, spec={"a": 1}))
    new = old.deep_copy()
    new.spec = {"a": 2}
    return [
        await observe(c.patch(new, merge_from(old, optimistic_lock=True))),
        await observe(c.patch(new, merge_from(old, optimistic_lock=True))),
        await observe(c.status.patch(new, merge_from(old, optimistic_lock=True))),
    ]


async def strategic_patches_of_lists(c: Backend, ns: str) -> list[Observation]:
    await c.create(pod(ns, containers=[{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:1"}]))
    patched = await c.patch(
        pod(ns), raw_patch(STRATEGIC, b'{"spec":{"containers":[{"name":"two","image":"i:2"}]}}')
    )
    return [[each.image for each in patched.spec.containers or ()]]
