# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kueue's writes to TrainJobs, for both generations of its types: up to v0.16, and from v0.17.

Kueue decodes a TrainJob into its own types and sends the whole object, so every field that these types lack is missing
from its requests. To start a TrainJob, it sends a PUT with the placement, and then a merge patch that it computes
against the object as it was before the PUT. To stop a TrainJob, it sends a PUT with ``suspend``, and once no job is
active, a merge patch that removes the placement.
"""

import copy
import json
from collections import Counter
from typing import Any

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import ConflictError
from controller_runtime.machinery.patch import merge_patch_diff
from controller_runtime.webhook import CustomMutator

from pkg.apis.trainer.v1alpha1 import TrainJob

Document = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"
POD_SET = "kueue.x-k8s.io/podset"
MANAGER = "kueue.x-k8s.io/manager"
UNKNOWN = {
    1: ("runtimePatches", "activeDeadlineSeconds"),
    2: ("podTemplateOverrides", "labels", "annotations"),
}
"""The fields of the spec that the types of each generation lack."""


class ActiveError(Exception):
    """The TrainJob still has active jobs; Kueue tries again."""


def typed(train_job: Document, generation: int) -> Document:
    """Return a TrainJob without the fields that the types of a generation lack."""
    held = copy.deepcopy(train_job)
    for field in UNKNOWN[generation]:
        held["spec"].pop(field, None)
    if generation == 2:
        number = held["spec"].get("trainer", {}).get("numProcPerNode")
        assert not isinstance(number, str), "Go cannot decode a string into an int32"
        for patch in held["spec"].get("runtimePatches", ()):
            for job in replicated_jobs(patch):
                pod = job.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
                pod.pop("terminationGracePeriodSeconds", None)  # since v2.3; Kueue has the types of v2.2
    return held


def replicated_jobs(patch: Document) -> list[Document]:
    """Return the jobs that a runtime patch changes."""
    template = patch.get("trainingRuntimeSpec", {}).get("template", {})
    jobs: list[Document] = template.get("spec", {}).get("replicatedJobs", [])
    return jobs


def entry(train_job: Document) -> Document:
    """Return Kueue's runtime patch."""
    for patch in train_job["spec"].get("runtimePatches", ()):
        if patch["manager"] == MANAGER:
            found: Document = patch
            return found
    raise LookupError("kueue runtime patch not found")


