# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finished TrainJobs are deleted when their time is over, never earlier, and no other TrainJob is deleted.

Users and administrators change the times. Managers are killed at every deletion, and clocks jump.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio
import msgspec
import pytest
from controller_runtime import simtest
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery.meta import parse_time
from controller_runtime.rest import Request
from controller_runtime.simtest import Observer, Process, Simulation, parse_request

from pkg import features
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim import runtimes
from testkit.sim.administrators import Administrators
from testkit.sim.cluster import world
from testkit.sim.kills import Kills
from testkit.sim.managers import Writes, check_managers
from testkit.sim.objects import by_name, is_true, refusals_expected
from testkit.sim.users import OTHERS, Users

Document = dict[str, Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1800),  # a busy machine takes several times as long
]
FIELD: Final = "ttlSecondsAfterFinished"
TIMES: Final = (None, 0, 5, 70, 200)
RUNTIMES: Final = ("plain", "local")
SKEW: Final = timedelta(seconds=35)
"""The clock of a manager may jump by 30 seconds between its decision and its request."""
LATE: Final = 600.0
"""Seconds after the last fault in which everything that is due must be deleted, also after long back-offs."""


class Deletions(Observer):
    """Checks each TrainJob that a manager deletes, and kills the manager at the first deletions."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._kills: set[tuple[str, bool]] = set()
        """The uids of the TrainJobs at whose deletions managers were killed, and whether the request had arrived."""
        self._policies: dict[str, set[int]] = {name: set() for name in RUNTIMES}
        """All times that a runtime has had: the managers' caches may lag behind."""
        sim.network.observers.append(self)
        Kills(sim, self._is_hit)

    def policy(self, name: str, seconds: int | None) -> None:
        """Record the time of a runtime."""
        if seconds is not None:
            self._policies[name].add(seconds)

    def _deleted(self, request: Request) -> Document | None:
        """Return the TrainJob that a request will delete, or None."""
        if request.method != "DELETE" or "/trainjobs/" not in request.path:
            return None
        parsed = parse_request(request, self._sim.server.tables)
        row = parsed.table.rows.get(parsed.key)
        wanted = json.loads(request.body or b"{}").get("preconditions", {})
        if wanted.keys() != {"uid", "resourceVersion"}:
            self._sim.failures.append(AssertionError("a TrainJob is deleted whatever its version is"))
        found = row.document["metadata"] if row is not None else {}
        same = all(found.get(name) == value for name, value in wanted.items())
        return row.document if row is not None and same else None

    def sends(self, process: Process, request: Request) -> None:
        if (job := self._deleted(request)) is None:
            return
        if (wrong := self._mistake(job)) is not None:
            self._sim.failures.append(AssertionError(f"{wrong}: {job['metadata']['name']}"))

    def _is_hit(self, _: Process, request: Request, arrived: bool) -> bool:
        """Return True for the first deletion of a TrainJob that is sent, and for the first one that arrives after it."""
        job = self._deleted(request)
        hit = ((job or {"metadata": {"uid": ""}})["metadata"]["uid"], arrived)
        if job is None or hit in self._kills or (arrived and (hit[0], False) not in self._kills):
            return False
        self._kills.add(hit)
        return True

    def _mistake(self, job: Document) -> str | None:
        """Return why the calling process must not delete a TrainJob, or None. Its own clock decides."""
        spec, own = job["spec"], job["spec"].get(FIELD)
        ended = [
            each["lastTransitionTime"]
            for each in job.get("status", {}).get("conditions") or ()
            if each["type"] in ("Complete", "Failed") and each["status"] == "True"
        ]
        if not ended or spec.get("managedBy") == OTHERS:
            return "an unfinished TrainJob or one of another controller is deleted"
        times = self._policies[spec["runtimeRef"]["name"]] if own is None else {own}
        if not times:
            return "a TrainJob without a time to live is deleted"
        early = parse_time(ended[0]) + timedelta(seconds=min(times)) - datetime.now(UTC)
        return f"a TrainJob is deleted {early} too early" if early > SKEW else None


def scenario(sim: Simulation) -> None:
    """Simulate users and administrators who set and change times to live."""
    cluster = world(sim, pods_fail=0.3, gates={features.TTL_AFTER_FINISHED: True})
    Writes(sim)
    users, administrators, deletions = Users(4), Administrators(cluster), Deletions(sim)
    administrators.register(sim)

    async def create(sim: Simulation, rng: random.Random) -> None:
        name, runtime = f"job-{rng.randrange(4)}", rng.choice(RUNTIMES)
        managed = {"managedBy": OTHERS} if rng.random() < 0.1 else {}
        spec = {"suspend": rng.random() < 0.2, FIELD: rng.choice(TIMES), **managed}
        await users.create(sim, rng, name, runtime, **spec)

    async def change(sim: Simulation, rng: random.Random) -> None:
        jobs = [each for each in sim.server.objects(TrainJob) if each["metadata"]["namespace"] == "default"]
        if jobs:
            body = msgspec.json.encode({"spec": {FIELD: rng.choice(TIMES)}})
            with refusals_expected():
                await sim.client().patch(TrainJob.from_dict(rng.choice(jobs)), raw_patch(MERGE, body))

    async def govern(sim: Simulation, rng: random.Random) -> None:
        name, seconds = rng.choice(RUNTIMES), rng.choice([None, None, 5, 70])
        deletions.policy(name, seconds)
        runtime = runtimes.runtime(name)
        body = msgspec.json.encode({"spec": {"runPolicy": {FIELD: seconds}}})
        with refusals_expected():
            await sim.client("admin").patch(runtime, raw_patch(MERGE, body))

    sim.action(create, times=20)
    sim.action(users.suspend, times=2)
    sim.action(users.resume, times=8)
    sim.action(change, times=6)
    sim.action(govern, times=4)

    async def check(sim: Simulation) -> None:
        for process in sim.processes.values():
            process.drift = 0.0
        await administrators.install(sim)
        await anyio.sleep(LATE)
        for job in sim.server.objects(TrainJob):
            name, spec, own = job["metadata"]["name"], job["spec"], job["spec"].get(FIELD)
            runtime = runtimes.runtime(spec["runtimeRef"]["name"])
            stored = by_name(sim, type(runtime), runtime.to_dict()) or {"spec": {}}
            seconds = stored["spec"].get("runPolicy", {}).get(FIELD) if own is None else own
            finished = is_true(job, "Complete") or is_true(job, "Failed")
            due = finished and seconds is not None and spec.get("managedBy") != OTHERS
            assert not due, f"a finished TrainJob is not deleted: {name}"

    sim.finally_(check)
    sim.finally_(check_managers)


test_finished_train_jobs_are_deleted_in_time = simtest.simulate(
    seeds=8, first=5000, minutes=6.0, faults=8.0, actions=1.0
)(scenario)
