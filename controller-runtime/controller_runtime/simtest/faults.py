# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The faults of a life. Each is one function, which causes the fault and also ends it."""

from __future__ import annotations

import random
from typing import Final

import anyio

from controller_runtime.apis.core.v1 import Event
from controller_runtime.fake.storage import DeletionSettings
from controller_runtime.fake.watches import ServedWatch

from .leases import LeaderWatcher
from .server import MANAGER
from .simulation import Act, Fault, Simulation


def _some_manager(sim: Simulation, rng: random.Random) -> str:
    names = sorted(name for name in sim.processes if name.startswith("manager-"))
    return rng.choice(names) if names else ""


async def _kill(sim: Simulation, rng: random.Random) -> None:
    await anyio.sleep(rng.random())
    sim.kill(_some_manager(sim, rng))


async def _pause(sim: Simulation, rng: random.Random) -> None:
    process = sim.processes.get(_some_manager(sim, rng))
    if process is not None:
        process.paused = True
        sim.record(process.name, "paused")
        await anyio.sleep(rng.choice([0.5, 5.0, 20.0, 40.0]))
        sim.loop.resume(process)
        sim.record(process.name, "resumed")


async def _stop(sim: Simulation, rng: random.Random) -> None:
    sim.stop(_some_manager(sim, rng))


async def _roll_out(sim: Simulation, rng: random.Random) -> None:
    """Stop managers one after the other; stop each new leader at the moment when it acquires the lease."""
    for _ in range(rng.randint(2, 4)):
        sim.stop(_some_manager(sim, rng))
        watcher = LeaderWatcher()
        sim.network.observers.append(watcher)
        with anyio.move_on_after(40.0):
            name = await watcher.new_leader()
            await anyio.sleep(rng.random() * 0.01)
            sim.stop(name)
        sim.network.observers.remove(watcher)


async def _expire_events(sim: Simulation, _: random.Random) -> None:
    """Delete all events, as a server does an hour after they were written."""
    table = sim.server.table(Event)
    for key in list(table.rows):
        sim.server.storage.delete(table, key, DeletionSettings())


async def _cut_watches(sim: Simulation, rng: random.Random) -> None:
    part = rng.choice([0.3, 1.0])
    sim.server.watches.cut(lambda _: rng.random() < part)


async def _compact(sim: Simulation, rng: random.Random) -> None:
    sim.server.history.compact(keep=rng.choice([0, 5]))
    sim.server.watches.cut(lambda _: rng.random() < 0.5)


async def _lag(sim: Simulation, rng: random.Random) -> None:
    replica, seconds = rng.choice(sim.server.replicas), rng.choice([0.5, 2.0, 10.0])
    with replica.lags.during(lambda: seconds * rng.random()):
        await anyio.sleep(rng.uniform(5, 40))


async def _slow_watches(sim: Simulation, rng: random.Random) -> None:
    seconds = rng.choice([0.05, 0.5, 3.0])
    with sim.server.watches.delays.during(lambda _: seconds * rng.random()):
        await anyio.sleep(rng.uniform(5, 30))


async def _silence(sim: Simulation, rng: random.Random) -> None:
    """Hold back the lines of all watches of one kind on one replica for a while; the watches stay open."""
    kind = rng.choice(sorted(str(table.resource.group_resource) for table in sim.server.tables.values()))
    replica, until = rng.choice(sim.server.replicas), sim.loop.time() + rng.choice([5.0, 30.0, 75.0])

    def delay(watch: ServedWatch) -> float:
        silent = watch.view is replica and str(watch.table.resource.group_resource) == kind
        return max(0.0, until - sim.loop.time()) if silent else 0.0

    with sim.server.watches.delays.during(delay):
        await anyio.sleep(max(0.0, until - sim.loop.time()))


async def _cut_off(sim: Simulation, rng: random.Random) -> None:
    name = _some_manager(sim, rng)
    sim.network.cut_off.add(name)
    sim.server.watches.cut(lambda _: True)
    await anyio.sleep(rng.choice([3.0, 12.0, 30.0]))
    sim.network.cut_off.discard(name)


