# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Info: the training runtime of one TrainJob, which the plugins change one after the other.

Each reconcile or validation creates its own Info. Plugins change this Info in place: counts, environment, volumes,
labels. The Info has its own lists, but the items of these lists (an EnvVar, a Volume) may be shared with the runtime. A
plugin therefore replaces an item and never changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
from controller_runtime.apis.core.v1 import Container as CoreContainer
from controller_runtime.apis.core.v1 import (
    ContainerPort,
    EnvVar,
    PodSpec,
    ResourceRequirements,
    Volume,
    VolumeMount,
)
from controller_runtime.machinery import GroupKind, quantity

from pkg.apis.jobset.v1alpha2 import JobSetSpec, ReplicatedJob
from pkg.apis.trainer.v1alpha1 import MLPolicy, PodGroupPolicy, RuntimeRef, TrainJob
from pkg.constants import trainer as constants
from pkg.util import resources

A = TypeVar("A")

_GPU: Final = "gpu"


class Container(msgspec.Struct):
    """The fields of a container that plugins read and change."""

    name: str
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    volume_mounts: list[VolumeMount] | None = None
    image: str | None = None
    """The image that replaces the template's image, or the image of an added container.

    None keeps the template's image.
    """
    command: list[str] | None = None
    """The command that replaces the template's command, or the command of an added container.

    None keeps the template's command.
    """


def _no_hosts(_pod_set: PodSet) -> Iterable[str]:
    return ()


class PodSet(msgspec.Struct):
    """The pods of one PodSpec of the template: their number and the fields that plugins change."""

    name: str
    ancestor: str | None = None
    """The value of the ancestor-step label, or None."""
    count: int = 1
    init_containers: list[Container] = []
    """The template's init containers. A container that a plugin appends to this list is added to the template."""
    containers: list[Container] = []
    volumes: list[Volume] | None = None
    hosts: Callable[[PodSet], Iterable[str]] = _no_hosts
    """Returns the host names of a pod set's pods. Call it through :attr:`endpoints`, with the current ``count``."""
    single_pod_requests: dict[str, str] = {}
    """The resource requests of one pod. The requests of the set are ``count`` times as large."""

    @property
    def endpoints(self) -> Iterable[str]:
        """The host names of the pods, for the current ``count``."""
        return self.hosts(self)


class RuntimePolicy(msgspec.Struct):
    """The runtime's policies. They are shared with the runtime: plugins replace them and never change them."""

    ml_policy_source: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None


class Scheduler(msgspec.Struct):
    """The changes that gang scheduling makes to the pods."""

    pod_labels: dict[str, str] = {}
    pod_annotations: dict[str, str] = {}
    gang_version: str = ""
    """The version of scheduling.k8s.io in which the template's pods name their gang; empty if the pods name no gang."""


@dataclass(slots=True)
class TemplateSpec:
    """The template that will be applied, and a pod set for each of its jobs, in the same order."""

    obj_apply: object = None
    pod_sets: list[PodSet] = field(default_factory=list)


