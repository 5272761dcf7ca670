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
from controller_runtime.simtest import Event, Process, Simulation

from pkg import features
from pkg.apis.config.v1alpha1 import V2_3
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.administrators import Administrators
from testkit.sim.cluster import world
from testkit.sim.kills import Kills
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
KINDS: Final = ("jobsets", "podgroups", "trainjobs", "configmaps", "secrets")


class Hits:
    """Chooses the first write of each kind, and then some writes, before they are sent and when they arrive."""

    def __init__(self, sim: Simulation) -> None:
        self._rng = random.Random(f"{sim.seed}/kills")
        self.counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        """The writes at which managers were killed, by whether they had arrived."""
        self.have_ended = False

    def __call__(self, process: Process, request: Request, arrived: bool) -> bool:
        parts, hits = request.path.strip("/").split("/"), self.counts[arrived]
        kind = next((each for each in KINDS if each in parts), "")
        if self.have_ended or not process.name.startswith("manager") or request.method == "GET" or not kind:
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
    hits, sizes = Hits(sim), Sizes(sim)
    kills = Kills(sim, hits)
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
        hits.have_ended = True
        kills.release()
        await end.check(sim)
        assert sizes.resized
        assert all(hits.counts.values())

    sim.finally_(check)
    sim.finally_(check_managers)


test_a_suspended_train_job_is_resized = simtest.simulate(
    seeds=5, first=7000, minutes=6.0, faults=8.0, actions=1.0
)(scenario)
