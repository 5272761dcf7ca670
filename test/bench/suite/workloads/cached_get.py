# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of reading a modelled kind from the cache, beside a copy of a dict, and a model made from a dict."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import anyio
from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.rest import FakeResponse, FakeTransport
from ctrl_testkit import sample_pods as pods
from harness import figures, measure

OBJECTS: Final = 2_000


async def run(rounds: int) -> list[figures.Figure]:
    """Measure, and return the figures."""
    decoded = [json.loads(pods.line(number))["object"] for number in range(OBJECTS)]
    for each in decoded:  # a cache of dicts would drop these fields as well
        del each["metadata"]["managedFields"]
    keys = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in decoded]
    dicts = dict(zip(keys, decoded, strict=True))
    async with anyio.create_task_group() as tasks:
        reader = cache.Cache(FakeTransport(lambda _: FakeResponse(lines=_lines())))
        await tasks.start(reader.start)

        async def get(key: tuple[str, str]) -> object:
            return await reader.get(Pod, key)

        async def deepcopy(key: tuple[str, str]) -> object:
            return copy.deepcopy(dicts[key])

        async def validate(key: tuple[str, str]) -> object:
            return Pod.from_dict(dicts[key])

        def arm(read: Callable[[tuple[str, str]], Awaitable[object]]) -> measure.Arm:
            async def all_of_them(number: int) -> measure.Spent:
                del number
                clock = measure.Clock()
                for key in keys:
                    await read(key)
                return clock.read()

            return all_of_them

        spent = await measure.take_turns(
            rounds, {"get": arm(get), "deepcopy": arm(deepcopy), "validate": arm(validate)}
        )
        tasks.cancel_scope.cancel()
    costs = {name: [each.cpu / OBJECTS * 1e6 for each in used] for name, used in spent.items()}
    return [
        figures.figure(
            "cached_get.vs-deepcopy",
            "CPU µs",
            costs["get"],
            alternative=("deepcopy of a dict", costs["deepcopy"]),
            target="≤ 150",
        ),
        figures.figure(
            "cached_get.vs-validate",
            "CPU µs",
            costs["get"],
            alternative=("model of a dict", costs["validate"]),
        ),
    ]


async def _lines() -> AsyncIterator[bytes]:
    for number in range(OBJECTS):
        yield pods.line(number)
    annotations: dict[str, Any] = {"k8s.io/initial-events-end": "true"}
    end = {"metadata": {"resourceVersion": "9999999", "annotations": annotations}}
    yield json.dumps({"type": "BOOKMARK", "object": end}).encode()
    await anyio.sleep_forever()
