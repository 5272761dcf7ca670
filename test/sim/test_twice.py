# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What the manager remembers only saves requests: a manager that is killed at every step leaves the same objects.

A script of users' actions runs twice. In the second run the manager is killed before and after each of its writes,
and soon after randomly chosen changes of objects, before or after its watches report them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, Final

import anyio
import msgspec
import pytest
from controller_runtime import simtest
from controller_runtime.machinery import Object
from controller_runtime.rest import Request
from controller_runtime.simtest import Event as Change
from controller_runtime.simtest import Process, Simulation, is_fenced_write

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.sim import runtimes
from testkit.sim import script as actions
from testkit.sim.cluster import world
from testkit.sim.kills import Kills
from testkit.sim.script import Action

Document = dict[str, Any]
MANAGER: Final = "manager-1"
_PASSING: Final = re.compile(rb'"(uid|resourceVersion|lastTransitionTime|time)":"[^"]*"|[0-9TZ:.-]{20,}Z')
_QUIET: Final = 75.0
"""After so many seconds without a change or a kill the cluster is at rest; pods run for a shorter time."""
_LONGEST: Final = 3600.0
_GANG: Final = TrainingRuntime.from_dict(
    {"metadata": {"name": "gang", "namespace": "default"}, "spec": runtimes.SPECS["gang"]}
)
# A killed process leaves coroutines of tasks that have not started.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1800),  # a busy machine takes several times as long
]
WHOLE: Final[tuple[type[Object], ...]] = (TrainJob, JobSet, PodGroup, TrainingRuntime)


class Disturbance:
    """Kills the manager before a write is sent, when the next attempt at it arrives at the server, and around changes.

    A third attempt at the same write is not disturbed, so that each write is made in the end.
    """

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.seed}/kills")
        self._tried: dict[tuple[str, str, bytes], int] = {}
        self.last = 0.0
        self.count = 0
        Kills(sim, self._is_hit)
        sim.on_change(self._see)

    def again(self) -> None:
        """Forget the writes so far: an equal write belongs to another action from now on, and is disturbed again."""
        self._tried.clear()

    def _is_hit(self, process: Process, request: Request, arrived: bool) -> bool:
        is_hit = process.name == MANAGER and is_fenced_write(request) and self._attempt(request, int(arrived))
        if is_hit:
            self._note()
        return is_hit

    def _attempt(self, request: Request, number: int) -> bool:
        drawn = "/secrets" in request.path  # each attempt draws new keys
        key = request.method, request.path, b"" if drawn else _PASSING.sub(b"", request.body or b"")
        if self._tried.get(key, 0) != number:
            return False
        self._tried[key] = number + 1
        return True

    def _see(self, event: Change) -> None:
        self.last = self._sim.loop.time()
        if event.table.properties.gvk.kind not in ("Lease", "Event") and self._rng.random() < 0.3:
            self._sim.loop.call_later(self._rng.random() * 0.05, self._kill)

    def _kill(self) -> None:
        self._note()
        self._sim.kill(MANAGER)

    def _note(self) -> None:
        self.count += 1
        self.last = self._sim.loop.time()


def one_by_one(seed: int) -> list[list[Action]]:
    """Return the actions of a script as bursts of one action each; every burst is followed by a pause."""
    return [[action] for action in actions.script(seed)]


def lived(
    script: Callable[[int], list[list[Action]]], seed: int, profile: str, *, killed: bool
) -> tuple[list[Document], int]:
    """Return the objects after each burst of actions, and how often the manager was killed."""
    states: list[Document] = []
    made: list[Disturbance] = []

    async def play(sim: Simulation) -> None:
        last = 0.0

        def see(event: Change) -> None:
            nonlocal last
            if event.table.properties.gvk.kind not in ("Lease", "Event"):
                last = sim.loop.time()

        sim.on_change(see)
        for runtime in (*actions.runtimes("default"), _GANG):
            await sim.client().create(runtime)
        kills = Disturbance(sim) if killed else None
        made.extend([kills] if kills else [])
        for burst in script(seed):
            for action in burst:
                await actions.perform(sim.client(), "default", action)
            until, last = sim.loop.time() + _LONGEST, sim.loop.time()
            while sim.loop.time() < max(last, kills.last if kills else 0.0) + _QUIET:
                assert sim.loop.time() < until, "the cluster does not come to rest"
                await anyio.sleep(5.0)
            if kills:
                kills.again()
            found = {kind: sim.server.objects(kind) for kind in actions.KINDS}
            gangs = {each["metadata"]["name"]: each["spec"] for each in sim.server.objects(PodGroup)}
            whole = _whole(sim) if script is one_by_one else {}
            states.append(actions.state(found) | {"gangs": gangs} | whole)

    def scenario(sim: Simulation) -> None:
        world(sim, pods_fail=0.0, version=profile, alone=True)
        sim.finally_(play)

    outcome = simtest.run(scenario, seed, steps=[], minutes=0.5, faults=0.0)
    if outcome.failure is not None:
        raise outcome.failure
    return states, made[0].count if made else 0


def _whole(sim: Simulation) -> Document:
    return {
        f"{kind.gvk.kind} {each['metadata']['name']}": actions.equal_part(each)
        for kind in WHOLE
        for each in sim.server.objects(kind)
    }


@pytest.mark.parametrize("script", [one_by_one, actions.moves])
@pytest.mark.parametrize("profile", ["2.1", "2.3"])
@pytest.mark.parametrize("seed", range(3))
def test_a_manager_that_is_killed_at_every_step_leaves_the_same_objects(
    seed: int, profile: str, script: Callable[[int], list[list[Action]]]
) -> None:
    wanted, _ = lived(script, seed, profile, killed=False)
    found, kills = lived(script, seed, profile, killed=True)
    assert kills > 20
    for number, (left, right) in enumerate(zip(found, wanted, strict=True)):
        differ = [key for key in left | right if left.get(key) != right.get(key)]
        shown = {key: {"killed": left.get(key), "not": right.get(key)} for key in differ}
        assert not differ, f"after {script(seed)[: number + 1]}: {msgspec.json.encode(shown).decode()}"
