# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Watch events of 6 KB pods per CPU second, from the socket through store and handler to the queue.

Another process sends the stream; this one reads it with the product's transport and cache. The alternatives are
``json.loads`` of each line of the same stream, and kubernetes-asyncio's Watch, which makes models of such lines in a
process of its own, without a stream.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from controller_runtime import cache, handler, rest, source, workqueue
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.reconcile import Request
from controller_runtime.rest import request as requests
from ctrl_testkit import sample_pods as pods
from harness import figures, measure

OBJECTS: Final = 2_000
EVENTS: Final = 20_000
_FEW: Final = 400
"""Lines for the alternative that takes milliseconds for each line."""

Handler = Callable[[], handler.EventHandler[Any]]


async def run(rounds: int) -> list[figures.Figure]:
    """Measure, and return the figures."""
    async with _server() as config:

        def ours(how: Handler) -> measure.Arm:
            async def arm(number: int) -> measure.Spent:
                del number
                return await _ingest(config, how())

            return arm

        async def loads(number: int) -> measure.Spent:
            del number
            return await _loads(config)

        arms = {
            "for": ours(handler.EnqueueRequestForObject),
            "owns": ours(lambda: handler.enqueue_request_for_owner(Job, only_controller=True)),
            "watches": ours(lambda: handler.enqueue_requests_from_map_func(_request_of)),
            "json.loads": loads,
            "kubernetes-asyncio": _kubernetes_asyncio,
        }
        spent = await measure.take_turns(rounds, arms)
    rates = {name: [EVENTS / each.cpu for each in used] for name, used in spent.items()}
    rates["kubernetes-asyncio"] = [rate * _FEW / EVENTS for rate in rates["kubernetes-asyncio"]]
    found = [
        figures.figure(
            f"ingest.{name}.vs-{'json' if other == 'json.loads' else 'kubernetes-asyncio'}",
            "events/CPU s",
            rates[name],
            alternative=(other, rates[other]),
            target="≥ 20000" if name == "for" and other == "json.loads" else "",
        )
        for name in ("for", "owns", "watches")
        for other in ("json.loads", "kubernetes-asyncio")
    ]
    walls = (
        [EVENTS / each.wall for each in spent["for"]],
        [EVENTS / each.wall for each in spent["json.loads"]],
    )
    found.append(
        figures.figure("ingest.for.wall", "events/s", walls[0], alternative=("json.loads", walls[1]))
    )
    return found


async def _request_of(pod: Pod) -> list[Request]:
    return [Request.for_object(pod)]


async def _ingest(config: rest.Config, how: handler.EventHandler[Any]) -> measure.Spent:
    """Read the stream through cache and handler; the clock starts when the first event has arrived."""
    clock, delivered, last = measure.Clock(), 0, anyio.Event()
    queue: workqueue.PriorityQueue[Request] = workqueue.PriorityQueue()

    def count(*_: object) -> None:
        nonlocal delivered
        delivered += 1
        if delivered == 1:
            clock.restart()
        elif delivered == EVENTS:
            last.set()

    async with rest.Transport(config) as transport, anyio.create_task_group() as tasks:
        reader = cache.Cache(transport)
        await tasks.start(reader.start)
        counter: cache.LazyHandlerFuncs[Pod] = cache.LazyHandlerFuncs(count, count, count)
        (await reader.get_informer(Pod)).add_event_handler(counter)
        tasks.start_soon(source.Kind(reader, Pod, how).start, queue)
        await last.wait()
        spent = clock.read()
        tasks.cancel_scope.cancel()
    return spent


async def _loads(config: rest.Config) -> measure.Spent:
    clock, seen = measure.Clock(), 0
    async with rest.Transport(config) as transport:
        assert Pod.resource is not None
        watch = requests.watch(Pod.resource, resource_version="0", timeout_seconds=300)
        response = await transport.send(watch)
        async for line in response.lines():
            if seen == 1:
                clock.restart()
            json.loads(line)
            seen += 1
            if seen > EVENTS:
                break
        spent = clock.read()
        await response.close()
    return spent


async def _kubernetes_asyncio(number: int) -> measure.Spent:
    del number  # in a process of its own: its models would slow all garbage collections
    return measure.Spent(*await anyio.to_thread.run_sync(measure.in_child, "-m", "workloads.ingest"))


async def _watch_of_kubernetes_asyncio() -> tuple[float, float]:
    from kubernetes_asyncio import watch

    lines = [pods.line(which, version=2, event="MODIFIED").decode() for which in range(_FEW)]
    watcher = watch.Watch()
    async with watcher._api_client:
        clock = measure.Clock()
        for line in lines:
            watcher.unmarshal_event(line, "V1Pod")
        spent = clock.read()
    return spent.wall, spent.cpu


@asynccontextmanager
async def _server() -> AsyncIterator[rest.Config]:
    process = subprocess.Popen(  # noqa: ASYNC220 it runs for as long as we do
        [sys.executable, "-m", "harness.watchserver", str(OBJECTS), str(EVENTS)],
        cwd=measure.ROOT,
        env=measure.child_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = await anyio.to_thread.run_sync(process.stdout.readline)
        yield rest.Config(f"http://127.0.0.1:{int(port)}")
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(_watch_of_kubernetes_asyncio)))
