# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watches: from the existing objects, from a version, and with selectors."""

from typing import Any

import anyio

from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import MERGE, Backend, raw_patch
from controller_runtime.machinery import Object, metadata_only

from .world import RAW_WIDGET, Observation, Widget, config_map, observe, pod, widget


async def _events(watch: Any, last: str) -> list[Observation]:
    """Return the events of a watch up to the first event of the object named ``last``."""
    found: list[Observation] = []
    with anyio.fail_after(30):
        async with watch:
            async for event in watch:
                if event.object.name != "kube-root-ca.crt":  # made by a controller
                    found.append([event.type, event.object.to_dict()])
                if event.object.name == last:
                    break
    return found


async def _labelled(c: Backend, obj: Object, value: str) -> Any:
    body = b'{"metadata":{"labels":{"n":"%s"}}}' % value.encode()
    return await c.patch(obj, raw_patch(MERGE, body))


async def watch_what_exists_and_every_change(c: Any, ns: str) -> list[Observation]:
    await c.create(config_map(ns, {"a": "1"}, name="b"))
    gone = await c.create(config_map(ns, name="gone"))
    await c.remove(gone)
    await c.create(config_map(ns, name="a"))
    async with c.watch(ConfigMap, namespace=ns, fields={"metadata.name": "b"}) as watch:
        first = await anext(watch)
        await c.patch(first.object, raw_patch(MERGE, b'{"data":{"a":"2"}}'))
        await c.remove(first.object)
        later = [await anext(watch), await anext(watch)]
    return [[event.type, event.object.to_dict()] for event in (first, *later)]


async def watch_from_a_version(c: Any, ns: str) -> list[Observation]:
    made = await c.create(widget(ns, spec={"a": 1}))
    listed = await c.list(Widget, namespace=ns)
    changed = await c.patch(made, raw_patch(MERGE, b'{"spec":{"a":2}}'))
    await c.status.patch(made, raw_patch(MERGE, b'{"status":{"b":1}}'))
    await c.create(widget(ns, name="other"))
    await c.remove(made)
    await c.create(widget(ns, name="last"))
    since = changed.metadata.resource_version
    return [
        await _events(c.watch(Widget, namespace=ns, resource_version=listed.resource_version), "last"),
        await _events(c.watch(RAW_WIDGET, namespace=ns, resource_version=since), "last"),
        await _events(c.watch(metadata_only(Widget), namespace=ns, resource_version=since), "last"),
        await _events(
            c.watch(Widget, namespace=ns, resource_version=since, fields={"metadata.name": "last"}), "last"
        ),
    ]


async def watch_with_a_selector_of_labels(c: Any, ns: str) -> list[Observation]:
    start = (await c.list(ConfigMap, namespace=ns)).resource_version
    made = await c.create(config_map(ns, {"a": "1"}, labels={"n": "1"}))
    await _labelled(c, made, "2")
    await c.patch(made, raw_patch(MERGE, b'{"data":{"a":"2"}}'))
    middle = (await c.list(ConfigMap, namespace=ns)).resource_version
    await _labelled(c, made, "1")
    await _labelled(c, made, "3")
    await c.remove(made)
    await c.create(config_map(ns, name="last", labels={"n": "1"}))
    return [
        await _events(c.watch(ConfigMap, namespace=ns, resource_version=start, labels={"n": "1"}), "last"),
        await _events(c.watch(ConfigMap, namespace=ns, resource_version=middle, labels={"n": "1"}), "last"),
        await _events(c.watch(ConfigMap, namespace=ns, resource_version=middle, labels="n in (1,2)"), "last"),
    ]


async def watch_with_a_selector_of_fields(c: Any, ns: str) -> list[Observation]:
    start = (await c.list(Pod, namespace=ns)).resource_version
    made = await c.create(pod(ns))
    await c.status.patch(made, raw_patch(MERGE, b'{"status":{"phase":"Running"}}'))
    await c.status.patch(made, raw_patch(MERGE, b'{"status":{"phase":"Failed"}}'))
    last = pod(ns)
    last.metadata.name = "last"
    await c.create(last)
    await c.status.patch(last, raw_patch(MERGE, b'{"status":{"phase":"Running"}}'))
    watch = c.watch(Pod, namespace=ns, resource_version=start, fields={"status.phase": "Running"})
    return [[kind, found["metadata"]["name"]] for kind, found in await _events(watch, "last")]


async def watch_with_what_is_not_valid(c: Any, ns: str) -> list[Observation]:
    async def first(watch: Any) -> Observation:
        async with watch:
            with anyio.fail_after(30):
                return await observe(anext(watch))

    return [
        await first(c.watch(ConfigMap, namespace=ns, labels="n==(")),
        await first(c.watch(ConfigMap, namespace=ns, fields={"data.a": "1"})),
        await first(c.watch(Widget, namespace=ns, fields={"spec.a": "1"}, resource_version="1")),
    ]
