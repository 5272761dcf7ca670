# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads: gets, lists with selectors and pages, and only the metadata."""

from typing import Any, cast

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    Pod,
)
from controller_runtime.client import MERGE, Backend, raw_patch
from controller_runtime.machinery import metadata_only, unstructured

from .world import RAW_WIDGET, Observation, Planet, Strict, Widget, config_map, observe, pod, widget


async def get_what_is_not_there(c: Backend, ns: str) -> list[Observation]:
    return [
        await observe(c.get(ConfigMap, (ns, "none"))),
        await observe(c.get(Widget, (ns, "none"))),
        await observe(c.get(metadata_only(Widget), (ns, "none"))),
        await observe(c.get(Planet, ("", "none"))),
    ]


async def get_without_a_namespace_or_a_name(c: Backend, ns: str) -> list[Observation]:
    await c.create(config_map(ns))
    return [
        await observe(c.get(ConfigMap, ("", "c"))),
        await observe(c.get(unstructured(ConfigMap.gvk), ("", "c"))),
        await observe(c.get(Widget, ("", "c"))),
        await observe(c.get(ConfigMap, (ns, ""))),
        await observe(c.get(metadata_only(ConfigMap), ("", "c"))),
    ]


async def list_with_selectors(c: Backend, ns: str) -> list[Observation]:
    for number in range(3):
        await c.create(config_map(ns, name=f"c{number}", labels={"n": str(number)}))
    await c.create(widget(ns, metadata={"labels": {"n": "1"}}))
    return [
        await observe(c.list(ConfigMap, namespace=ns, labels="n in (0,2)")),
        await observe(c.list(ConfigMap, namespace=ns, labels="n,n!=1", fields={"metadata.name": "c0"})),
        await observe(c.list(ConfigMap, namespace=ns, fields={"data.a": "1"})),
        await observe(c.list(ConfigMap, namespace=ns, labels="n==(")),
        await observe(c.list(Widget, namespace=ns, fields={"metadata.name": "w"})),
        await observe(c.list(Widget, namespace=ns, fields={"spec.a": "1"})),
        await observe(c.list(RAW_WIDGET, namespace=ns, labels={"n": "1"})),
        await observe(c.list(metadata_only(Widget), namespace=ns)),
        await observe(c.list(ConfigMap, namespace=f"{ns}-not")),
    ]


async def list_in_pages(c: Backend, ns: str) -> list[Observation]:
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
        (await observe(c.list(Widget, namespace=ns, continue_token="nonsense")))[:4],
    ]


async def fields_that_pods_are_selected_by(c: Backend, ns: str) -> list[Observation]:
    await c.create(pod(ns, nodeName="n", schedulerName="s"))
    wanted = [
        {"spec.nodeName": "n"},
        {"spec.schedulerName": "other"},
        {"spec.serviceAccountName": "default"},
        {"status.nominatedNodeName": ""},
        {"spec.hostNetwork": "false"},
        {"spec.priority": "0"},
    ]
    observations: list[Observation] = []
    for fields in wanted:
        found = await observe(c.list(Pod, namespace=ns, fields=fields))
        observations.append(len(found) - 1 if found[0] == "list" else found)
    return observations


async def fields_that_a_definition_makes_selectable(c: Backend, ns: str) -> list[Observation]:
    await c.create(widget(ns, Strict, "a", spec={"size": 1, "colour": "red"}))
    await c.create(widget(ns, Strict, "b", spec={"size": 2}))
    wanted = (
        {"spec.colour": "red"},
        {"spec.colour": ""},
        {"spec.size": "2"},
        {"spec.size": "2", "spec.colour": "red"},
    )
    return [
        *[
            [each.name for each in await c.list(Strict, namespace=ns, fields=cast("Any", text))]
            for text in wanted
        ],
        await observe(c.list(Strict, namespace=ns, fields=cast("Any", "spec.code=a"))),
    ]


async def metadata_alone(c: Backend, ns: str) -> list[Observation]:
    await c.create(config_map(ns, {"a": "1"}))
    kind = metadata_only(ConfigMap)
    found = await c.get(kind, (ns, "c"))
    return [
        found.to_dict(),
        await observe(c.patch(found, raw_patch(MERGE, b'{"metadata":{"labels":{"y":"2"}}}'))),
        await observe(c.delete(found)),
    ]
