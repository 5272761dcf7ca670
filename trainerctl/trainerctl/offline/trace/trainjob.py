# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The trace of one TrainJob through the manager's pipeline: the steps, and the fields that cause each change."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller_runtime.machinery import JSON
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainingRuntimeSpec, TrainJob
from pkg.runtime import core

from trainerctl.offline import trainjobs
from trainerctl.offline.rendering import manifest
from trainerctl.offline.trace.causes import Causes
from trainerctl.offline.trace.diff import ABSENT, Change
from trainerctl.offline.trace.pipeline import PipelineObserver, State, Step, add_objects
from trainerctl.offline.trainjobs import Offline, Subject


@dataclass(slots=True)
class TrainJobTrace:
    """One TrainJob's steps through the pipeline."""

    subject: Subject
    pipeline: PipelineObserver
    causes: Causes = field(default_factory=Causes)
    refusal: str | None = None
    """Why the pipeline or the webhook refuses the TrainJob."""

    def to_dict(self) -> dict[str, JSON]:
        """Return the trace as JSON."""
        return {
            "trainJob": str(self.subject.train_job.key),
            "runtime": self.subject.runtime,
            **({"refused": self.refusal} if self.refusal else {}),
            "steps": [self._step(step) for step in self.pipeline.steps],
        }

    def _step(self, step: Step) -> dict[str, JSON]:
        return {
            "stage": step.stage,
            **({"by": step.author} if step.author else {}),
            **({"stoodAside": step.aside} if step.aside else {}),
            **({"notes": list(step.notes)} if step.notes else {}),
            "changes": [self._change(change) for change in step.changes],
        }

    def _change(self, change: Change) -> dict[str, JSON]:
        causes = self.causes.of(change)
        return {
            "path": change.where,
            **({"before": change.before} if change.before is not ABSENT else {}),
            **({"after": change.after} if change.after is not ABSENT else {}),
            **({"dueTo": causes} if causes else {}),
        }


async def reviewed(given: Offline, subject: Subject) -> TrainJobTrace:
    """Return the trace of a TrainJob; the webhook's denial is its refusal if the pipeline has none."""
    found = await trace(given, subject)
    if found.refusal is None:
        found.refusal = await trainjobs.denial(given, subject.train_job)
    return found


async def trace(given: Offline, subject: Subject) -> TrainJobTrace:
    """Run the pipeline under observation, then search for the causes of the changes."""
    found = TrainJobTrace(subject, PipelineObserver(subject.train_job, manifest))
    served = given.runtimes[core.TRAINING_RUNTIME_GROUP_KIND]
    if not isinstance(served, core.TrainingRuntime):
        raise TypeError(f"{core.TRAINING_RUNTIME_GROUP_KIND} is served by a {type(served).__name__}")
    served.observe(found.pipeline)
    try:
        await trainjobs.objects(given, subject.train_job)
    except trainjobs.RefusedError as error:
        found.refusal = str(error)
        return found
    finally:
        served.observe(None)

    async def run(spec: TrainingRuntimeSpec, train_job: TrainJob) -> State:
        return add_objects({}, await served.objects_from(spec, train_job), manifest)

    await found.causes.find(await _spec(given, subject.train_job), subject.train_job, run)
    return found


async def _spec(given: Offline, train_job: TrainJob) -> TrainingRuntimeSpec:
    ref = train_job.spec.runtime_ref
    if ref.kind == TrainingRuntime.gvk.kind:
        return (await given.client.get(TrainingRuntime, (train_job.namespace, ref.name))).spec
    return (await given.client.get(ClusterTrainingRuntime, ("", ref.name))).spec
