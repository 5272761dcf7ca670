# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Updates, and the status subresource."""

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import (
    ConfigMap,
)
from controller_runtime.client import MERGE, Backend, raw_patch

from .world import RAW_WIDGET, Gadget, Observation, Widget, config_map, job, lease, observe, pod, widget


async def update_and_its_conflicts(c: Backend, ns: str) -> list[Observation]:
    first = await c.create(config_map(ns, {"a": "1"}))
    second = first.deep_copy()
    second.data = {"a": "2"}
    observations = [await observe(c.update(second)), await observe(c.update(second))]
    newest = await c.get(ConfigMap, first.key)
    other = newest.deep_copy()
    other.metadata.uid = "11111111-1111-4111-8111-111111111111"
    return [
        *observations,
        await observe(c.update(newest)),
        (await observe(c.update(other)))[:4],
        await observe(c.update(config_map(ns, {"a": "3"}))),
        await observe(c.update(config_map(ns, name="none"))),
        await observe(c.update(config_map(ns, name="none", resourceVersion="1"))),
        await observe(c.update(config_map(ns, name="none", uid="11111111-1111-4111-8111-111111111111"))),
        await observe(c.update(config_map(ns, {"a": "3"}, resourceVersion="x"))),
        await observe(c.update(config_map("", {"a": "3"}))),
    ]


async def update_without_a_resource_version(c: Backend, ns: str) -> list[Observation]:
    await c.create(widget(ns))
    await c.create(widget(ns, Gadget))
    await c.create(lease(ns, holderIdentity="a"))
    await c.create(job(ns))
    made = await c.create(pod(ns))
    suspended = job(ns).to_dict()
    suspended["spec"]["suspend"] = True
    return [
        await observe(c.update(widget(ns, spec={"a": 1}))),
        await observe(c.update(widget(ns, RAW_WIDGET, spec={"a": 1}))),
        await observe(c.status.update(widget(ns, status={"a": 1}))),
        await observe(c.update(widget(ns, Gadget, spec={"a": 1}))),
        await observe(c.update(widget(ns, name="none"))),
        (await observe(c.update(lease(ns, holderIdentity="b"))))[0],
        (await observe(c.update(lease(ns, holderIdentity="b"), dry_run=True)))[-1],
        await observe(c.get(Lease, (ns, "l"))),
        made.name,
    ]


async def update_of_what_belongs_to_the_server(c: Backend, ns: str) -> list[Observation]:
    made = await c.create(widget(ns, spec={"a": 1}))
    body = made.to_dict()
    body["metadata"] |= {
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "generation": 99,
        "deletionTimestamp": "2020-01-01T00:00:00Z",
    }
    unkeyed = made.to_dict()
    unkeyed["metadata"].pop("uid")
    return [
        await observe(c.update(Widget.from_dict(body))),
        await observe(c.update(Widget.from_dict(unkeyed))),
    ]


async def status_and_spec_apart(c: Backend, ns: str) -> list[Observation]:
    obj = await c.create(widget(ns, spec={"a": 1}))
    obj.spec, obj.status = {"a": 2}, {"b": 2}
    observations = [await observe(c.status.update(obj))]
    obj = await c.get(Widget, obj.key)
    obj.spec, obj.status = {"a": 3}, {"b": 3}
    obj.metadata.labels = {"x": "1"}
    observations.append(await observe(c.update(obj)))
    observations.append(await observe(c.status.update(obj)))
    obj = await c.get(Widget, obj.key)
    patch = raw_patch(MERGE, b'{"metadata":{"labels":{"p":"1"}},"spec":{"a":4},"status":{"c":4}}')
    observations.append(await observe(c.status.patch(obj, patch)))
    observations.append(await observe(c.patch(obj, patch)))
    observations.append(
        await observe(c.status.apply(widget(ns, spec={"z": 1}, status={"d": 5}), field_owner="me"))
    )
    observations.append(await observe(c.apply(widget(ns, spec={"z": 1}, status={"d": 6}), field_owner="me")))
    observations.append(await observe(c.status.get(obj, Widget)))
    return observations


async def status_of_an_object_that_is_not_there(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.status.update(widget(ns))),
        await observe(c.status.patch(widget(ns), raw_patch(MERGE, b'{"status":{}}'))),
        await observe(c.status.apply(widget(ns, status={"a": 1}), field_owner="me")),
        await observe(c.status.get(widget(ns), Widget)),
    ]


async def status_of_kinds_without_the_subresource(c: Backend, ns: str) -> list[Observation]:
    made = await c.create(config_map(ns))
    gadget = await c.create(widget(ns, Gadget, status={"a": 1}))
    locked = await c.create(lease(ns, holderIdentity="a"))
    return [
        await observe(c.status.update(made)),
        await observe(c.status.patch(made, raw_patch(MERGE, b'{"metadata":{"labels":{"a":"1"}}}'))),
        await observe(c.status.apply(config_map(ns), field_owner="me")),
        await observe(c.status.update(gadget)),
        await observe(c.status.patch(gadget, raw_patch(MERGE, b'{"status":{"a":2}}'))),
        await observe(c.status.update(locked)),
        await observe(c.status.update(config_map(ns, name="none"))),
        await observe(c.status.get(gadget, Gadget)),
    ]
