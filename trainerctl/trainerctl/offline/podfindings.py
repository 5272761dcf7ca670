# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the lines of the input because of which no pod of an admitted object can start.

These are mistakes in pod templates, and other fields that the remarks of the manager name. The pod templates of a
TrainJob are made from its runtime and the TrainJob. The line is looked for in the TrainJob's overrides, patches and
trainer, then in the runtime. If the runtime is not in the files, the TrainJob's reference to it is named. The pod
templates of a runtime are also checked without a TrainJob.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.machinery import JSON
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import Remark, Runtime, about_runtime, about_train_job
from pkg.util.podtemplate import Violation, violations

from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.problem import Path, parse, render

_TEMPLATE: Path = ("template", "spec", "template")
_IN_TEMPLATE = 6
"""The number of steps from a JobSet to the pod template of a job, of which the last ones are ``_TEMPLATE``."""


@dataclass(frozen=True, slots=True)
class PodFinding:
    """A mistake in a pod template, and the object and field of the input that cause it."""

    violation: Violation
    document: InputObject
    path: Path

    def __str__(self) -> str:
        return str(self.document.error(self.path, self.violation.sentence))

    def to_dict(self) -> dict[str, JSON]:
        error = self.violation.error
        return {
            **_place(self.document, self.path),
            "job": self.violation.job,
            "jobField": error.field,
            "message": error.body,
        }


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A field because of which no pod of an admitted object can start. It is not part of a pod template."""

    document: InputObject
    path: Path
    text: str
    """The problem. If the field is not in the input, the text begins with its object and path."""

    def __str__(self) -> str:
        return str(self.document.error(self.path, self.text))

    def to_dict(self) -> dict[str, JSON]:
        return {**_place(self.document, self.path), "message": self.text}


def _place(document: InputObject, path: Path) -> dict[str, JSON]:
    return {
        "file": document.source,
        "document": document.number,
        "line": document.line(path),
        "field": render(path),
    }


def obstacles_of_runtime(
    runtime: TrainingRuntime | ClusterTrainingRuntime, document: InputObject
) -> list[Obstacle]:
    """Return the obstacles in a runtime, which is ``document``."""
    return _obstacles(about_runtime(runtime), document)


def _obstacles(remarks: Iterable[Remark], document: InputObject) -> list[Obstacle]:
    return [Obstacle(document, parse(each.path) or (), each.text) for each in remarks if each.prevents_start]


def obstacles_of(
    train_job: TrainJob,
    runtime: TrainingRuntime | ClusterTrainingRuntime,
    document: InputObject,
    documents: Iterable[InputObject],
) -> list[Obstacle]:
    """Return the obstacles in a TrainJob and its runtime. ``documents`` are all objects of the input."""
    found = _obstacles(about_train_job(train_job, runtime.spec), document)
    for of_input in _runtimes_of(train_job, documents):
        return found + obstacles_of_runtime(runtime, of_input)
    named = f"{runtime.gvk.kind} {runtime.name}"
    return found + [
        Obstacle(document, ("spec", "runtimeRef"), f"{named}: {each}")
        for each in about_runtime(runtime)
        if each.prevents_start
    ]


async def pod_findings(
    runtime: Runtime, train_job: TrainJob, document: InputObject, documents: Iterable[InputObject]
) -> list[PodFinding]:
    """Return the mistakes in the pod templates of a TrainJob. ``documents`` are all objects of the input."""
    found = await runtime.template_violations(train_job)
    if not found:
        return []
    of_runtime = _runtimes_of(train_job, documents)
    # A trainer that has no effect on a job is not the cause of the job's mistakes.
    kept = {_identity(each) for each in await runtime.template_violations(_with_harmless_trainer(train_job))}
    return [_located(each, document, of_runtime, by_trainer=_identity(each) not in kept) for each in found]


def pod_findings_of_runtime(
    runtime: TrainingRuntime | ClusterTrainingRuntime, document: InputObject
) -> list[PodFinding]:
    """Return the mistakes in the pod templates of a runtime, which is ``document``."""
    found = violations(runtime.spec.template.to_dict(), of_runtime=True)
    return [_located_in_runtime(each, document) for each in found]


def _runtimes_of(train_job: TrainJob, documents: Iterable[InputObject]) -> list[InputObject]:
    """Return the objects of the input that have the kind and name of the TrainJob's runtime."""
    ref = train_job.spec.runtime_ref
    return [
        each
        for each in documents
        if (each.data["kind"], (meta := each.data.get("metadata") or {}).get("name")) == (ref.kind, ref.name)
        and (ref.kind == ClusterTrainingRuntime.gvk.kind or _is_in(meta, train_job.namespace))
    ]


