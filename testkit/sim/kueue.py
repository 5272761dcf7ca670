# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A model of Kueue, which places and resumes TrainJobs of its queue; they start suspended.

Kueue also evicts TrainJobs: it suspends them, and removes their placement once no job is active.

If a TrainJob has the runtime patch that Kueue's webhook adds from v0.17 on, the model writes the placement into
that patch. Otherwise the model adds an override with a label, as Kueue up to v0.16 does.

Each release sends the whole TrainJob (PUT) without the fields that its types lack, and these fields must stay.
"""

from __future__ import annotations

import random
from typing import Any

from controller_runtime.machinery import Unstructured
from controller_runtime.simtest import Simulation

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.kueue_writes import UNKNOWN, typed
from testkit.sim.objects import is_deleted, is_suspended, is_true, refusals_expected

Document = dict[str, Any]
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
FLAVOR = "example.com/flavor"
USER = "example.com/user"
"""The ``manager`` of the user's runtime patch."""
_MANAGER = "kueue.x-k8s.io/manager"
_POD_SET = "kueue.x-k8s.io/podset"
_QUOTA = 2
_TYPE = {"apiVersion": TrainJob.gvk.api_version, "kind": TrainJob.gvk.kind}


def is_queued(job: Document) -> bool:
    """Return True if Kueue manages a TrainJob."""
    return QUEUE_LABEL in (job["metadata"].get("labels") or {})


def queued_spec(rng: random.Random) -> Document:
    """Return fields of a suspended TrainJob: random placements by a user, and sometimes the webhook's patch."""
    spec: Document = {"suspend": True}
    if rng.random() < 0.5:
        spec["podTemplateOverrides"] = [{"targetJobs": [{"name": "node"}], "spec": placed_at("override")}]
    patches = [_patch(USER, placed_at("patch"))] if rng.random() < 0.5 else []
    if rng.random() < 0.5:
        patches.append(_patch(_MANAGER, None))
    return {**spec, "runtimePatches": patches} if patches else spec


def placed_at(value: str) -> Document:
    """Return the fields of a pod that is placed in a flavor."""
    tolerations = [{"key": FLAVOR, "operator": "Equal", "value": value, "effect": "NoSchedule"}]
    return {"nodeSelector": {FLAVOR: value}, "tolerations": tolerations}


def flavor_of(spec: Document) -> str | None:
    """Return the flavor of the trainer's pods: by Kueue, else by the user's patch, else by the user's override."""
    for changes in (_placements(spec), _pods(spec, USER), _overrides(spec, kueues=False)):
        if changes:
            flavor: str = changes[-1]["nodeSelector"][FLAVOR]
            return flavor
    return None


def _placements(spec: Document) -> list[Document]:
    return [*_overrides(spec, kueues=True), *_pods(spec, _MANAGER)]


def _overrides(spec: Document, *, kueues: bool) -> list[Document]:
    """Return the pods of Kueue's overrides, or of the user's."""
    return [each["spec"] for each in spec.get("podTemplateOverrides") or () if _is_kueues(each) is kueues]


def _is_kueues(override: Document) -> bool:
    return _POD_SET in override.get("metadata", {}).get("labels", {})


def _pods(spec: Document, manager: str) -> list[Document]:
    """Return the pods of a manager's runtime patch."""
    patches = [each for each in spec.get("runtimePatches") or () if each["manager"] == manager]
    jobs = [
        job
        for patch in patches
        for job in patch["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs") or ()
    ]
    return [job["template"]["spec"]["template"]["spec"] for job in jobs]


def _patch(manager: str, pod: Document | None) -> Document:
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    spec: Document = {} if pod is None else {"replicatedJobs": jobs}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": spec}}}


def _place(spec: Document, pod: Document | None) -> Document:
    """Return the field for Kueue's placement, with ``pod`` as the placement; None removes the placement."""
    patches = spec.get("runtimePatches") or []
    if _has_entry(spec):
        placed = _patch(_MANAGER, pod)
        return {"runtimePatches": [placed if each["manager"] == _MANAGER else each for each in patches]}
    users = [each for each in spec.get("podTemplateOverrides") or () if not _is_kueues(each)]
    metadata = {"labels": {_POD_SET: "node"}}
    kueues = [{"targetJobs": [{"name": "node"}], "metadata": metadata, "spec": pod}] if pod else []
    return {"podTemplateOverrides": [*users, *kueues] or None}


def _has_entry(spec: Document) -> bool:
    """Return True if Kueue's webhook has added a runtime patch, as it does from v0.17 on."""
    return any(each["manager"] == _MANAGER for each in spec.get("runtimePatches") or ())


def _of_users(spec: Document, field: str) -> object:
    """Return what users have set in a field. The manager may add runtime patches of its own, and times."""
    return _pods(spec, USER) if field == "runtimePatches" else spec.get(field)


class Kueue:
    """Kueue's controller. It remembers which TrainJobs it has admitted and evicted, and reads everything else."""

    def __init__(self) -> None:
        self.admitted: set[str] = set()
        """The uids of the admitted TrainJobs."""
        self.waits = False
        """True if a TrainJob waits for Kueue."""
        self._evicted: set[str] = set()

    async def step(self, sim: Simulation, rng: random.Random) -> None:
        """Take the next step for each TrainJob."""
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
        placed = bool(_placements(spec))
        if uid in self.admitted:
            if is_suspended(job):
                self.waits = True
                flavor = placed_at(rng.choice(["spot", "reserved", "on-demand"]))
                await self._update(sim, job, {"suspend": False} if placed else _place(spec, flavor))
        elif not is_suspended(job):
            self.waits = True
            await self._update(sim, job, {"suspend": True})
        elif uid in self._evicted:
            self.waits = True
            if placed and not _is_active(job):
                await self._update(sim, job, _place(spec, None))
            elif not placed:
                self._evicted.discard(uid)
        elif len(self.admitted) < _QUOTA:
            self.waits = True
            self.admitted.add(uid)

    @staticmethod
    async def _update(sim: Simulation, job: Document, change: Document) -> None:
        """Send the TrainJob with a change, and check that the answer has what users set in fields unknown to Kueue."""
        generation = 2 if _has_entry(job["spec"]) else 1
        spec = {field: value for field, value in {**job["spec"], **change}.items() if value is not None}
        sent = Unstructured.wrap(typed({**_TYPE, **job, "spec": spec}, generation))
        stored = (await sim.client("kueue").update(sent)).to_dict()
        for field in UNKNOWN[generation]:
            before, after = (_of_users(each["spec"], field) for each in (job, stored))
            assert before == after, (
                f"a client that does not know a field has removed it: {job['metadata']['name']}: {field}"
            )

    async def evict(self, _: Simulation, rng: random.Random) -> None:
        """Revoke the admission of a TrainJob."""
        if self.admitted:
            uid = rng.choice(sorted(self.admitted))
            self.admitted.discard(uid)
            self._evicted.add(uid)


def _is_active(job: Document) -> bool:
    return any(each.get("active") for each in job.get("status", {}).get("jobsStatus") or ())
