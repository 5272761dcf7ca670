# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Observes how the manager's pipeline turns a TrainJob into objects, and records the author of each change.

Each stage is shown as changes to the resulting objects. For example, a value that a plugin sets in the pipeline's
``Info`` appears at its path in the JobSet. Each change has one author. If all changes are applied to the template in
order, they give the result.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from controller_runtime.machinery import JSON, Object, Struct
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import Info, PodSet
from pkg.runtime.framework import Observer, Plugin, PodNetworkPlugin

from trainerctl.offline.trace.diff import Change, difference

TEMPLATE: Final = "Template"
OVERRIDES: Final = "Overrides"
LABELS: Final = "Labels and counts"

_JOB_SET: Final = JobSet.gvk.kind
State = dict[str, JSON]
"""Objects by kind. The key of the first object of a kind is the kind. The keys of further objects are the kind and the
name.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """The changes that one author makes in one stage."""

    stage: str
    author: str
    changes: list[Change]
    aside: str | None = None
    """If the author has changed nothing and gave a reason, the reason."""
    notes: tuple[str, ...] = ()


class PipelineObserver(Observer):
    """Records one pass of one TrainJob through the pipeline."""

    def __init__(self, train_job: TrainJob, shown: Callable[[Object], dict[str, JSON]]) -> None:
        self._train_job = train_job
        self._shown = shown
        self.steps: list[Step] = []
        self.template_state: State = {}
        """The state before the first change."""
        self.state: State = {}

    def template(self, spec: dict[str, JSON], change: str) -> None:
        """Record the template, or a change that the TrainJob makes to the template."""
        state = {**self.state, _JOB_SET: {"spec": copy.deepcopy(spec)}}
        if not change:
            self.template_state = self.state = state
            self.steps.append(Step(TEMPLATE, "", [], notes=_pods(spec)))
            return
        self._advance(OVERRIDES, change, state)

    def begin(self, info: Info) -> None:
        """Record the labels, annotations and counts from the runtime and the TrainJob.

        No plugin has run at this point.
        """
        self._advance(LABELS, "runtime and TrainJob", self._seen(info))

    def ran(self, stage: type[Plugin], plugin: Plugin, info: Info, objects: Sequence[Object]) -> None:
        """Record the changes of a plugin."""
        state = self._seen(info)
        add_objects(state, objects, self._shown)
        aside = plugin.why_skipped(info, self._train_job)
        notes = _endpoints(info.template_spec.pod_sets) if issubclass(stage, PodNetworkPlugin) else ()
        self._advance(stage.__name__.removesuffix("Plugin"), plugin.name, state, aside, notes)

    def _advance(
        self, stage: str, author: str, state: State, aside: str | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        changes = list(difference(self.state, state))
        self.steps.append(Step(stage, author, changes, aside, notes))
        self.state = state

    def _seen(self, info: Info) -> State:
        """Return the objects, with the current values in the pipeline's ``Info`` filled in."""
        built = self.state.get(_JOB_SET, {})
        if "kind" in built:
            return dict(self.state)
        template = info.template_spec.obj_apply
        job_set: dict[str, JSON] = {"spec": template.to_dict() if isinstance(template, Struct) else {}}
        metadata = {"labels": dict(info.labels), "annotations": dict(info.annotations)}
        if present := {name: held for name, held in metadata.items() if held}:
            job_set["metadata"] = present
        jobs = job_set["spec"].get("replicatedJobs") or []
        for job, pod_set in zip(jobs, info.template_spec.pod_sets, strict=False):
            _write_pod_set(job["template"]["spec"], pod_set)
            _write_info(job, info)
        return {**self.state, _JOB_SET: job_set}


def add_objects(state: State, objects: Sequence[Object], shown: Callable[[Object], dict[str, JSON]]) -> State:
    """Add objects to a state and return it."""
    for obj in objects:
        name = obj.gvk.kind
        taken = state.get(name, {})
        if "kind" in taken and taken["metadata"].get("name") != obj.name:
            name = f"{name} {obj.name}"
        state[name] = shown(obj)
    return state


def _write_pod_set(spec: dict[str, JSON], pod_set: PodSet) -> None:
    """Copy the fields of a pod set that plugins may change into ``spec``. The JobSet plugin uses the same paths."""
    if pod_set.count != spec.get("parallelism", 1):
        spec["parallelism"] = pod_set.count
    pod = spec["template"]["spec"]
    _write(pod, "volumes", pod_set.volumes)
    added = pod_set.init_containers[len(pod.get("initContainers", ())) :]
    if added:
        pod["initContainers"] = [*pod.get("initContainers", ()), *({"name": each.name} for each in added)]
    for containers, changes in (
        (pod.get("containers", ()), pod_set.containers),
        (pod.get("initContainers", ()), pod_set.init_containers),
    ):
        for container, changed in zip(containers, changes, strict=False):
            _write(container, "env", changed.env)
            _write(container, "ports", changed.ports)
            _write(container, "volumeMounts", changed.volume_mounts)
            container |= {
                name: value
                for name, value in (("image", changed.image), ("command", changed.command))
                if value is not None
            }


def _write(holder: dict[str, JSON], name: str, items: Sequence[Struct] | None) -> None:
    if items is not None:
        holder[name] = [item.to_dict() for item in items]


def _write_info(job: dict[str, JSON], info: Info) -> None:
    template = job["template"]["spec"]["template"]
    for name, added in (
        ("labels", info.scheduler.pod_labels),
        ("annotations", info.scheduler.pod_annotations),
    ):
        if added:
            metadata = template.setdefault("metadata", {})
            metadata[name] = {**metadata.get(name, {}), **added}
    labels = job["template"].get("metadata", {}).get("labels", {})
    if labels.get(constants.LABEL_TRAIN_JOB_ANCESTOR) != constants.ANCESTOR_TRAINER:
        return
    for container in template["spec"].get("containers", ()):
        if container.get("name") == constants.NODE:
            for name, words in (("command", info.trainer_command), ("args", info.trainer_args)):
                if words:
                    container[name] = list(words)


def _pods(spec: dict[str, JSON]) -> tuple[str, ...]:
    jobs = spec.get("replicatedJobs") or ()
    return (f"jobs: {', '.join(str(job.get('name')) for job in jobs) or 'none'}",)


def _endpoints(pod_sets: Sequence[PodSet]) -> tuple[str, ...]:
    notes = []
    for pod_set in pod_sets:
        first = next(itertools.islice(pod_set.endpoints, 1), None)
        if first is not None:
            more = f" and {pod_set.count - 1} more" if pod_set.count > 1 else ""
            notes.append(f"{pod_set.name} is {first}{more}")
    return tuple(notes)
