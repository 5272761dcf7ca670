# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The fields of TrainJob and runtime that cause a change.

They are found by trial: the pipeline runs again without one field, and that field causes the differences. This holds
for every plugin.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from controller_runtime.machinery import JSON
from pkg.apis.trainer.v1alpha1 import TrainingRuntimeSpec, TrainJob

from trainerctl.offline.trace.diff import Change, Path, difference, touches

Data = dict[str, JSON]
Run = Callable[[TrainingRuntimeSpec, TrainJob], Awaitable[object]]
"""Runs the pipeline and returns its result in the form in which changes are recorded."""


class Causes:
    """Fields, each with the paths of the result that depend on it."""

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
        """Try every field of the TrainJob's spec and of the runtime's policies."""
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
    """Yield the paths of the fields of a map and of its nested maps."""
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
