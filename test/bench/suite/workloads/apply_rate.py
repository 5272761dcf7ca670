# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies per second by a controller that makes one for each object, beside a bare loop of the same applies.

Both write to the same API server over one transport each, with the same number of applies under way.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import controller_runtime as ctrl
from anyio.streams.memory import MemoryObjectSendStream
from controller_runtime import cache, client, controller, event, handler, rest, source
from controller_runtime.apis.core.v1 import ConfigMap, Namespace, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.envtest import Environment
from harness import figures, measure

OBJECTS: Final = 100
CONCURRENCY: Final = 5
_OWNER: Final = "bench"


def desired(namespace: str, name: str, about: str) -> Secret:
    """Return the Secret that is applied for the object ``about``."""
    return Secret(metadata=ObjectMeta(namespace=namespace, name=name, labels={"about": about}), type="Opaque")


class Applier:
    """Reads an object and applies its child, as a minimal controller does."""

    def __init__(self, writer: client.Client, namespace: str) -> None:
        self.prefix = ""
        self.left = 0
        self.done = anyio.Event()
        self._client = writer
        self._namespace = namespace

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        about = await self._client.get(ConfigMap, request)
        child = desired(self._namespace, f"{self.prefix}-{about.name}", about.name)
        await self._client.apply(child, field_owner=_OWNER, force=True)
        self.left -= 1
        if self.left == 0:
            self.done.set()
        return ctrl.Result()


async def run(rounds: int) -> list[figures.Figure]:
    """Measure on an API server of its own."""
    async with Environment() as environment, rest.Transport(environment.config) as transport:
        live = client.LiveClient(transport, rest.RESTMapper(transport))
        namespace = (await live.create(Namespace(metadata=ObjectMeta(generate_name="bench-")))).name
        names = [f"object-{number:04}" for number in range(OBJECTS)]
        for name in names:
            await live.create(ConfigMap(metadata=ObjectMeta(namespace=namespace, name=name)))
        async with _controller(environment.config, namespace) as (applier, queue):

            async def by_controller(number: int) -> measure.Spent:
                applier.prefix, applier.left, applier.done = f"c{number}", OBJECTS, anyio.Event()
                clock = measure.Clock()
                for name in names:
                    about = ConfigMap(metadata=ObjectMeta(namespace=namespace, name=name))
                    queue.send_nowait(event.GenericEvent(about))
                await applier.done.wait()
                return clock.read()

            async def by_loop(number: int) -> measure.Spent:
                waiting = iter(names)
                clock = measure.Clock()

                async def work() -> None:
                    for name in waiting:
                        child = desired(namespace, f"l{number}-{name}", name)
                        await live.apply(child, field_owner=_OWNER, force=True)

                async with anyio.create_task_group() as tasks:
                    for _ in range(CONCURRENCY):
                        tasks.start_soon(work)
                return clock.read()

            arms = {"controller": by_controller, "loop": by_loop}
            # The time of an apply varies with the API server, so that a stable median needs more rounds.
            spent = await measure.take_turns(12 * rounds, arms)
    rates = {name: [OBJECTS / each.wall for each in used] for name, used in spent.items()}
    costs = {name: [each.cpu / OBJECTS * 1e6 for each in used] for name, used in spent.items()}
    return [
        figures.figure(
            "apply_rate.rate",
            "applies/s",
            rates["controller"],
            alternative=("bare loop", rates["loop"]),
            target="ratio ≥ 0.9",
        ),
        figures.figure(
            "apply_rate.cpu", "CPU µs/apply", costs["controller"], alternative=("bare loop", costs["loop"])
        ),
    ]


@asynccontextmanager
async def _controller(
    config: rest.Config, namespace: str
) -> AsyncIterator[tuple[Applier, MemoryObjectSendStream[event.GenericEvent[ConfigMap]]]]:
    """Run a manager with one controller, which receives objects from a queue."""
    options = ctrl.Options(metrics_bind_address="0", cache=cache.Options(default_namespaces=(namespace,)))
    mgr = ctrl.Manager(config, options)
    applier = Applier(mgr.client, namespace)
    send, receive = anyio.create_memory_object_stream[event.GenericEvent[ConfigMap]](OBJECTS)
    (
        ctrl.new_controller_managed_by(mgr)
        .named(f"bench-{secrets.token_hex(4)}")
        .watches_raw_source(source.Channel(receive, handler.EnqueueRequestForObject()))
        .with_options(controller.Options(max_concurrent_reconciles=CONCURRENCY))
        .complete(applier)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        yield applier, send
        mgr.stop()
        send.close()
    receive.close()
