# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The trace of one TrainJob through the manager's pipeline: the steps, and the fields that cause each change.

The causes are found by trial. We run the pipeline again without one field; this field is the cause of all differences.
This works for every plugin.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from controller_runtime.machinery import JSON
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainingRuntimeSpec, TrainJob
from pkg.runtime import about_runtime, core

from trainerctl.offline import trainjobs
from trainerctl.offline.rendering import manifest
from trainerctl.offline.trace.diff import ABSENT, Change, Path, difference, touches
from trainerctl.offline.trace.pipeline import PipelineObserver, State, Step, add_objects
from trainerctl.offline.trainjobs import Offline, Subject

Data = dict[str, JSON]
Run = Callable[[TrainingRuntimeSpec, TrainJob], Awaitable[object]]
"""Runs the pipeline and returns the objects in the same form as the recorded changes."""


class Causes:
    """Fields that affect the result. For each field, the paths in the result that depend on it."""

    def __init__(self) -> None:
        self._found: list[tuple[str, list[Path]]] = []

    def of(self, change: Change) -> list[str]:
        """Return the most specific fields that cause a change."""
        names = [name for name, paths in self._found if any(touches(path, change.path) for path in paths)]
        return [
            name
            for name in names
            if not any(other.startswith(f"{name}.") for other in names if other != name)
        ]

    async def find(self, spec: TrainingRuntimeSpec, train_job: TrainJob, run: Run) -> None:
        """For each field, run the pipeline without it and record the changes.

        The fields are in the TrainJob's spec and in the runtime's policies.
        """
        whole = await run(spec, train_job)
        for name, changed_spec, changed_job in _variants(spec, train_job):
            with suppress(Exception):  # a plugin may require the field: there is no result to compare
                other = await run(changed_spec, changed_job)
                if paths := [change.path for change in difference(other, whole)]:
                    self._found.append((name, paths))


def _variants(
    spec: TrainingRuntimeSpec, train_job: TrainJob
) -> Iterator[tuple[str, TrainingRuntimeSpec, TrainJob]]:
    job = train_job.to_dict()
    for path in _fields(job["spec"], {"runtimeRef", "podTemplateOverrides", "managedBy"}, 3):
        yield f"spec.{'.'.join(path)}", spec, TrainJob.from_dict(_without(job, ("spec", *path)))
    runtime = spec.to_dict()
    for path in _fields(runtime, {"template"}, 3):
        yield f"runtime's {'.'.join(path)}", TrainingRuntimeSpec.from_dict(_without(runtime, path)), train_job


def _fields(data: Data, left_out: set[str], depth: int) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all fields in a map and its nested maps. A path has at most ``depth`` steps."""
    for name, held in data.items():
        if name in left_out:
            continue
        yield (name,)
        if depth > 1 and isinstance(held, dict) and name not in ("labels", "annotations", "resourcesPerNode"):
            for below in _fields(held, set(), depth - 1):
                yield (name, *below)


def _without(data: Data, path: tuple[str, ...]) -> Data:
    copied = copy.deepcopy(data)
    holder = copied
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return copied


@dataclass(slots=True)
class TrainJobTrace:
    """One TrainJob's steps through the pipeline."""

    subject: Subject
    pipeline: PipelineObserver
    causes: Causes = field(default_factory=Causes)
    refusal: str | None = None
    """The reason why the pipeline or the webhook refuses the TrainJob, or None."""
    warnings: list[str] = field(default_factory=list)
    """The webhook's warnings about the TrainJob, and the remarks about its runtime."""

    def to_dict(self) -> dict[str, JSON]:
        return {
            "trainJob": str(self.subject.train_job.key),
            "runtime": self.subject.runtime,
            **({"refused": self.refusal} if self.refusal else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
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
    """Return the trace of a TrainJob. If the pipeline does not refuse the TrainJob, ask the webhook, too."""
    found = await trace(given, subject)
    if found.refusal is None:
        found.refusal, warnings = await trainjobs.denial(given, subject.train_job)
        runtime = await _runtime(given, subject.train_job)
        of_runtime = [f"{runtime.gvk.kind} {runtime.name}: {each}" for each in about_runtime(runtime)]
        found.warnings = [*warnings, *of_runtime]
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

    await found.causes.find((await _runtime(given, subject.train_job)).spec, subject.train_job, run)
    return found


async def _runtime(given: Offline, train_job: TrainJob) -> TrainingRuntime | ClusterTrainingRuntime:
    ref = train_job.spec.runtime_ref
    if ref.kind == TrainingRuntime.gvk.kind:
        return await given.client.get(TrainingRuntime, (train_job.namespace, ref.name))
    return await given.client.get(ClusterTrainingRuntime, ("", ref.name))
