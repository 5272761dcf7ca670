# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for the end of a life, when faults have stopped and users do nothing any more."""

from __future__ import annotations

from typing import Any, NamedTuple

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod, Secret
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.simtest import Event as Change
from controller_runtime.simtest import Simulation

from pkg.apis.config.v1alpha1 import V2_1, V2_3
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from testkit.sim.administrators import Administrators
from testkit.sim.managers import writes
from testkit.sim.objects import (
    by_name,
    controller,
    is_deleted,
    is_overdue,
    is_suspended,
    is_true,
    overdue,
    owned,
    refusals_expected,
)
from testkit.sim.renders import Renders, normalized
from testkit.sim.runtimes import children_of
from testkit.sim.snapshots import Snapshots
from testkit.sim.spechistory import SpecHistory, place_of, runtime_of
from testkit.sim.users import OTHERS, Users

Document = dict[str, Any]
_QUIET = 70.0
"""Seconds without a change after which the cluster is considered to be at rest."""
_RESTLESS = 1800.0
_CHILDREN: dict[str, type[Object]] = {kind.gvk.kind: kind for kind in (JobSet, PodGroup, ConfigMap, Secret)}
_SUFFIXES = {"JobSet": "", "PodGroup": "", "ConfigMap": "-mpi-hostfile", "Secret": "-mpi-ssh-auth"}


