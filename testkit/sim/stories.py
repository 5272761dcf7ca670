# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences of actions about one TrainJob, in which a manager must follow each single action."""

from __future__ import annotations

import random
from typing import Any, Final

import anyio
from controller_runtime.apis.core.v1 import ConfigMap, Event, Secret
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.cluster import Nodes
from testkit.sim.objects import by_name, is_deleted, is_true, owned, refusals_expected
from testkit.sim.restchecks import lacks_runtime, obstacle
from testkit.sim.users import Users

Document = dict[str, Any]
_KEEP: Final = raw_patch(MERGE, b'{"metadata":{"finalizers":["example.com/kept"]}}')
_LET_GO: Final = raw_patch(MERGE, b'{"metadata":{"finalizers":null}}')
_SIBLINGS: Final[list[type[Object]]] = [ConfigMap, Secret, PodGroup]
_LONG: Final = 120.0
"""Seconds for which pods do not end, longer than a manager may wait."""
_FOLLOWED: Final = 60.0
"""Seconds after which Jobs must have stopped and a JobSet must have been built again."""
_MANY_EVENTS: Final = 20
"""Events of an object after which recorders may drop more: they allow 25, and one more every five minutes."""


class Stories:
    """The sequences of actions."""

    def __init__(self, users: Users, nodes: Nodes) -> None:
        self._users = users
        self._nodes = nodes

    def let_pods_end(self) -> None:
        """Let the pods end that were kept running."""
        self._nodes.hold_until = 0.0

    async def _run(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Create a TrainJob whose pods do not end for a while, and let it start."""
        self._nodes.hold_until = sim.loop.time() + _LONG
        await self._users.replace(sim, rng, name)
        await self._users.resume(sim, rng, name)
        await anyio.sleep(15.0)

    async def delete_siblings(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete the siblings of a running JobSet."""
        await self._run(sim, rng, name)
        if (job := _train_job(sim, name)) is not None:
            for kind in _SIBLINGS:
                for each in owned(sim, kind, job):
                    with refusals_expected():
                        await sim.client().delete(kind.from_dict(each))

    async def relabel(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Set labels of a suspended TrainJob, and remove them."""
        await self._users.suspend(sim, rng, name)
        for labels in ({"team": "a"}, None):
            await anyio.sleep(10.0)
            await self._users.change(sim, rng, name, {"labels": labels})

    async def audit_meanwhile(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Suspend and resume a TrainJob while another controller repeatedly writes a condition."""
        for act in (self._users.suspend, self._users.resume):
            async with anyio.create_task_group() as group:
                group.start_soon(act, sim, rng, name)
                for _ in range(6):
                    await anyio.sleep(rng.random() * 0.02)
                    await self._users.annotate_status(sim, rng, name)

    async def orphan_unseen(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete a TrainJob that a finalizer keeps, and orphan its JobSet, before the manager sees the deletion."""
        await self._users.suspend(sim, rng, name)
        if (document := _train_job(sim, name)) is None:
            return
        job, watches, table = TrainJob.from_dict(document), sim.server.watches, sim.server.table(TrainJob)
        with refusals_expected():
            await sim.client().patch(job, _KEEP)
            await anyio.sleep(10.0)
            with watches.delays.during(lambda watch: 5.0 if watch.table is table else 0.0):
                await sim.client().delete(job, propagation="Orphan")
                sim.server.collect_garbage()
                await anyio.sleep(4.0)
        await anyio.sleep(10.0)
        with refusals_expected():
            await sim.client().patch(job, _LET_GO)

    async def remove(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete a TrainJob and its children, and wait for some seconds."""
        key = TrainJob.from_dict({"metadata": {"namespace": "default", "name": name}})
        with refusals_expected():
            await sim.client().delete(key, propagation="Background")
        await anyio.sleep(rng.uniform(5.0, 10.0))

    async def resume_late(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Resume a TrainJob that was suspended for longer than its deadline: the deadline begins again."""
        await self.remove(sim, rng, name)
        seconds = rng.choice([20, 35])
        self._nodes.hold_until = sim.loop.time() + 3.0 * seconds
        await self._users.create(sim, rng, name, suspend=True, activeDeadlineSeconds=seconds)
        await anyio.sleep(seconds + 5.0)
        await self._users.change(sim, rng, name, {"suspend": False})
        await anyio.sleep(seconds + 15.0)

    async def expire_unreachable(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Let a deadline pass while the manager cannot reach the server: later the TrainJob fails, and gets no JobSet.

        MPI is not used: its reconcile may wait for the first list of ConfigMaps or Secrets, and so may have begun
        before the deadline.
        """
        await self.remove(sim, rng, name)
        sim.network.faults.refused = 1.0
        await self._users.create(sim, rng, name, "plain", suspend=False, activeDeadlineSeconds=6)
        await anyio.sleep(13.0)
        sim.network.faults.refused = 0.0
        await anyio.sleep(10.0)

    async def edit_at_once(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Change the trainer of a suspended TrainJob right after its JobSet was built."""
        await self.remove(sim, rng, name)
        await self._users.create(sim, rng, name, suspend=True)
        with anyio.move_on_after(5.0):
            while (job := _train_job(sim, name)) is None or not owned(sim, JobSet, job):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        await self._users.change(sim, rng, name, self._users.trainer(rng))

    async def move(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Suspend, edit and resume a running TrainJob before the manager sees any of it: the JobSet must follow."""
        await self._run(sim, rng, name)
        table, until = sim.server.table(TrainJob), sim.loop.time() + 3.0
        with sim.server.watches.delays.during(
            lambda watch: max(0.0, until - sim.loop.time()) if watch.table is table else 0.0
        ):
            await self._moved(sim, rng, name)
            await anyio.sleep(4.0)
        await self._follows(sim, name)

    async def move_unled(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Kill the leader; suspend, edit and resume a TrainJob before another manager leads: its JobSet must follow."""
        await self._run(sim, rng, name)
        for manager in [each for each, mgr in sim.managers.items() if mgr.elected.is_set()]:
            sim.kill(manager)
        await self._moved(sim, rng, name)
        await self._follows(sim, name)

    async def _moved(self, sim: Simulation, rng: random.Random, name: str) -> None:
        await self._users.change(sim, rng, name, {"suspend": True})
        await self._users.change(sim, rng, name, self._users.trainer(rng))
        await self._users.change(sim, rng, name, {"suspend": False})

    async def _follows(self, sim: Simulation, name: str) -> None:
        await anyio.sleep(_FOLLOWED)
        job = _train_job(sim, name)
        if job is None or lacks_runtime(sim, job) or obstacle(sim, job) is not None:
            return
        for each in owned(sim, JobSet, job):
            jobs = each["spec"]["replicatedJobs"]
            images = [one["template"]["spec"]["template"]["spec"]["containers"][0]["image"] for one in jobs]
            assert job["spec"]["trainer"]["image"] in images, f"a JobSet keeps the former spec: {name}"

    async def tamper(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Change a label of the JobSet of a suspended TrainJob, as another controller would."""
        await self._users.suspend(sim, rng, name)
        await self._users.change(sim, rng, name, {"labels": {"team": "a"}})
        await anyio.sleep(15.0)
        job = _train_job(sim, name)
        for found in owned(sim, JobSet, job) if job else ():
            with refusals_expected():
                patch = raw_patch(MERGE, b'{"metadata":{"labels":{"team":"z"}}}')
                await sim.client("other").patch(JobSet.from_dict(found), patch)

    async def hold_long(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete a JobSet that a finalizer keeps for minutes: an event must report that the TrainJob waits."""
        await self._users.suspend(sim, rng, name)
        await anyio.sleep(5.0)
        job = _train_job(sim, name)
        known = job is not None and _has_event(sim, job, "WaitingForDeletion")
        sets = [JobSet.from_dict(each) for each in (owned(sim, JobSet, job) if job else ())]
        for job_set in sets:
            with refusals_expected():
                await sim.client().patch(job_set, _KEEP)
                await sim.client().delete(job_set)
        await anyio.sleep(_LONG / 4)
        early = job is not None and not known and _has_event(sim, job, "WaitingForDeletion")
        assert not early, f"a deletion that does not last is reported: {name}"
        await anyio.sleep(_LONG * 3 / 4)
        left = [by_name(sim, JobSet, job_set.to_dict()) for job_set in sets]
        still = _train_job(sim, name)
        waits = still is not None and not (is_true(still, "Complete") or is_true(still, "Failed"))
        if waits and still is not None and any(each and is_deleted(each) for each in left):
            assert _has_event(sim, still, "WaitingForDeletion") or _has_many_events(sim, still), (
                f"a deletion that lasts is not reported: {name}"
            )
        for job_set in sets:
            with refusals_expected():
                await sim.client().patch(job_set, _LET_GO)

    async def resume_beside_deleted(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Resume a TrainJob while a finalizer keeps a deleted sibling: the JobSet must not start."""
        await self.remove(sim, rng, name)
        await self._users.create(sim, rng, name, rng.choice(["gang", "mpi"]), suspend=True)
        await anyio.sleep(15.0)
        job = _train_job(sim, name)
        kinds: list[type[Object]] = [PodGroup, ConfigMap]
        found = [kind.from_dict(each) for kind in kinds for each in (owned(sim, kind, job) if job else ())]
        for sibling in found:
            with refusals_expected():
                await sim.client().patch(sibling, _KEEP)
                await sim.client().delete(sibling)
        await anyio.sleep(8.0)
        await self._users.change(sim, rng, name, {"suspend": False})
        for _ in range(20 if found and job else 0):
            await anyio.sleep(1.0)
            for each in owned(sim, JobSet, job or {}):
                assert each["spec"].get("suspend"), (
                    f"a JobSet starts beside a sibling that is deleted: {name}"
                )
        for sibling in found:
            with refusals_expected():
                await sim.client().patch(sibling, _LET_GO)

    async def delete_held(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Delete a TrainJob that a finalizer keeps, and its children: the children must not be built again."""
        await self._users.suspend(sim, rng, name)
        if (document := _train_job(sim, name)) is None:
            return
        job = TrainJob.from_dict(document)
        with refusals_expected():
            await sim.client().patch(job, _KEEP)
            await sim.client().delete(job, propagation="Background")
        await anyio.sleep(10.0)
        for each in owned(sim, JobSet, document):
            with refusals_expected():
                await sim.client().delete(JobSet.from_dict(each))
        await anyio.sleep(10.0)
        held = _train_job(sim, name)
        if held is not None and held["metadata"].get("deletionTimestamp"):
            left = [
                each for each in owned(sim, JobSet, held) if not each["metadata"].get("deletionTimestamp")
            ]
            assert not left, f"a JobSet was built for a TrainJob that is being deleted: {name}"
        with refusals_expected():
            await sim.client().patch(job, _LET_GO)


def _train_job(sim: Simulation, name: str) -> Document | None:
    return by_name(sim, TrainJob, {"metadata": {"namespace": "default", "name": name}})


def _has_many_events(sim: Simulation, job: Document) -> bool:
    """Return True if a TrainJob has so many events that a recorder, like client-go's, may drop the next one."""
    uid = job["metadata"]["uid"]
    events = (each for each in sim.server.objects(Event) if each["involvedObject"].get("uid") == uid)
    return sum(each.get("count") or 1 for each in events) >= _MANY_EVENTS


def _has_event(sim: Simulation, job: Document, reason: str) -> bool:
    uid = job["metadata"]["uid"]
    events = sim.server.objects(Event)
    return any(each["involvedObject"].get("uid") == uid and each["reason"] == reason for each in events)
