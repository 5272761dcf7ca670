# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One life of a cluster: its size, its server, its processes, its random steps (actions and faults), and the checks."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, Unpack

import anyio

from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import Event, Namespace
from controller_runtime.client import LiveClient
from controller_runtime.fake.storage import Storage
from controller_runtime.fake.watches import Event as Change
from controller_runtime.machinery import Object
from controller_runtime.manager import Manager, Options
from controller_runtime.rest import Config, RESTMapper

from .admission import Webhooks
from .loop import LOOP_START, Process, SimLoop
from .network import Network, SimulatedTransport, enter
from .rules import Rules
from .sealed import EPOCH
from .server import MANAGER, SimulatedServer

_BURST_LENGTH: Final = 6.0
"""Average seconds from the beginning of a burst to a step in it. A burst is a time with many steps."""
_IN_BURSTS: Final = 0.75
"""The fraction of the steps that happen in bursts."""
Setup = Callable[[Manager], Awaitable[None]]
Check = Callable[["Simulation"], Awaitable[None]]
Act = Callable[["Simulation", random.Random], Awaitable[None]]
_CRASH_LOOP: Final = 1.0
_BURSTS: Final = 4


def options(**others: Any) -> Options:
    """Return options for a simulated manager: it elects a leader and has no servers. ``others`` replace these options.

    Leases last longer than by default. Otherwise a life would spend most of its time on renewing them.
    """
    given: dict[str, Any] = {
        "leader_election": True,
        "leader_election_id": "simulated",
        "leader_election_namespace": "default",
        "lease_duration": 30.0,
        "renew_deadline": 20.0,
        "retry_period": 5.0,
        "metrics_bind_address": "0",
        "health_probe_bind_address": "0",
    }
    return Options(**given | others)


OPTIONS: Final = options()


class Size(TypedDict, total=False):
    """How much happens in a life."""

    minutes: float
    """Length of the life in virtual minutes; ten by default."""
    faults: float
    """Average number of faults; twelve by default."""
    actions: float
    """The fraction of the users' actions that are performed, from 0 to 1; 1 by default."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: ``cause`` makes it happen and ends it again."""

    name: str
    cause: Act
    of_webhooks: bool = False
    """True if the fault happens only in simulations with webhooks."""


@dataclass(frozen=True, slots=True)
class Step:
    """A user's action or a fault, and when it happens."""

    at: float
    name: str
    seed: int
    """The seed of the step's own random generator, so that its numbers do not depend on other steps."""

    def __str__(self) -> str:
        return f"t={self.at:8.3f}  {self.name} ({self.seed})"


@dataclass(slots=True)
class Line:
    """One line of the timeline."""

    at: float
    actor: str
    text: str
    state: int = field(default=0, repr=False)
    """The loop's digest when the line was added."""

    def __str__(self) -> str:
        return f"{self.at:10.4f}  {self.actor:16} {self.text}"


def spread(
    rng: random.Random, name: str, times: float, length: float, bursts: Sequence[float]
) -> Iterable[Step]:
    """Yield about ``times`` steps at random times within ``length`` seconds.

    Most of them are in bursts, because real faults often come together.
    """
    for _ in range(int(times) + (rng.random() < times % 1)):
        at = rng.random() * length
        if rng.random() < _IN_BURSTS:
            at = min(length, rng.choice(bursts) + rng.expovariate(1 / _BURST_LENGTH))
        yield Step(round(at, 3), name, rng.getrandbits(32))