async def miss_changes(sim: Simulation, seconds: float) -> None:
    """Make caches miss changes, so that they must list again.

    Watches do not send changes for ``seconds``; then the changes are compacted and the watches are cut.
    """
    until = sim.loop.time() + seconds
    with sim.server.watches.delays.during(lambda _: max(0.0, until - sim.loop.time())):
        await anyio.sleep(seconds * 0.99)
        sim.server.history.compact()
        sim.server.watches.cut()


async def _miss_changes(sim: Simulation, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 5)):
        await miss_changes(sim, rng.choice([0.05, 0.5, 3.0]))
        await anyio.sleep(rng.uniform(1.0, 8.0))


def _network_fault(name: str) -> Act:
    async def cause(sim: Simulation, rng: random.Random) -> None:
        setattr(sim.network.faults, name, rng.choice([0.05, 0.3, 0.9]))
        await anyio.sleep(rng.uniform(2, 20))
        setattr(sim.network.faults, name, 0.0)

    return cause


async def _drift(sim: Simulation, rng: random.Random) -> None:
    process = sim.processes.get(_some_manager(sim, rng))
    if process is not None:
        process.drift += rng.choice([-30.0, -2.0, 2.0, 30.0])


async def _forbid(sim: Simulation, rng: random.Random) -> None:
    watched = {watch.table for watch in sim.server.watches.open_watches}
    tables = watched if rng.random() < 0.7 else set()
    resources = sorted(
        table.resource.group_resource for table in sim.server.tables.values() if table in tables or not tables
    )
    verb, resource = rng.choice(["list", "watch", "patch", "*"]), rng.choice(resources)
    entry = (MANAGER, verb, resource)
    sim.server.denied.add(entry)
    if rng.random() < 0.5:
        sim.server.watches.cut(lambda watch: watch.table.resource.group_resource == resource)
    await anyio.sleep(rng.uniform(1, 15))
    sim.server.denied.discard(entry)


async def _miss(sim: Simulation, rng: random.Random) -> None:
    """Do not serve a custom kind to managers for a while.

    This happens on a real server while it starts, and while the kind's CRD is replaced.
    """
    tables = [table for table in sim.server.tables.values() if table.properties.custom]
    if not tables:
        return
    resource = rng.choice(sorted(table.resource.group_resource for table in tables))
    if resource in sim.server.missing:
        return
    sim.server.missing.add(resource)
    sim.server.watches.cut(lambda watch: watch.table.resource.group_resource == resource)
    await anyio.sleep(rng.uniform(1, 15))
    sim.server.missing.discard(resource)


async def _slow_webhooks(sim: Simulation, rng: random.Random) -> None:
    """Delay reviews. Some delays are longer than the timeout of a webhook."""
    seconds = rng.choice([0.5, 5.0, 15.0])
    with sim.webhooks.delays.during(lambda: seconds * rng.random()):
        await anyio.sleep(rng.uniform(2, 20))


async def _unreachable_webhooks(sim: Simulation, rng: random.Random) -> None:
    sim.webhooks.unreachable += 1
    await anyio.sleep(rng.uniform(1, 15))
    sim.webhooks.unreachable -= 1


FAULTS: Final = (
    Fault("kill", _kill),
    Fault("pause", _pause),
    Fault("stop", _stop),
    Fault("roll out", _roll_out),
    Fault("expired events", _expire_events),
    Fault("cut watches", _cut_watches),
    Fault("compact", _compact),
    Fault("replica behind", _lag),
    Fault("slow watches", _slow_watches),
    Fault("silent watches", _silence),
    Fault("missed changes", _miss_changes),
    Fault("cut off", _cut_off),
    Fault("refused", _network_fault("refused")),
    Fault("unavailable", _network_fault("unavailable")),
    Fault("pages", _network_fault("pages")),
    Fault("lost answers", _network_fault("lost")),
    Fault("late answers", _network_fault("late")),
    Fault("stuck answers", _network_fault("stuck")),
    Fault("garbled answers", _network_fault("garbled")),
    Fault("conflicts", _network_fault("conflicts")),
    Fault("drift", _drift),
    Fault("forbid", _forbid),
    Fault("missing kind", _miss),
    Fault("slow webhooks", _slow_webhooks, of_webhooks=True),
    Fault("unreachable webhooks", _unreachable_webhooks, of_webhooks=True),
)