class RestChecks:
    """Waits until a cluster is at rest, and checks it."""

    def __init__(
        self,
        users: Users,
        administrators: Administrators,
        past: SpecHistory,
        snapshots: Snapshots | None = None,
    ) -> None:
        """``snapshots`` is None if the managers have the compatibility version 2.1, which stores no runtimes."""
        self._users = users
        self._administrators = administrators
        self._past = past
        self._snapshots = snapshots
        self._renders = Renders(V2_1 if snapshots is None else V2_3)
        self._last = 0.0
        self._touches = 0

    def see(self, sim: Simulation, event: Change) -> None:
        """Record the time of a change."""
        if event.table.properties.gvk.kind not in ("Lease", "Event"):
            self._last = sim.loop.time()

    async def check(self, sim: Simulation) -> None:
        """Restore missing runtimes, remove obstacles, and check the cluster at rest."""
        await self._administrators.install(sim)
        await self._users.clear(sim, sim.world)
        if self._snapshots is not None:
            await self._snapshots.mend(sim)
        await self.check_rest(sim)

    async def check_rest(self, sim: Simulation) -> None:
        """Wait until the cluster is at rest and check it; then touch each TrainJob, and compare the children again."""
        await self._rest(sim)
        for job in sim.server.objects(TrainJob):
            if not await self._waits_for_suspension(sim, job):
                await self._train_job(sim, job)
        self._leftovers(sim)
        if self._snapshots is None:
            self.check_runtimes(sim)
        # Compared first as they are: a change of a TrainJob would make good a wake-up that was lost.
        await self._check_all_children(sim)
        await self.touch(sim)
        await self._rest(sim)
        await self._check_all_children(sim)
        if sim.failures:
            raise sim.failures[0]

    async def _check_all_children(self, sim: Simulation) -> None:
        for job in sim.server.objects(TrainJob):
            if job["spec"].get("managedBy") != OTHERS and not await self._waits_for_suspension(sim, job):
                await self.check_children(sim, job)

    async def touch(self, sim: Simulation) -> None:
        """Change each TrainJob in a way that does not affect its children."""
        self._touches += 1
        body = b'{"metadata":{"annotations":{"example.com/touched":"%d"}}}' % self._touches
        for job in sim.server.objects(TrainJob):
            with refusals_expected():
                await sim.client().patch(TrainJob.from_dict(job), raw_patch(MERGE, body))

    async def _rest(self, sim: Simulation) -> None:
        """Return when nothing has changed for some time, and check that the manager then writes nothing.

        If a deadline passes in the meantime, wait again.
        """
        until, self._last = sim.loop.time() + _RESTLESS, sim.loop.time()
        while True:
            while sim.loop.time() < self._last + _QUIET:
                await anyio.sleep(1.0)
                assert sim.loop.time() < until, "the cluster does not come to rest"
            lines, ended = len(sim.timeline), overdue(sim)
            await anyio.sleep(30.0)
            if overdue(sim) == ended:
                break
        written = writes(sim, lines)
        assert not written, f"a write in a quiet cluster: {written[0]}"

    async def _waits_for_suspension(self, sim: Simulation, job: Document) -> bool:
        """Return True if a running JobSet lacks a sibling, and the TrainJob or runtime has changed since its start.

        A sibling of the new state might be for another number of pods. Therefore it is built
        only when the TrainJob is suspended.
        """
        runs = any(not is_suspended(each) for each in owned(sim, JobSet, job))
        missing = [
            kind for kind in children_of(job["spec"]["runtimeRef"]["name"]) if not _named(sim, kind, job)
        ]
        return runs and bool(missing) and not await self.is_fresh(sim, job)

    async def _train_job(self, sim: Simulation, job: Document) -> None:
        name = job["metadata"]["name"]
        assert not is_deleted(job), f"a TrainJob cannot be deleted: {name}"
        sets = owned(sim, JobSet, job)
        if job["spec"].get("managedBy") == OTHERS:
            untouched = not sets and not job.get("status")
            assert untouched, f"a TrainJob of another controller was touched: {name}"
            return
        complete, failed = is_true(job, "Complete"), is_true(job, "Failed")
        assert not (is_overdue(job) and sets), f"a TrainJob past its deadline has a JobSet: {name}"
        assert complete or failed or is_true(job, "Suspended") == is_suspended(job), (
            f"the condition Suspended is wrong: {name}"
        )
        problem = await state_problem(sim, job)
        assert problem is None, f"{problem}: {name}"
        if complete or failed or obstacle(sim, job) is not None:
            return
        if self._snapshots is not None:
            self._snapshots.check(sim, job)
        assert is_suspended(job), f"a TrainJob neither ended nor was suspended: {name}"

    @staticmethod
    def _leftovers(sim: Simulation) -> None:
        """Check that the owners of all objects exist: the manager must not create children of deleted objects."""
        uids = {
            each["metadata"]["uid"]
            for table in sim.server.tables.values()
            for each in (row.document for row in table.rows.values())
        }
        kinds: list[type[Object]] = [*_CHILDREN.values(), Job, Pod]
        for kind in kinds:
            for child in sim.server.objects(kind):
                for owner in child["metadata"].get("ownerReferences") or ():
                    assert owner["uid"] in uids, (
                        f"an object outlived its owner: {kind.gvk.kind} {child['metadata']['name']}"
                    )

    @staticmethod
    def check_runtimes(sim: Simulation) -> None:
        """Check that runtimes in use have the finalizer, and that all others can be deleted."""
        used = {runtime_of(job) for job in sim.server.objects(TrainJob)}
        for kind in (ClusterTrainingRuntime, TrainingRuntime):
            for runtime in sim.server.objects(kind):
                name, finalizers = runtime["metadata"]["name"], runtime["metadata"].get("finalizers") or []
                is_used = place_of(kind.gvk.kind, runtime) in used
                held = constants.RESOURCE_IN_USE_FINALIZER in finalizers
                assert held or not is_used, f"a runtime in use has no finalizer: {name}"
                assert is_used or not is_deleted(runtime), (
                    f"a runtime without TrainJobs cannot be deleted: {name}"
                )

    async def is_fresh(self, sim: Simulation, job: Document) -> bool:
        """Return True if the JobSet of a TrainJob equals a fresh render."""
        found = [normalized("JobSet", each) for each in owned(sim, JobSet, job)]
        return found == [each.get("JobSet") async for each in self._possible(sim, job, past=False)]

    async def check_children(self, sim: Simulation, job: Document) -> None:
        """Check that the children equal a fresh render.

        Of a TrainJob that has ended, only the JobSet is checked; it may equal a render of earlier states.
        """
        ended = is_true(job, "Complete") or is_true(job, "Failed")
        if (not ended and obstacle(sim, job) is not None) or not owned(sim, JobSet, job):
            return
        renders = [each async for each in self._possible(sim, job, past=ended)]
        for kind in ("JobSet",) if ended else tuple(_CHILDREN):
            stored = next((each for each in _named(sim, kind, job) if _controls(job, each)), None)
            found = None if stored is None else normalized(kind, stored)
            wanted = [each.get(kind) for each in renders]
            if ended:  # a JobSet that is suspended before it is built again already has the new labels
                found, wanted = _without_labels(found), [_without_labels(each) for each in wanted]
            if kind == "Secret":
                has_keys = bool(_named(sim, kind, job)) if "ConfigMap" in renders[0] else found is None
                name = job["metadata"]["name"]
                assert has_keys, f"the Secret with the keys for MPI is missing or not wanted: {name}"
                continue
            assert found in wanted, (
                f"a child differs from a fresh render: {kind} {job['metadata']['name']}:\n"
                f"{found}\nwanted {wanted[0]}"
            )

    async def _possible(self, sim: Simulation, job: Document, *, past: bool) -> Any:
        """Yield renders of the current TrainJob and runtime; with ``past``, of all states of both, newest first."""
        kept = self._snapshots
        runtimes = list(self._past.runtime(job)) if kept is None else kept.runtimes(job)
        jobs = list(self._past.train_job(job["metadata"]["uid"]))
        for each in jobs if past else jobs[:1]:
            for runtime in runtimes if past else runtimes[:1]:
                yield await self._renders.children({**each, "metadata": job["metadata"]}, runtime)


