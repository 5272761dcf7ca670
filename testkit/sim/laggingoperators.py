# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Operators that lag behind: they create pods of owners that were deleted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Object
from controller_runtime.rest import Request
from controller_runtime.simtest import Event, Simulation

from pkg.apis.kai.v2alpha2 import PodGroup
from testkit.sim.objects import by_name, refusals_expected
from testkit.sim.workloads import Notebook, RayCluster, Workloads

Document = dict[str, Any]
_CALM: Final = 12.0
"""Seconds after which the disturbance of a step is over."""
_CACHED: Final = 30.0
"""Seconds after which an owner that was read is cached until its watch reports a change."""


class LaggingOperators:
    """The operators, and the rule that no group is created for an owner whose deletion was reported."""

    def __init__(self, sim: Simulation, workloads: Workloads) -> None:
        self._workloads = workloads
        self._gone: set[str] = set()
        """The uids of owners whose deletion has been reported by watches."""
        self._numbers = itertools.count()
        sim.on_change(self.see)
        workloads.calm += [self.create_pods_late, self.create_pods_late, self.delete_marked]

    def see(self, event: Event) -> None:
        """Check a new group."""
        if event.table.properties.gvk == PodGroup.gvk and event.type == "ADDED":
            owners = {each["uid"] for each in event.document["metadata"].get("ownerReferences") or ()}
            assert not owners & self._gone, f"a group is created for a deleted owner: {event.key.name}"

    async def create_pods_late(self, sim: Simulation, rng: random.Random) -> None:
        """Create pods of a deleted owner. Sometimes the deletion is reported while the owner is being read."""
        kinds: list[type[Object]] = [Job, RayCluster, Notebook, Notebook]
        kind, reads_late = rng.choice(kinds), rng.random() < 0.5
        await anyio.sleep(_CALM)
        first = await self._create(sim, rng, kind, f"first-{next(self._numbers)}")
        await self._workloads.add_pod(sim, rng, first, kind)
        await anyio.sleep(
            5.0
        )  # now the kind is watched; an owner that was read before that may be cached for 10 s
        name = f"late-{next(self._numbers)}"
        with _late_reads(sim, name if reads_late else ""):
            with _late_watches(sim, kind, 0.2 if reads_late else 0.0):
                owner = await self._create(sim, rng, kind, name)
                await self._workloads.add_pod(sim, rng, owner, kind)
                await anyio.sleep(0.1)
            await anyio.sleep(rng.uniform(0.3, 0.8) if reads_late else _CACHED)
            with refusals_expected():
                await sim.client().delete(kind.from_dict(owner), propagation="Background")
            sim.server.collect_garbage()
            await anyio.sleep(2.0)
        self._gone.add(owner["metadata"]["uid"])
        for _ in range(2):
            await self._workloads.add_pod(sim, rng, owner, kind)
            await anyio.sleep(rng.uniform(0.5, 2.0))

    async def delete_marked(self, sim: Simulation, rng: random.Random) -> None:
        """Delete pods within milliseconds after the pod grouper has annotated them with their group."""
        for _ in range(3):
            metadata = {"namespace": "default", "name": f"brief-{next(self._numbers)}"}
            await self._workloads.create_pod(sim, metadata)
            with anyio.move_on_after(5.0):
                while not _is_marked(by_name(sim, Pod, {"metadata": metadata})):  # noqa: ASYNC110
                    await anyio.sleep(rng.random() * 0.01)
            with refusals_expected():
                await sim.client().delete(Pod.from_dict({"metadata": metadata}), grace_period_seconds=0)

    async def _create(self, sim: Simulation, rng: random.Random, kind: type[Object], name: str) -> Document:
        metadata = {"namespace": "default", "name": name}
        spec = self._workloads.spec_of(kind, rng)
        made = await sim.client().create(kind.from_dict({"metadata": metadata, "spec": spec}))
        found = by_name(sim, kind, {"metadata": metadata})
        return found if found is not None else made.to_dict()


def _is_marked(pod: Document | None) -> bool:
    return pod is None or bool(pod["metadata"].get("annotations"))


@contextmanager
def _late_watches(sim: Simulation, kind: type[Object], seconds: float) -> Iterator[None]:
    """Delay the watch events of a kind during the block."""
    table = sim.server.table(kind)
    with sim.server.watches.delays.during(lambda watch: seconds if watch.table is table else 0.0):
        yield


@contextmanager
def _late_reads(sim: Simulation, name: str) -> Iterator[None]:
    """During the block, answer reads of objects with this name after more than a second."""

    def late(request: Request) -> float:
        return 1.4 if request.method == "GET" and name and request.path.endswith(f"/{name}") else 0.0

    sim.network.slow.append(late)
    yield
    sim.network.slow.remove(late)