class Info(msgspec.Struct):
    """The runtime of a TrainJob before the objects are built."""

    labels: dict[str, str] = {}
    """Labels of the object built from the template."""
    annotations: dict[str, str] = {}
    runtime_policy: RuntimePolicy = msgspec.field(default_factory=RuntimePolicy)
    scheduler: Scheduler = msgspec.field(default_factory=Scheduler)
    template: TemplateSpec | Callable[[], TemplateSpec] = msgspec.field(default_factory=TemplateSpec)
    """The template, or the function that builds it: the validation of most TrainJobs does not need a template.

    The function is called at most once, and must not raise an error. Read :attr:`template_spec` instead.
    """
    policies: frozenset[str] = frozenset()
    """The fields that the runtime's policies set, such as ``mlPolicy.torch`` and ``podGroupPolicy.volcano``."""
    trainer_command: list[str] | None = None
    """The command of the trainer's containers, if it differs from the TrainJob's command."""
    trainer_args: list[str] | None = None
    """The arguments of the trainer's containers, if they differ from the TrainJob's arguments."""
    wrapped_command: list[str] = []
    """The trainer's original command line, if a plugin replaced it by a script, which runs the original."""

    @property
    def template_spec(self) -> TemplateSpec:
        """The template that will be applied."""
        if not isinstance(self.template, TemplateSpec):
            self.template = self.template()
        return self.template

    @property
    def ml_policy(self) -> MLPolicy:
        """The runtime's mlPolicy; an empty one if the runtime has none."""
        return self.runtime_policy.ml_policy_source or MLPolicy()

    @property
    def replicated_jobs(self) -> Sequence[ReplicatedJob]:
        """The jobs of the template."""
        spec = template_spec_apply(self, JobSetSpec)
        return (spec.replicated_jobs if spec is not None else None) or ()

    def find_pod_set_by_ancestor(self, ancestor: str) -> PodSet | None:
        """Return the first pod set with this ancestor-step label."""
        for pod_set in self.template_spec.pod_sets:
            if pod_set.ancestor == ancestor:
                return pod_set
        return None

    def find_pod_set_by_name(self, name: str) -> PodSet | None:
        """Return the pod set of this name."""
        return next((ps for ps in self.template_spec.pod_sets if ps.name == name), None)

    def find_container_by_pod_set_ancestor_container_name(self, ancestor: str, name: str) -> Container | None:
        """Return the container of this name in the first pod set with this ancestor-step label."""
        pod_set = self.find_pod_set_by_ancestor(ancestor)
        for container in pod_set.containers if pod_set is not None else ():
            if container.name == name:
                return container
        return None

    def find_container_by_pod_set_name(self, pod_set: str, name: str) -> Container | None:
        """Return the container of this name in a pod set.

        If there is none, return the init container of this name, or None.
        """
        found = self.find_pod_set_by_name(pod_set)
        if found is None:
            return None
        every = (*found.containers, *found.init_containers)
        return next((container for container in every if container.name == name), None)


def new_info(
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    ml_policy: MLPolicy | None = None,
    pod_group_policy: PodGroupPolicy | None = None,
    template_spec_obj_apply: object = None,
    pod_sets: Sequence[PodSet] = (),
) -> Info:
    """Return an Info with copies of the maps and lists."""
    policies: list[str] = []
    for name, policy in (("mlPolicy", ml_policy), ("podGroupPolicy", pod_group_policy)):
        if policy is not None:
            for key in policy.model_fields_set:
                if getattr(policy, key) is not None:
                    policies.append(f"{name}.{key}")  # noqa: PERF401  # a comprehension is slower
    return Info(
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        runtime_policy=RuntimePolicy(ml_policy, pod_group_policy),
        template=TemplateSpec(template_spec_obj_apply, list(pod_sets)),
        policies=frozenset(policies),
    )


def new_pod_set(name: str, ancestor: str | None, count: int, spec: PodSpec) -> PodSet:
    """Return the pod set for a PodSpec of the template. The pod set has at least one pod."""
    copies: list[list[Container]] = []
    for containers in (spec.init_containers, spec.containers):
        copies.append([])
        for each in containers or ():
            env = None if each.env is None else list(each.env)
            ports = None if each.ports is None else list(each.ports)
            mounts = None if each.volume_mounts is None else list(each.volume_mounts)
            copies[-1].append(Container(each.name, env, ports, mounts))
    return PodSet(
        name=name,
        ancestor=ancestor,
        count=max(count, 1),
        init_containers=copies[0],
        containers=copies[1],
        volumes=None if spec.volumes is None else list(spec.volumes),
        single_pod_requests=resources.pod_requests(spec),
    )


def ancestor_of(job: ReplicatedJob) -> str | None:
    """Return the step of the TrainJob that a job of the template carries out, from its label, or None."""
    metadata = job.template.metadata
    return (metadata.labels or {}).get(constants.LABEL_TRAIN_JOB_ANCESTOR) if metadata is not None else None


