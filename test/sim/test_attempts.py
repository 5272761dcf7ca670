# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each start of a TrainJob is counted exactly once, and its pods know the number.

Users suspend, change and resume TrainJobs, JobSet restarts failed Jobs, and managers are killed at each start and at
each deletion of a JobSet.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

import anyio
import pytest
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.rest import Request
from controller_runtime.simtest import Event, Process, Simulation

from pkg import features
from pkg.apis.jobset.v1alpha2 import RESTARTS_KEY, JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from testkit.sim.administrators import Administrators
from testkit.sim.cluster import world
from testkit.sim.kills import Kills
from testkit.sim.managers import Writes, check_managers
from testkit.sim.objects import by_name, by_uid, controller, is_suspended
from testkit.sim.users import Users

Document = dict[str, Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1800),  # a busy machine takes several times as long
]
RUNTIMES: Final = ("plain", "local", "mpi", "gang")
REST: Final = 600.0


def _starts(job_set: Document) -> int:
    return int(job_set["metadata"]["annotations"][constants.STARTS_ANNOTATION])


def _restarts(job_set: Document) -> int:
    return int(job_set.get("status", {}).get("restarts") or 0)


class Starts:
    """Counts the starts of each TrainJob, and kills the manager before or after some starts and deletions."""

    def __init__(self, sim: Simulation, *, exact: bool) -> None:
        self._sim = sim
        self._exact = exact
        """True if only managers delete JobSets, so that every start must be counted."""
        self._rng = random.Random(f"{sim.seed}/starts")
        self.counted: dict[str, int] = {}
        """The starts of each TrainJob by uid, as the changes of its JobSets show them."""
        Kills(sim, self._is_hit)
        sim.on_change(self.see)

    def see(self, event: Event) -> None:
        """Compare the annotation of a JobSet with the starts that were seen."""
        kind, new, old = event.table.properties.gvk, event.document, event.before
        if kind == Pod.gvk and event.type == "ADDED":
            self._see_pod(new)
        if kind != JobSet.gvk or (owner := controller(new)) is None:
            return
        uid = owner["uid"]
        before = self.counted.get(uid, 0)
        if event.type == "DELETED" or (event.type == "ADDED" and is_suspended(new)):
            started = 0
        elif event.type == "ADDED":
            started = 1
        else:
            assert old is not None
            started = int(is_suspended(old) and not is_suspended(new))
            started += _restarts(new) - _restarts(old)
        self.counted[uid] = before + started
        if (
            event.type == "ADDED" and not self._exact
        ):  # starts that no manager saw before the deletion are lost
            job = by_uid(self._sim, TrainJob, uid)
            attempts = (job or {}).get("status", {}).get("executionAttempts")
            self.counted[uid] = started + (0 if attempts is None else attempts + 1)
        found, name = _starts(new) + _restarts(new), new["metadata"]["name"]
        assert found == self.counted[uid], (
            f"{name}: {found} starts are counted instead of {self.counted[uid]}"
        )

    def _see_pod(self, pod: Document) -> None:
        metadata = pod["metadata"]
        number = int(metadata["annotations"][constants.RESUMES_ANNOTATION]) + int(
            metadata["labels"][RESTARTS_KEY]
        )
        name = {
            "namespace": metadata["namespace"],
            "name": metadata["labels"]["jobset.sigs.k8s.io/jobset-name"],
        }
        job_set = by_name(self._sim, JobSet, {"metadata": name})
        if job_set is not None:
            attempt = _starts(job_set) + _restarts(job_set) - 1
            assert number <= attempt, f"a pod of start {attempt} takes itself for one of start {number}"

    def _is_hit(self, process: Process, request: Request, _arrived: bool) -> bool:
        return _is_start_or_deletion(process, request) and self._rng.random() < 0.3


def _is_start_or_deletion(process: Process, request: Request) -> bool:
    if "/jobsets/" not in request.path or not process.name.startswith("manager"):
        return False
    if request.method == "DELETE":
        return True
    return request.method == "PATCH" and not json.loads(request.body or b"{}").get("spec", {}).get("suspend")


def scenario(sim: Simulation, *, exact: bool) -> None:
    """Simulate users who suspend, change and resume TrainJobs."""
    cluster = world(sim, pods_fail=0.4, gates={features.EXECUTION_ATTEMPTS: True}, max_restarts=3)
    Writes(sim)
    users, administrators, starts = Users(4), Administrators(cluster), Starts(sim, exact=exact)
    administrators.register(sim)

    async def create(sim: Simulation, rng: random.Random) -> None:
        name = f"job-{rng.randrange(4)}"
        await users.create(sim, rng, name, rng.choice(RUNTIMES), suspend=rng.random() < 0.5)

    sim.action(create, times=10)
    sim.action(users.suspend, times=12)
    sim.action(users.resume, times=16)
    sim.action(users.delete, times=1)
    if not exact:
        sim.action(users.delete_child, times=6)

    async def check(sim: Simulation) -> None:
        for process in sim.processes.values():
            process.drift = 0.0
        await administrators.install(sim)
        await anyio.sleep(REST)
        for job in sim.server.objects(TrainJob):
            uid, attempts = job["metadata"]["uid"], job.get("status", {}).get("executionAttempts")
            found = 0 if attempts is None else attempts + 1
            wanted = starts.counted.get(uid, 0)
            assert found == wanted, (
                f"{job['metadata']['name']}: {found} starts in the status instead of {wanted}"
            )
        assert starts.counted
        await check_managers(sim)

    sim.finally_(check)


def counts_every_start(sim: Simulation) -> None:
    """Only managers delete JobSets."""
    scenario(sim, exact=True)


def counts_from_the_status(sim: Simulation) -> None:
    """Users delete JobSets, too."""
    scenario(sim, exact=False)


test_every_start_is_counted_once = simtest.simulate(
    seeds=8, first=6000, minutes=6.0, faults=8.0, actions=1.0
)(counts_every_start)
test_starts_are_counted_although_users_delete_job_sets = simtest.simulate(
    seeds=4, first=6100, minutes=6.0, faults=8.0, actions=1.0
)(counts_from_the_status)