class KueueWebhook(CustomMutator[TrainJob]):
    """Kueue's mutating webhook for new TrainJobs. Unlike Kueue's reconciler, it keeps fields that it does not know."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self.asked = 0
        """The number of requests to the webhook."""

    async def mutate(self, request: AdmissionRequest, old: TrainJob | None, new: TrainJob) -> list[str]:
        """Suspend the TrainJob; label its pods with the queue or, in the second generation, add an empty patch.

        A TrainJob without a queue gets the default queue. If a TrainJob's name ends with an even digit, its pods get no
        label, as if its queue had been chosen later.
        """
        self.asked += 1
        new.metadata.labels = {QUEUE: "default", **(new.metadata.labels or {})}
        made = new.to_dict()
        spec = made["spec"]
        spec["suspend"] = True
        if self._generation == 1:
            if new.name[-1:] not in tuple("02468"):
                spec.setdefault("labels", {})[QUEUE] = made["metadata"]["labels"][QUEUE]
        else:
            empty = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
            spec.setdefault("runtimePatches", []).append(empty)
        new.set_unchecked("spec", TrainJob.from_dict(made).spec)
        return []


class Kueue:
    """The part of Kueue's reconciler that writes TrainJobs; ``writes`` counts its requests by method."""

    def __init__(self, client: LiveClient, namespace: str, generation: int) -> None:
        self._client = client
        self._namespace = namespace
        self._generation = generation
        self.writes: Counter[str] = Counter()

    async def start(self, name: str, jobs: list[str], flavor: str) -> None:
        """Place and resume a TrainJob."""
        await self._retried(self._start, name, jobs, flavor)

    async def stop(self, name: str) -> None:
        """Suspend a TrainJob and, once it has no active job, remove its placement.

        Raises:
            ActiveError: the TrainJob still has active jobs.
        """
        await self._retried(self._stop, name)

    async def _start(self, name: str, jobs: list[str], flavor: str) -> None:
        found = await self._read(name)
        before = _without_version(found)
        if self._generation == 1:
            overrides = found["spec"].get("podTemplateOverrides", [])
            users = [each for each in overrides if POD_SET not in each.get("metadata", {}).get("labels", {})]
            found["spec"]["podTemplateOverrides"] = users + [_override(job, flavor) for job in jobs]
        else:
            entry(found)["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"] = [
                _patched_job(job, flavor) for job in jobs
            ]
        stored = await self._put(found)
        stored["spec"]["suspend"] = False
        await self._patch(before, stored)

    async def _stop(self, name: str) -> None:
        found = await self._suspend(name)
        if any(each.get("active") for each in found.get("status", {}).get("jobsStatus", ())):
            raise ActiveError(name)
        before = _without_version(found)
        if self._generation == 1:
            overrides = found["spec"].get("podTemplateOverrides", [])
            kueues = [POD_SET in each.get("metadata", {}).get("labels", {}) for each in overrides]
            kept = overrides[: kueues.index(True)] if any(kueues) else overrides
            found["spec"].pop("podTemplateOverrides", None)
            if kept:
                found["spec"]["podTemplateOverrides"] = kept
        else:
            entry(found)["trainingRuntimeSpec"]["template"]["spec"].pop("replicatedJobs", None)
        await self._patch(before, found)

    async def _suspend(self, name: str) -> Document:
        found = await self._read(name)
        if found["spec"].get("suspend"):
            return found
        found["spec"]["suspend"] = True
        return await self._put(found)

    async def _retried(self, step: Any, *arguments: Any) -> None:
        while True:
            try:
                await step(*arguments)
            except ConflictError:
                self.writes["conflict"] += 1  # another writer was faster; Kueue reads again
            else:
                return

    async def _read(self, name: str) -> Document:
        found = await self._client.get(TrainJob, (self._namespace, name))
        return typed(found.to_dict(), self._generation)

    async def _put(self, train_job: Document) -> Document:
        self.writes["PUT"] += 1
        stored = await self._client.update(Unstructured.wrap(train_job))
        return typed(stored.to_dict(), self._generation)

    async def _patch(self, before: Document, after: Document) -> None:
        """Send the differences from ``before``, including the resource version."""
        self.writes["PATCH"] += 1
        body = json.dumps(merge_patch_diff(before, after)).encode()
        await self._client.patch(Unstructured.wrap(after), raw_patch(MERGE, body))


def _without_version(train_job: Document) -> Document:
    before = copy.deepcopy(train_job)
    del before["metadata"]["resourceVersion"]
    return before


def placement(flavor: str) -> Document:
    """Return the fields that Kueue writes into a pod's spec."""
    toleration = {"key": "flavor", "operator": "Equal", "value": flavor, "effect": "NoSchedule"}
    gates = [{"name": "kueue.x-k8s.io/topology"}]
    return {"nodeSelector": {"flavor": flavor}, "tolerations": [toleration], "schedulingGates": gates}


def _metadata(job: str) -> Document:
    return {"labels": {POD_SET: job}, "annotations": {"kueue.x-k8s.io/workload": "w"}}


def _override(job: str, flavor: str) -> Document:
    return {"targetJobs": [{"name": job}], "metadata": _metadata(job), "spec": placement(flavor)}


def _patched_job(job: str, flavor: str) -> Document:
    pod = {"metadata": _metadata(job), "spec": placement(flavor)}
    return {"name": job, "template": {"spec": {"template": pod}}}