def _without_labels(child: Any) -> Any:
    if child is None:
        return None
    return {**child, "metadata": {k: v for k, v in child["metadata"].items() if k != "labels"}}


def _named(sim: Simulation, kind: str, job: Document) -> list[Document]:
    """Return a list with the object that has the name of a TrainJob's child of that kind, or an empty list."""
    metadata = {**job["metadata"], "name": job["metadata"]["name"] + _SUFFIXES[kind]}
    found = by_name(sim, _CHILDREN[kind], {"metadata": metadata})
    return [] if found is None else [found]


def _controls(job: Document, child: Document) -> bool:
    return bool((controller(child) or {}).get("uid") == job["metadata"]["uid"])


class Obstacle(NamedTuple):
    """An object that has the name of a TrainJob's child, but that the TrainJob does not control."""

    name: str
    is_reported: bool


def obstacle(sim: Simulation, job: Document) -> Obstacle | None:
    """Return the obstacle of a TrainJob, or None. A Secret with keys that a user created is not an obstacle."""
    for kind in children_of(job["spec"]["runtimeRef"]["name"]):
        for child in _named(sim, kind, job):
            if not _controls(job, child) and (kind != "Secret" or controller(child)):
                return Obstacle(f"{kind} {child['metadata']['name']}", is_reported(sim, job))
    return None


def lacks_runtime(sim: Simulation, job: Document) -> bool:
    """Return True if the runtime that a TrainJob refers to does not exist."""
    place = runtime_of(job)
    kind = next(each for each in (ClusterTrainingRuntime, TrainingRuntime) if each.gvk.kind == place[0])
    return not any(place_of(place[0], each) == place for each in sim.server.objects(kind))


def is_reported(sim: Simulation, job: Document) -> bool:
    uid = job["metadata"]["uid"]
    return any(
        each["involvedObject"].get("uid") == uid and each["type"] == "Warning"
        for each in sim.server.objects(Event)
    )


async def state_problem(sim: Simulation, job: Document) -> str | None:
    """Return how the state of a TrainJob differs from that of its JobSet, or None."""
    if is_deleted(job):
        return "a TrainJob is not deleted"
    if is_true(job, "Complete") or is_true(job, "Failed"):
        return None
    suspended = is_suspended(job)
    # A TrainJob that has failed often is retried only after minutes, so nothing else is checked here.
    if (found := obstacle(sim, job)) is not None:
        return None if found.is_reported else f"an obstacle is not reported: {found.name}"
    if is_true(job, "Suspended") != suspended:
        return "the condition Suspended is wrong"
    if lacks_runtime(sim, job):
        return None if is_reported(sim, job) else "a missing runtime is not reported"
    sets = owned(sim, JobSet, job)
    if len(sets) != 1 or is_deleted(sets[0]):
        return "a TrainJob has no JobSet"
    (job_set,) = sets
    if is_suspended(job_set) != suspended:
        return "a JobSet is not suspended as its TrainJob"
    if is_true(job_set, "Completed") or is_true(job_set, "Failed"):
        return "a TrainJob has not ended as its JobSet"
    if job.get("status", {}).get("jobsStatus") != job_set.get("status", {}).get("replicatedJobsStatus"):
        return "jobsStatus is not the JobSet's"
    if suspended and constants.SUSPENDED_ANNOTATION in (job["metadata"].get("annotations") or {}):
        return "a suspension is noted after its end"
    return None