def _is_in(metadata: JSON, namespace: str) -> bool:
    return metadata.get("namespace") in (None, "", namespace)


def _identity(violation: Violation) -> tuple[Path, str]:
    return violation.keyed, violation.error.detail


def _with_harmless_trainer(train_job: TrainJob) -> TrainJob:
    """Return a copy whose trainer makes no mistake in the container that it changes."""
    copied = train_job.deep_copy()
    if (trainer := copied.spec.trainer) is not None:
        trainer.image, trainer.env = "image", None
        if trainer.resources_per_node is not None:
            trainer.resources_per_node = ResourceRequirements(limits={"cpu": "1"})
    return copied


def _located(
    violation: Violation, document: InputObject, runtimes: list[InputObject], *, by_trainer: bool
) -> PodFinding:
    for path, is_complete in _in_train_job(violation, document.data, by_trainer=by_trainer):
        if is_complete:
            return PodFinding(violation, document, path)
    for runtime in runtimes:
        return _located_in_runtime(violation, runtime)
    return PodFinding(violation, document, ("spec", "runtimeRef"))


def _located_in_runtime(violation: Violation, document: InputObject) -> PodFinding:
    path, _ = _descend(document.data, ("spec", "template", *violation.keyed), violation.path[-1:])
    return PodFinding(violation, document, path)


def _in_train_job(violation: Violation, data: JSON, *, by_trainer: bool) -> Iterator[tuple[Path, bool]]:
    """Yield the paths in a TrainJob at which the value may be set, the strongest first, and whether it is set there."""
    below, last = violation.keyed[_IN_TEMPLATE:], violation.path[-1:]
    spec = data.get("spec") or {}
    if not violation.job:
        yield _descend(data, ("spec", *violation.keyed[1:]), last)
    for index in reversed(range(len(spec.get("runtimePatches") or ()))):
        start = ("spec", "runtimePatches", index, "trainingRuntimeSpec", "template")
        yield _descend(data, (*start, *violation.keyed), last)
    if violation.keyed[3:_IN_TEMPLATE] != _TEMPLATE:
        return
    for index, override in reversed(list(enumerate(spec.get("podTemplateOverrides") or ()))):
        if any(target.get("name") == violation.keyed[2] for target in override.get("targetJobs") or ()):
            yield _descend(data, ("spec", "podTemplateOverrides", index, *below), last)
    if by_trainer and below[:3] == ("spec", "containers", constants.NODE):
        field, *rest = below[3:]
        if field == "resources" and (spec.get("trainer") or {}).get("resourcesPerNode"):
            path, _ = _descend(data, ("spec", "trainer", "resourcesPerNode", *rest), last)
            yield path, True
        elif field in ("image", "env"):
            yield _descend(data, ("spec", "trainer", field, *rest), last)


def _descend(data: JSON, steps: Path, last: Path) -> tuple[Path, bool]:
    """Follow ``steps`` as far as possible; return the path, and True if at most the ``last`` step is missing.

    A text in place of an index is the name of an item.
    """
    path: Path = ()
    for number, step in enumerate(steps):
        if isinstance(data, dict) and step in data:
            data, path = data[step], (*path, step)
        elif isinstance(data, list) and (index := _index(data, step)) is not None:
            data, path = data[index], (*path, index)
        else:
            is_last = number == len(steps) - 1 and isinstance(data, dict) and steps[-1:] == last
            return ((*path, step) if is_last else path), is_last
    return path, True


def _index(items: list[JSON], step: str | int) -> int | None:
    if isinstance(step, int):
        return step if step < len(items) else None
    names = [each.get("name") if isinstance(each, dict) else None for each in items]
    return names.index(step) if step in names else None
