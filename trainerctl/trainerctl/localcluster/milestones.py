# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's TrainJob, and its milestones from creation to Complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.machinery import JSON, Object
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

NAMESPACE: Final = "default"
NAME: Final = "hello-torch"
RUNTIME: Final = "torch-distributed"


@dataclass(frozen=True)
class Observed:
    """The objects of the demo's TrainJob at one moment."""

    train_job: dict[str, JSON] = field(default_factory=dict)
    job_sets: list[dict[str, JSON]] = field(default_factory=list)
    jobs: list[dict[str, JSON]] = field(default_factory=list)
    pods: list[dict[str, JSON]] = field(default_factory=list)

    def steps(self, nodes: int) -> dict[str, bool]:
        """Return the steps from TrainJob to Complete, in order, and True for each that has been reached."""
        phases = [(pod.get("status") or {}).get("phase") for pod in self.pods]
        return {
            "TrainJob created": bool(self.train_job),
            "JobSet created": bool(self.job_sets),
            "Job created": bool(self.jobs),
            f"{nodes} pods created": len(phases) >= nodes,
            f"{nodes} pods running": sum(phase in {"Running", "Succeeded"} for phase in phases) >= nodes,
            f"{nodes} pods succeeded": phases.count("Succeeded") >= nodes,
            "Job complete": bool(self.jobs) and all(has_condition(job, "Complete") for job in self.jobs),
            "JobSet completed": bool(self.job_sets)
            and all(has_condition(job_set, "Completed") for job_set in self.job_sets),
            "TrainJob complete": has_condition(self.train_job, "Complete"),
        }

    @property
    def failure(self) -> str:
        """Why the TrainJob failed; empty while it has not."""
        for condition in conditions(self.train_job):
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                return f"{condition.get('reason')}: {condition.get('message')}"
        return ""

    @property
    def objects(self) -> list[dict[str, JSON]]:
        """All objects, from the TrainJob down."""
        return [each for each in [self.train_job, *self.job_sets, *self.jobs, *self.pods] if each]


@dataclass
class Milestones:
    """The time at which each step was first seen."""

    nodes: int
    clock: Callable[[], float] = time.monotonic
    taken: dict[str, float] = field(default_factory=dict)
    began: float = 0.0

    def begin(self) -> None:
        """Start the clock: the TrainJob is about to be created."""
        self.began = self.clock()

    def see(self, observed: Observed) -> None:
        """Note the steps that are new in ``observed``."""
        for step, taken in observed.steps(self.nodes).items():
            if taken:
                self.taken.setdefault(step, self.clock() - self.began)

    def times(self) -> dict[str, float | None]:
        """Return the seconds after which each step was first seen, in the order of the steps."""
        return {step: self.taken.get(step) for step in Observed().steps(self.nodes)}


def conditions(manifest: dict[str, JSON]) -> list[dict[str, JSON]]:
    """Return an object's conditions."""
    return (manifest.get("status") or {}).get("conditions") or []


def has_condition(manifest: dict[str, JSON], kind: str) -> bool:
    """Return True if the condition of that type is True."""
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions(manifest))


def train_job(nodes: int) -> TrainJob:
    """Return the demo's TrainJob."""
    spec = {
        "runtimeRef": {"name": RUNTIME},
        "trainer": {
            "numNodes": nodes,
            "command": ["torchrun", "train.py"],
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}},
        },
    }
    return TrainJob.from_dict({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})


async def observe(client: LiveClient) -> Observed:
    """Return the objects of the TrainJob now."""

    async def listed(kind: type[Object]) -> list[dict[str, JSON]]:
        return [each.to_dict() for each in await client.list(kind, namespace=NAMESPACE)]

    found = await listed(TrainJob)
    return Observed(found[0] if found else {}, await listed(JobSet), await listed(Job), await listed(Pod))


def created(observed: Observed) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, name, state and node of each object."""
    for each in observed.objects:
        status = each.get("status") or {}
        true = [str(condition["type"]) for condition in conditions(each) if condition.get("status") == "True"]
        state = status.get("phase") or (true[-1] if true else "")
        yield each["kind"], each["metadata"]["name"], state, (each.get("spec") or {}).get("nodeName", "")