def containers_of(job: ReplicatedJob, name: str) -> list[CoreContainer]:
    """Return the containers of this name in a job of the template."""
    return [each for each in job.template.spec.template.spec.containers or () if each.name == name]


def trainers(jobs: Iterable[ReplicatedJob], ml_policy: MLPolicy) -> Iterator[CoreContainer]:
    """Yield the containers ``node`` of the trainer's jobs and, if an MPI launcher trains too, of the job ``node``."""
    launcher_trains = ml_policy.mpi is not None and ml_policy.mpi.run_launcher_as_node is True
    for job in jobs:
        trains = ancestor_of(job) == constants.ANCESTOR_TRAINER
        if trains or (launcher_trains and job.name == constants.NODE):
            yield from containers_of(job, constants.NODE)


def template_spec_apply(info: Info | None, kind: type[A]) -> A | None:
    """Return the template if it is of this kind, otherwise None."""
    spec = info.template_spec.obj_apply if info is not None else None
    return spec if isinstance(spec, kind) else None


def runtime_ref_to_runtime_registry_key(ref: RuntimeRef) -> str:
    """Return the key under which the runtime for ``ref`` is registered: ``Kind.group``."""
    return str(GroupKind(ref.api_group or "", ref.kind or ""))


def extract_resource_per_node_from_runtime(info: Info) -> ResourceRequirements | None:
    """Return the resources of a container ``node`` in the trainer's job or in a job named ``node``, or None.

    If several such containers set resources, the resources of the first container are returned.

    The TrainJob's own resources are already applied to the trainer's job.
    """
    for job in info.replicated_jobs:
        if job.name == constants.NODE or ancestor_of(job) == constants.ANCESTOR_TRAINER:
            for container in containers_of(job, constants.NODE):
                if container.resources is not None:
                    return container.resources
    return None


def resources_per_node(info: Info, train_job: TrainJob, *, merged: bool) -> ResourceRequirements | None:
    """Return the resources from which the number of processes on a node is derived.

    If the TrainJob sets resources, they are returned instead of the runtime's, even if they are empty. If ``merged`` is
    True, the container also keeps the runtime's resources (Trainer v2.3). Unlike upstream, the result then has those
    that the TrainJob does not name. Any GPU that the TrainJob names stands for all GPUs, as in upstream.

    The container may have other resources than the result: the TrainJob's resources are not applied to the container if
    they are empty, or if the container belongs to a job ``node`` that lacks the trainer's label. If the MPI launcher
    trains too, the label is not needed.
    """
    trainer = train_job.spec.trainer
    wanted = trainer.resources_per_node if trainer is not None else None
    if wanted is not None and not merged:
        return wanted
    present = extract_resource_per_node_from_runtime(info)
    if wanted is None or present is None:
        return present if wanted is None else wanted
    limits, requests = wanted.limits or {}, wanted.requests or {}
    named = {_counted_as(name) for name in (*limits, *requests)}

    def unnamed(amounts: Mapping[str, str] | None) -> dict[str, str]:
        return {name: held for name, held in (amounts or {}).items() if _counted_as(name) not in named}

    return ResourceRequirements(
        limits={**unnamed(present.limits), **limits}, requests={**unnamed(present.requests), **requests}
    )


def get_num_gpu_per_node(requirements: ResourceRequirements | None) -> int:
    """Return the number of requested GPUs of any vendor. If no GPU is requested, return the limit."""
    if requirements is None:
        return 0
    return _num_gpu(requirements.requests) or max(_num_gpu(requirements.limits), 0)


def _num_gpu(amounts: Mapping[str, str] | None) -> int:
    for name, amount in (amounts or {}).items():
        if _counted_as(name) == _GPU:
            return quantity.value(amount)
    return 0


def _counted_as(resource: str) -> str:
    return _GPU if _GPU in resource.lower() else resource
