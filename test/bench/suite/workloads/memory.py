# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Memory that 20,000 cached pods of 6 KB take above the process without them, beside dicts of the same pods."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import psutil
from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.rest import FakeResponse, FakeTransport
from ctrl_testkit import sample_pods as pods
from harness import figures, measure

OBJECTS: Final = 20_000
_MIB: Final = 1024 * 1024


async def run(rounds: int) -> list[figures.Figure]:
    """Measure in new processes for each round, and return the figures."""
    ours: list[dict[str, float]] = []
    dicts: list[dict[str, float]] = []
    for _ in range(rounds):
        ours.append(measure.in_child("-m", "workloads.memory", "cache"))
        dicts.append(measure.in_child("-m", "workloads.memory", "dicts"))
    return [
        figures.figure(
            f"memory.{name}",
            unit,
            [each[name] for each in ours],
            alternative=("dicts", [each[name] for each in dicts]),
            target=target,
        )
        for name, unit, target in (("rss", "MiB", "≤ 130"), ("collection", "ms", ""))
    ]


async def _measure(how: str) -> dict[str, float]:
    """Return the growth in MiB, and the milliseconds that a full garbage collection takes afterwards."""
    process = psutil.Process()
    kept: list[Any] = []
    async with anyio.create_task_group() as tasks:
        reader = cache.Cache(FakeTransport(lambda _: FakeResponse(lines=_lines())))
        await tasks.start(reader.start)
        gc.collect()
        before = process.memory_info().rss
        if how == "cache":
            await reader.get_informer(Pod)
            await reader.wait_for_sync()
        else:
            for number in range(OBJECTS):
                decoded = json.loads(pods.line(number))["object"]
                del decoded["metadata"]["managedFields"]
                kept.append(decoded)
        clock = measure.Clock()
        gc.collect()
        collection = clock.read().cpu * 1000
        after = process.memory_info().rss
        tasks.cancel_scope.cancel()
    return {"rss": (after - before) / _MIB, "collection": collection}


async def _lines() -> AsyncIterator[bytes]:
    for number in range(OBJECTS):
        yield pods.line(number)
    end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    yield json.dumps({"type": "BOOKMARK", "object": end}).encode()
    await anyio.sleep_forever()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(_measure, sys.argv[1])))