@dataclass
class _Registered:
    """The managers, actions and checks of a scenario."""

    setup: Setup | None = None
    replicas: int = 1
    options: Options = OPTIONS
    actions: dict[str, tuple[Act, float]] = field(default_factory=dict)
    actors: list[tuple[str, Check]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    has_webhooks: bool = False


class Simulation:
    """A cluster in memory, and the managers under test."""

    def __init__(
        self, seed: int, loop: SimLoop, known_faults: Sequence[Fault] = (), **size: Unpack[Size]
    ) -> None:
        self.seed = seed
        self.loop = loop
        self.minutes = size.get("minutes", 10.0)
        self.faults = size.get("faults", 12.0)
        self.actions = size.get("actions", 1.0)
        self.timeline: list[Line] = []
        self.world = random.Random(f"{seed}/world")
        storage = Storage(now=lambda: datetime.fromtimestamp(loop.time() + EPOCH, UTC))
        self.server = SimulatedServer(storage, random.Random(f"{seed}/server"))
        self.failures: list[BaseException] = []
        self.rules = Rules(self.server, loop.time, self.failures, self.on_change)
        self.network = Network(
            self.server,
            random.Random(f"{seed}/network"),
            self.record,
            observers=self.rules.observers,
        )
        self.webhooks = Webhooks(self.server, random.Random(f"{seed}/webhooks"))
        self.processes: dict[str, Process] = {}
        self.managers: dict[str, Manager] = {}
        self._known_faults = known_faults
        self._registered = _Registered()
        self._digest = hashlib.sha256()
        self._clients: dict[str, LiveClient] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self.server.serve(Lease, Event)

    # Called by scenarios.

    def serve(self, *kinds: type[Object]) -> None:
        """Serve kinds as their models describe them."""
        self.server.serve(*kinds)

    def manager(self, setup: Setup, *, replicas: int = 2, options: Options = OPTIONS) -> None:
        """Run ``replicas`` managers, of which one leads. ``setup`` is called with each manager before it starts."""
        registered = self._registered
        registered.setup, registered.replicas, registered.options = setup, replicas, options

    def admission(self, *configurations: Mapping[str, Any]) -> None:
        """Let the managers' webhooks review writes, as the configurations define.

        Before that, call :meth:`serve` for the kinds in the rules of the webhooks.
        """
        self._registered.has_webhooks = True
        self.webhooks.configure(configurations)

    def action(self, act: Act, *, times: float = 5.0, name: str = "") -> None:
        """Let users perform ``act`` about ``times`` times in a life. ``act`` gets its own random generator."""
        self._registered.actions[name or act.__name__] = (act, times)

    def actor(self, run: Check, name: str = "") -> None:
        """Run another part of the cluster for the whole life, such as kubelets or a controller that is not tested."""
        self._registered.actors.append((name or run.__name__, run))

    def on_change(self, check: Callable[[Change], None]) -> None:
        """Call ``check`` with every change of an object. It must raise AssertionError if the change is wrong."""

        def look(event: Change) -> None:
            try:
                check(event)
            except AssertionError as error:
                self.failures.append(error)

        self.server.history.listeners.append(look)

    def finally_(self, check: Check) -> None:
        """Call ``check`` at the end of the life, some time after the last fault."""
        self._registered.checks.append(check)

    # Called by the parts of the simulation.

    def record(self, actor: str, text: str) -> None:
        """Add a line to the timeline."""
        self.timeline.append(Line(self.loop.time() - LOOP_START, actor, text, self.loop.digest))
        self._digest.update(f"{self.loop.time():.6f}|{actor}|{text}\n".encode())

    def client(self, user: str = "user") -> LiveClient:
        """Return a client for a user who is not a manager. Network faults do not affect this client."""
        if user not in self._clients:
            transport = _Direct(self, user)
            self._clients[user] = LiveClient(transport, RESTMapper(transport))
        return self._clients[user]

    def connect(self, name: str) -> SimulatedTransport:
        """Return a connection of the process ``name`` beside that of its manager. Network faults affect it, too.

        It is for a part of the program that does not use the manager's client. The rules for writes of managers do not
        apply to it.
        """
        return SimulatedTransport(self.network, Process(name), MANAGER)

    def kill(self, name: str) -> None:
        """End a process as SIGKILL does: none of its callbacks runs any more. The supervisor starts a new process."""
        process = self.processes.get(name)
        if process is not None and not process.dead:
            process.kill()
            self.record(name, "killed")

    def stop(self, name: str) -> None:
        """Ask a manager to stop, as a rollout does. The supervisor starts a new process."""
        process, manager = self.processes.get(name), self.managers.get(name)
        if process is not None and manager is not None and not (process.dead or process.ended.is_set()):
            self.rules.leases.stop(process)
            self.record(name, "stopped")
            manager.stop()

    @property
    def digest(self) -> str:
        """A hash of everything that happened."""
        whole = self._digest.copy()
        whole.update(f"{self.loop.digest}".encode())
        return whole.hexdigest()

    # A life.

    def plan(self) -> list[Step]:
        """Return the random steps of this life, sorted by time."""
        rng = random.Random(f"{self.seed}/plan")
        length: float = self.minutes * 60.0
        steps: list[Step] = []
        bursts = [rng.random() * length * 0.7 for _ in range(_BURSTS)]
        for name, (_, times) in self._registered.actions.items():
            steps += spread(rng, name, times * self.actions, length * 0.8, bursts)
        faults = self._faults()
        for fault in faults:
            steps += spread(rng, f"fault: {fault.name}", self.faults / len(faults), length * 0.8, bursts)
        return sorted(steps, key=lambda step: step.at)

    async def live(self, steps: Sequence[Step]) -> None:
        """Start the managers and the actors, do the steps, give the cluster time to settle, and run the checks."""
        await self.client().create(
            Namespace.from_dict({"metadata": {"name": "default", "finalizers": ["kubernetes"]}})
        )
        for name, actor in self._registered.actors:
            self._spawn(name, actor)
        for number in range(self._registered.replicas if self._registered.setup else 0):
            self._spawn("supervision", functools.partial(Simulation._supervise, name=f"manager-{number}"))
        self._spawn("rules", lambda sim: sim.rules.watch_caches())
        began = self.loop.time()
        for step in steps:
            await anyio.sleep(max(0.0, began + step.at - self.loop.time()))
            self._raise_failures()
            await self._do(step)
        await anyio.sleep(max(0.0, began + self.minutes * 60.0 - self.loop.time()))
        self._raise_failures()
        for check in self._registered.checks:
            await check(self)
        await self.rules.check_rest()
        self._raise_failures()

    def _faults(self) -> Sequence[Fault]:
        return [
            fault for fault in self._known_faults if self._registered.has_webhooks or not fault.of_webhooks
        ]

    async def _do(self, step: Step) -> None:
        self.record("plan", str(step.name))
        rng = random.Random(step.seed)
        fault = next((fault for fault in self._faults() if step.name == f"fault: {fault.name}"), None)
        act = fault.cause if fault is not None else self._registered.actions[step.name][0]
        self._spawn(step.name, lambda sim: act(sim, rng))

    def _spawn(self, name: str, work: Check) -> None:
        """Run ``work`` in a task. If it raises an error, the life fails."""
        task = self.loop.create_task(self._guard(name, work), context=self.network.home.copy())
        self._tasks.append(task)

    async def _guard(self, name: str, work: Check) -> None:
        try:
            await work(self)
        except Exception as error:
            error.add_note(f"in {name}")
            self.failures.append(error)

    def _raise_failures(self) -> None:
        if self.failures:
            raise self.failures[0]

    async def _supervise(self, name: str) -> None:
        """Run a manager, and start a new one whenever a manager ends, as a Deployment does."""
        while True:
            process = self.processes[name] = Process(name)
            process.drift = self.world.uniform(-0.2, 0.2)
            process.rate = self.world.uniform(-0.001, 0.001)
            task = self.loop.create_task(self._run_manager(process), context=enter(process))
            self._tasks.append(task)
            task.add_done_callback(functools.partial(_note_end, process))
            await process.ended.wait()
            if task.done() and not task.cancelled():
                error = task.exception()
                if error is None:
                    self.rules.leases.ended(process)
                else:
                    self.record(process.name, f"ended: {error}")
                    self.rules.see_end(process.name, error)
            await anyio.sleep(_CRASH_LOOP + self.world.random())

    async def _run_manager(self, process: Process) -> None:
        transport = SimulatedTransport(self.network, process, MANAGER)
        manager = Manager(Config("https://simulation"), self._registered.options, transport=transport)
        transport.may_write, transport.unanswered = manager.may_write, manager.note_unanswered
        assert self._registered.setup is not None  # noqa: S101 -- else no manager is started
        self.rules.follow(process, manager)
        if self._registered.has_webhooks:
            manager.webhook_server = self.webhooks.listen(process, copy_context(), lambda: manager.synced)
        async with manager:
            await self._registered.setup(manager)
            self.managers[process.name] = manager
            self.record(process.name, "started")
            await manager.start()


def _note_end(process: Process, _: asyncio.Task[None]) -> None:
    process.ended.set()


class _Direct:
    """A RoundTripper without network faults, for users and for simulated controllers that are not under test."""

    def __init__(self, simulation: Simulation, user: str) -> None:
        self._simulation = simulation
        self._user = user

    async def send(self, request: Any) -> Any:
        await anyio.sleep(self._simulation.world.random() * 0.002)
        server = self._simulation.server
        response = await server.handle(request, self._user, server.replicas[0])
        if request.method != "GET":
            self._simulation.record(self._user, f"{request.method} {request.path} -> {response.status}")
        return response
