# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A model of Kueue: TrainJobs of its queue start suspended; it places, resumes, evicts and restores them."""

from __future__ import annotations

import random
from typing import Any

from controller_runtime.simtest import Simulation

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.objects import is_deleted, is_suspended, is_true, refusals_expected

Document = dict[str, Any]
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
FLAVOR = "example.com/flavor"
_QUOTA = 2


def is_queued(job: Document) -> bool:
    """Return True if Kueue manages a TrainJob."""
    return QUEUE_LABEL in (job["metadata"].get("labels") or {})


class Kueue:
    """Kueue's controller. It knows which TrainJobs it has admitted; everything else it reads."""

    def __init__(self) -> None:
        self.admitted: set[str] = set()
        """Uids."""
        self.waits = False
        """Whether a TrainJob waits for Kueue."""
        self._evicted: set[str] = set()

    async def step(self, sim: Simulation, rng: random.Random) -> None:
        """Go one step further with each TrainJob."""
        jobs = {job["metadata"]["uid"]: job for job in sim.server.objects(TrainJob) if is_queued(job)}
        ended = {uid for uid, job in jobs.items() if is_true(job, "Complete") or is_true(job, "Failed")}
        self.admitted &= jobs.keys() - ended
        self._evicted &= jobs.keys() - ended
        self.waits = False
        for uid, job in jobs.items():
            if uid not in ended and not is_deleted(job):
                with refusals_expected():
                    await self._attend(sim, job, rng)

    async def _attend(self, sim: Simulation, job: Document, rng: random.Random) -> None:
        uid, spec = job["metadata"]["uid"], job["spec"]
        placed = bool(spec.get("podTemplateOverrides"))
        if uid in self.admitted:
            if is_suspended(job):
                self.waits = True
                change = {"suspend": False} if placed else {"podTemplateOverrides": _placement(rng)}
                await self._update(sim, job, change)
        elif not is_suspended(job):
            self.waits = True
            await self._update(sim, job, {"suspend": True})
        elif uid in self._evicted:
            self.waits = True
            if placed and not _is_active(job):
                await self._update(sim, job, {"podTemplateOverrides": None})
            elif not placed:
                self._evicted.discard(uid)
        elif len(self.admitted) < _QUOTA:
            self.waits = True
            self.admitted.add(uid)

    @staticmethod
    async def _update(sim: Simulation, job: Document, change: Document) -> None:
        spec = {field: value for field, value in {**job["spec"], **change}.items() if value is not None}
        await sim.client("kueue").update(TrainJob.from_dict({**job, "spec": spec}))

    async def evict(self, _: Simulation, rng: random.Random) -> None:
        """Take back an admission."""
        if self.admitted:
            uid = rng.choice(sorted(self.admitted))
            self.admitted.discard(uid)
            self._evicted.add(uid)


def _placement(rng: random.Random) -> list[Document]:
    selector = {FLAVOR: rng.choice(["spot", "reserved", "on-demand"])}
    return [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": selector}}]


def _is_active(job: Document) -> bool:
    return any(each.get("active") for each in job.get("status", {}).get("jobsStatus") or ())
