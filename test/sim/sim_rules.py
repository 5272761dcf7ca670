# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold of TrainJobs, in every life."""

from __future__ import annotations

from typing import Any

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.history import Event
from controller_runtime.simtest.loop import START
from sim_world import is_deleted, is_true, owned

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

Document = dict[str, Any]
_QUIET = 90.0


class Specs:
    """A pod never runs with another image than its TrainJob had since it was last resumed."""

    def __init__(self) -> None:
        self._images: dict[str, set[str]] = {}
        """By the TrainJob's uid."""

    def see(self, sim: Simulation, event: Event) -> None:
        """Look at a change."""
        kind = event.table.facts.gvk.kind
        if kind == "TrainJob" and event.type != "DELETED":
            self._note(event.document, event.before)
        elif kind == "Pod" and event.type == "ADDED":
            self._check(sim, event.document)

    def _note(self, job: Document, before: Document | None) -> None:
        uid, image = job["metadata"]["uid"], job["spec"]["trainer"]["image"]
        resumed = before is not None and before["spec"].get("suspend") and not job["spec"].get("suspend")
        if before is None or resumed or job["spec"].get("suspend"):
            self._images[uid] = set()
        self._images[uid].add(image)

    def _check(self, sim: Simulation, pod: Document) -> None:
        job = _owner(sim, Job, pod)
        job_set = _owner(sim, JobSet, job) if job else None
        owners = job_set["metadata"].get("ownerReferences") if job_set is not None else None
        if not owners:
            return
        uid = str(owners[0]["uid"])
        image = pod["spec"]["containers"][0]["image"]
        train_job = _by_uid(sim, TrainJob, uid)
        if train_job is not None and not train_job["spec"].get("suspend"):
            assert image in self._images[uid], (
                f"a pod runs an image of before the resume: {pod['metadata']['name']} has {image}, "
                f"its TrainJob had {sorted(self._images[uid])}"
            )


class Orphans:
    """A JobSet that the garbage collector orphaned is not returned to the owner that released it."""

    def __init__(self) -> None:
        self._released: set[tuple[str, str]] = set()
        """Uids of a JobSet and of its former owner."""

    def see(self, event: Event) -> None:
        """Look at a change."""
        if event.table.facts.gvk.kind != "JobSet" or event.before is None or event.type == "DELETED":
            return
        uid, owners = event.document["metadata"]["uid"], _owner_uids(event.document)
        self._released |= {(uid, owner) for owner in _owner_uids(event.before) - owners}
        returned = {owner for owner in owners if (uid, owner) in self._released}
        assert not returned, f"a JobSet was returned to an owner that released it: {uid}, {sorted(returned)}"


async def settled(sim: Simulation) -> None:
    """When nothing disturbs them any more, TrainJobs have what their specs say, and nothing is written."""
    await anyio.sleep(_QUIET)
    jobs = {each["metadata"]["uid"]: each for each in sim.server.objects(TrainJob)}
    orphans = {each["metadata"]["name"] for each in sim.server.objects(JobSet) if not _owner_uids(each)}
    for job in jobs.values():
        name = job["metadata"]["name"]
        assert not is_deleted(job), f"a TrainJob cannot be deleted: {name}"
        sets = owned(sim, JobSet, job)
        if not sets and name in orphans:
            continue  # it may run with another spec
        assert len(sets) == 1, f"a TrainJob has {len(sets)} JobSets: {name}"
        (job_set,) = sets
        finished = is_true(job, "Complete") or is_true(job, "Failed")
        assert is_true(job, "Complete") == is_true(job_set, "Completed"), (
            f"Complete differs from the JobSet's: {name}"
        )
        assert is_true(job, "Failed") == is_true(job_set, "Failed"), (
            f"Failed differs from the JobSet's: {name}"
        )
        if finished:
            continue
        suspend = bool(job["spec"].get("suspend"))
        assert bool(job_set["spec"].get("suspend")) == suspend, (
            f"the JobSet is not suspended as its TrainJob: {name}"
        )
        assert is_true(job, "Suspended") == suspend, f"the condition Suspended is wrong: {name}"
        image = job["spec"]["trainer"]["image"]
        template = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        if suspend:
            assert template["spec"]["containers"][0]["image"] == image, (
                f"a suspended JobSet has an old image: {name}"
            )
        assert suspend, f"a TrainJob neither finished nor was suspended: {name}"
    for job_set in sim.server.objects(JobSet):
        owners = _owner_uids(job_set)
        assert owners <= jobs.keys(), f"a JobSet outlived its TrainJob: {job_set['metadata']['name']}"
    await anyio.sleep(60.0)
    written = [
        line
        for line in sim.timeline
        if line.actor.startswith("manager")
        and line.at > sim.loop.time() - START - 60.0
        and not line.text.startswith("GET")
        and "/leases" not in line.text
        and "/events" not in line.text
    ]
    assert not written, f"a write in a quiet cluster: {written[0]}"


def _owner_uids(document: Document) -> set[str]:
    return {ref["uid"] for ref in document["metadata"].get("ownerReferences") or ()}


def _owner(sim: Simulation, kind: Any, document: Document) -> Document | None:
    for ref in document["metadata"].get("ownerReferences") or ():
        if ref.get("controller"):
            return _by_uid(sim, kind, ref["uid"])
    return None


def _by_uid(sim: Simulation, kind: Any, uid: str) -> Document | None:
    return next((each for each in sim.server.objects(kind) if each["metadata"]["uid"] == uid), None)
