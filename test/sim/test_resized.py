# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""With MutableNumNodes, a suspended TrainJob of the second generation gets another number of nodes, and nothing else.

Users suspend, resize and resume TrainJobs, and managers are killed before and after their writes of every kind.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import anyio
import msgspec
import pytest
from controller_runtime import simtest
from controller_runtime.rest import Request
from controller_runtime.simtest import Event, Observer, Process, Simulation

from pkg import features
from pkg.apis.config.v1alpha1 import V2_3
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.administrators import Administrators
from testkit.sim.cluster import world
from testkit.sim.managers import Writes, check_managers
from testkit.sim.objects import by_uid, controller, is_suspended
from testkit.sim.restchecks import RestChecks
from testkit.sim.snapshots import Snapshots
from testkit.sim.spechistory import SpecHistory
from testkit.sim.users import Users

Document = dict[str, Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1800),  # a busy machine takes several times as long
]
RUNTIMES: Final = ("plain", "local", "mpi", "gang")
OFTEN: Final = 0.1


class Kills(Observer):
    """Kills managers before and after their first write of each kind, and then before and after some writes."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.seed}/kills")
        self._held: Process | None = None
        self._has_ended = False
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        sim.network.observers.append(self)

    def end(self) -> None:
        """Kill no manager any more."""
        self._has_ended = True
        if self._held is not None:
            self._sim.network.cut_off.discard(self._held.name)

    def sends(self, process: Process, request: Request) -> None:
        if self._held is not None and process is not self._held and process.name == self._held.name:
            self._sim.network.cut_off.discard(process.name)
            self._held = None
        if self._held is None and self._is_hit(process, request, self.before):
            self._held = process  # the request is lost with the manager
            self._sim.network.cut_off.add(process.name)
            self._sim.kill(process.name)

    def arrives(self, process: Process, request: Request) -> None:
        if not process.dead and self._is_hit(process, request, self.after):
            self._sim.kill(process.name)  # only the answer is lost

    def _is_hit(self, process: Process, request: Request, hits: Counter[str]) -> bool:
        parts = request.path.strip("/").split("/")
        kind = next(
            (
                each
                for each in ("jobsets", "podgroups", "trainjobs", "configmaps", "secrets")
                if each in parts
            ),
            "",
        )
        if self._has_ended or not process.name.startswith("manager") or request.method == "GET" or not kind:
            return False
        write = f"{request.method} {kind}{'/status' if parts[-1] == 'status' else ''}"
        if hits[write] and self._rng.random() >= OFTEN:
            return False
        hits[write] += 1
        return True


class Sizes:
    """Checks that a TrainJob is resized only while it is suspended, and that all pods of a start have one number."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.resized = 0
        sim.on_change(self.see)

    def see(self, event: Event) -> None:
        """Compare a change of a TrainJob with its former state, and a new pod with its JobSet."""
        kind, new, old = event.table.properties.gvk, event.document, event.before
        if kind == TrainJob.gvk and event.type == "MODIFIED" and old is not None:
            before, after = (each["spec"].get("trainer") or {} for each in (old, new))
            if before.get("numNodes") != after.get("numNodes"):
                self.resized += 1
                both = old["spec"].get("suspend") and new["spec"].get("suspend")
                assert both, f"a running TrainJob is resized: {new['metadata']['name']}"
            rest = ({**each, "numNodes": None} for each in (before, after))
            assert len({msgspec.json.encode(each) for each in rest}) == 1, "another field is changed"
        if kind == JobSet.gvk and event.type == "MODIFIED" and old is not None:
            starts = is_suspended(old) and not is_suspended(new)
            job = by_uid(self._sim, TrainJob, (controller(new) or {}).get("uid", ""))
            if starts and job is not None and not job["spec"].get("suspend"):
                wanted = (job["spec"].get("trainer") or {}).get("numNodes")
                found = {
                    each["name"]: each["template"]["spec"].get("parallelism")
                    for each in new["spec"]["replicatedJobs"]
                }
                # With MPI, the launcher is a node, too, and there is at least one other node.
                launchers = found.get("launcher") or 0
                assert wanted is None or found["node"] == max(wanted - launchers, 1), (
                    f"a JobSet starts with {found}, not {wanted} nodes"
                )


def scenario(sim: Simulation) -> None:
    """Simulate users who resize TrainJobs."""
    cluster = world(sim, version=V2_3, gates={features.MUTABLE_NUM_NODES: True})
    past = SpecHistory(sim)
    Writes(sim)
    users, administrators, snapshots = Users(4), Administrators(cluster), Snapshots(sim, past)
    administrators.register(sim)
    kills, sizes = Kills(sim), Sizes(sim)
    end = RestChecks(users, administrators, past, snapshots)
    sim.on_change(past.see)
    sim.on_change(snapshots.see)
    sim.on_change(lambda event: end.see(sim, event))

    async def create(sim: Simulation, rng: random.Random) -> None:
        name = f"job-{rng.randrange(4)}"
        await users.create(sim, rng, name, rng.choice(RUNTIMES), suspend=rng.random() < 0.6)

    async def resize(sim: Simulation, rng: random.Random, name: str = "") -> None:
        await users.change(sim, rng, name, {"trainer": {"numNodes": rng.choice([1, 2, 3, 4])}})

    async def move(sim: Simulation, rng: random.Random) -> None:
        """Suspend a TrainJob, resize it and resume it, with pauses in which the manager may write."""
        name = f"job-{rng.randrange(4)}"
        await users.change(sim, rng, name, {"suspend": True})
        for _ in range(rng.choice([1, 1, 2])):
            await anyio.sleep(rng.choice([0.0, 1.0, 20.0]) * rng.random())
            await resize(sim, rng, name)
        await anyio.sleep(rng.choice([0.0, 1.0, 20.0]) * rng.random())
        await users.change(sim, rng, name, {"suspend": False})

    sim.action(create, times=20)
    sim.action(resize, times=4)
    sim.action(move, times=40)
    sim.action(users.delete, times=1)

    async def check(sim: Simulation) -> None:
        kills.end()
        await end.check(sim)
        assert sizes.resized
        assert kills.before
        assert kills.after

    sim.finally_(check)
    sim.finally_(check_managers)


test_a_suspended_train_job_is_resized = simtest.simulate(
    seeds=5, first=7000, minutes=6.0, faults=8.0, actions=1.0
)(scenario)
