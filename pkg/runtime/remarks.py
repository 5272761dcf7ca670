# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Remarks about fields of TrainJobs and runtimes that have no effect, or values with which no pod can start.

A remark never refuses anything: releases of Kubeflow Trainer accept these objects. The webhooks return remarks as
warnings, and ``trainerctl`` and ``why`` show them. Pod templates are not checked here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import equality, names

from pkg.apis.jobset.v1alpha2 import DEPENDENCY_READY, FailurePolicyRule, ReplicatedJob
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    MLPolicy,
    Trainer,
    TrainingRuntime,
    TrainingRuntimeSpec,
    TrainJob,
)
from pkg.apis.volcano.v1beta1 import QUEUE_NAME_ANNOTATION_KEY
from pkg.constants import trainer as constants
from pkg.util import generations

from .runtime import ancestor_of, containers_of, trainers

_PROGRAM: Final = ("image", "command", "args")
_STEPS: Final = (
    constants.ANCESTOR_TRAINER,
    constants.DATASET_INITIALIZER,
    constants.MODEL_INITIALIZER,
)
_LABEL: Final = constants.LABEL_TRAIN_JOB_ANCESTOR
_ONE_TRAINER: Final = ("torch", "jax", "xgboost")
_WITH_HOSTS: Final = ("torch", "mpi", "jax", "xgboost", "flux")
"""Frameworks of the mlPolicy whose nodes connect to a host name."""
_MOST: Final = 16
"""Maximum number of remarks about one object: a runtime may have thousands of replicated jobs."""
_NO_VOLCANO: Final = "the runtime has no podGroupPolicy.volcano"
_LONGEST_NAME: Final = 63
"""Maximum number of characters of the name of a pod or a claim of a JobSet, and of a label's value."""
_NO_LABEL: Final = (
    "must consist of at most 63 lower case letters, digits and hyphens, and begin with a letter"
)
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_JOB_SET_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
_NO_JOB: Final = "is not the name of a job"
_PART_OF_NAME: Final = re.compile("[-a-z0-9]*")
_RULE_NAME: Final = re.compile(r"(?=.{1,128}\Z)[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
"""The reasons of a failed Job that a rule of JobSet may name."""
_LONGEST: Final = 64
"""Maximum number of characters of a name in a remark. The API server may cut warnings of more than 256 characters."""


class Remark(msgspec.Struct, frozen=True):
    """One remark. As text, it begins with the field, as errors of the API server do."""

    path: str
    text: str
    prevents_start: bool = False
    """True if no pod of the trainer can run because of this field."""
    is_number: bool = False
    """True if the field is a number that is too small. Other fields have no effect, or an effect that was not meant."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def about_train_job(
    train_job: TrainJob,
    spec: TrainingRuntimeSpec,
    jobs: Sequence[ReplicatedJob] | None = None,
    *,
    merges_resources: bool = False,
) -> list[Remark]:
    """Return the remarks about a TrainJob whose runtime has this ``spec``.

    ``jobs`` are the jobs of the template with the TrainJob's patches. Without patches, they need not be given.
    ``merges_resources`` selects the rules of Trainer v2.3 for ``resourcesPerNode``.
    """
    jobs = (spec.template.spec.replicated_jobs if jobs is None else jobs) or ()
    found: list[Remark] = list(itertools.islice(_long_names(train_job, spec, jobs), 1))
    if (trainer := train_job.spec.trainer) is not None:
        found += _numbers_of(trainer, spec.ml_policy, jobs)
        found += _ineffective(trainer, spec.ml_policy, jobs, merges_resources=merges_resources)
        if trainer.env and spec.ml_policy is not None and spec.ml_policy.torch is not None:
            own = sorted({each.name for each in trainer.env} & constants.TORCH_RUN_RESERVED_ENV_NAMES)
            if own:  # Trainer refuses them only if numProcPerNode is set
                text = (
                    f"{' and '.join(own)}: the value replaces Trainer's, with which the nodes find each other"
                )
                found.append(Remark("spec.trainer.env", text))
    if (initializer := train_job.spec.initializer) is not None:
        for part, name in (
            ("dataset", constants.DATASET_INITIALIZER),
            ("model", constants.MODEL_INITIALIZER),
        ):
            if getattr(initializer, part) is None:
                continue
            if not any(ancestor_of(job) == name and containers_of(job, name) for job in jobs):
                text = f"has no effect: {_where_the_label_belongs(jobs, name, name)}"
                found.append(Remark(f"spec.initializer.{part}", text))
    if QUEUE_NAME_ANNOTATION_KEY in train_job.annotations:
        where = "spec.annotations of the TrainJob or spec.template.metadata.annotations of the runtime"
        belongs = f"for TrainJobs of Trainer, it belongs to {where}"
        found.append(_unread_queue("metadata", belongs if _uses_volcano(spec) else _NO_VOLCANO))
    if QUEUE_NAME_ANNOTATION_KEY in (train_job.spec.annotations or {}) and not _uses_volcano(spec):
        found.append(_unread_queue("spec", _NO_VOLCANO))
    if (train_job.spec.pod_template_overrides or train_job.spec.runtime_patches) and _uses_volcano(spec):
        text = "the gang has the queue of spec.annotations or of the runtime's template"
        found += (_unread_queue(place, text) for place in _queues_of_pods(train_job))
    return found[:_MOST]


def are_due(old: TrainJob | None, new: TrainJob) -> bool:
    """Return True for a new TrainJob, or for a TrainJob with another trainer, initializer or annotations.

    Other updates, for example a suspension by Kueue, get no remarks.
    """
    return old is None or not all(
        equality.deep_equal(before, after)
        for before, after in (
            (old.spec.trainer, new.spec.trainer),
            (old.spec.initializer, new.spec.initializer),
            (old.spec.annotations, new.spec.annotations),
        )
    )


def about_runtime(runtime: TrainingRuntime | ClusterTrainingRuntime) -> list[Remark]:
    """Return the remarks about a runtime, whatever its TrainJobs set."""
    spec = runtime.spec
    template, jobs = spec.template, spec.template.spec.replicated_jobs or ()
    found: list[Remark] = []
    for path, number in _policy_numbers(spec):
        found += _at_least_one(path, number, "a node cannot run {} processes")
    nodes = spec.ml_policy.num_nodes if spec.ml_policy is not None else None
    if nodes is not None and nodes < 1:
        found.append(Remark("spec.mlPolicy.numNodes", f"{nodes} counts as 1", is_number=True))
    found += _of_policy(spec, jobs)
    found += itertools.islice(_refused_by_job_set(spec, jobs), _MOST)
    found += itertools.islice(_of_other_controllers(spec, jobs), _MOST)
    if not any(ancestor_of(job) == constants.ANCESTOR_TRAINER for job in jobs):
        places = [("spec.template", template.metadata), ("", runtime.metadata)]
        for index, job in enumerate(jobs[:_MOST]):
            pod_template = f"spec.template.spec.replicatedJobs[{index}].template.spec.template"
            places.append((pod_template, job.template.spec.template.metadata))
        for place, metadata in places:
            if metadata is not None and (metadata.labels or {}).get(_LABEL) == constants.ANCESTOR_TRAINER:
                path = f"{place}.metadata.labels".removeprefix(".")
                belongs = "it belongs to spec.template.spec.replicatedJobs[*].template.metadata.labels"
                found.append(Remark(path, f"the label {_LABEL} has no effect here: {belongs}"))
    if QUEUE_NAME_ANNOTATION_KEY in runtime.annotations:
        belongs = "it belongs to spec.template.metadata.annotations"
        found.append(_unread_queue("metadata", belongs if _uses_volcano(spec) else _NO_VOLCANO))
    of_template = (template.metadata.annotations if template.metadata is not None else None) or {}
    if QUEUE_NAME_ANNOTATION_KEY in of_template and not _uses_volcano(spec):
        found.append(_unread_queue("spec.template.metadata", _NO_VOLCANO))
    earlier: set[str] = set()
    for index, job in enumerate(jobs):
        if len(found) >= _MOST:
            break
        path = f"spec.template.spec.replicatedJobs[{index}]"
        for position, dependency in enumerate(job.depends_on or ()):
            if dependency.name not in earlier:
                text = f"{_cut(dependency.name)} is not an earlier job of the list: JobSet refuses it, so no pod starts"
                if index > 0 and dependency.name == job.name:  # JobSet does not refuse it
                    text = "the job waits for itself, so none of its pods starts"
                found.append(Remark(f"{path}.dependsOn[{position}].name", text, prevents_start=True))
        earlier.add(job.name)
        found += _of_job(path, job, spec)
    return found[:_MOST]


def _long_names(
    train_job: TrainJob, spec: TrainingRuntimeSpec, jobs: Sequence[ReplicatedJob]
) -> Iterator[Remark]:
    """Yield a remark for each name that would be too long because it contains the name of the TrainJob.

    These are the names of a job's pods, of JobSet's claims, and of the coordinator. JobSet refuses such a JobSet.
    """
    template, policy, name = spec.template.spec, spec.ml_policy, train_job.name
    mpi, trainer = policy.mpi if policy is not None else None, train_job.spec.trainer
    nodes = (trainer.num_nodes if trainer is not None else None) or (policy.num_nodes if policy else None)
    for job in jobs:
        pods = job.template.spec.parallelism or 1
        if mpi is not None and job.name == constants.NODE:
            pods = (nodes or 1) - (mpi.run_launcher_as_node is True)
        elif mpi is None and ancestor_of(job) == constants.ANCESTOR_TRAINER:
            pods = nodes or (pods if policy is None else 1)
        replicas = 1 if ancestor_of(job) in _STEPS else max(job.replicas or 1, 1)
        # Kubernetes appends five characters to the name of a pod.
        longest = len(f"{name}-{job.name}-{replicas - 1}-{max(pods, 1) - 1}-12345")
        yield from _too_long(longest, f"the pods of job {_cut(job.name)} would have names")
    for policy_of_claims in template.volume_claim_policies or ():
        for claim in policy_of_claims.templates or ():
            metadata = claim.get("metadata")
            own = str(metadata.get("name")) if isinstance(metadata, dict) else ""
            yield from _too_long(len(f"{own}-{name}"), f"the claim {_cut(own)} would have a name")
    if (leader := template.coordinator) is not None:
        subdomain = (template.network.subdomain if template.network is not None else None) or name
        host = f"{name}-{leader.replicated_job}-{leader.job_index or 0}-{leader.pod_index or 0}.{subdomain}"
        yield from _too_long(len(host), "the label with the address of the coordinator would have a value")


def _too_long(length: int, what: str) -> Iterator[Remark]:
    if length > _LONGEST_NAME:
        text = f"is too long: {what} of {length} characters, and JobSet allows {_LONGEST_NAME}"
        yield Remark("metadata.name", text, prevents_start=True)


def _numbers_of(trainer: Trainer, policy: MLPolicy | None, jobs: Sequence[ReplicatedJob]) -> Iterator[Remark]:
    nodes, processes = trainer.num_nodes, trainer.num_proc_per_node
    mpi = policy.mpi if policy is not None else None
    if nodes is not None and nodes < 1:
        if mpi is not None and mpi.run_launcher_as_node is True:
            yield Remark(
                "spec.trainer.numNodes", f"{nodes} counts as 2: the launcher and one worker", is_number=True
            )
        else:
            trains = [job for job in jobs if ancestor_of(job) == constants.ANCESTOR_TRAINER]
            counts = any(job.name == constants.NODE for job in jobs) if mpi is not None else bool(trains)
            effect = "a Job cannot have a negative number of pods, so no pod starts"
            if nodes == 0:
                counts = counts and mpi is None  # the launcher of MPI starts
                effect = "no pod trains, but the TrainJob becomes Complete"
                if mpi is not None:
                    effect = "the launcher starts without workers"
            yield Remark(
                "spec.trainer.numNodes",
                f"{nodes} must be at least 1: {effect}",
                prevents_start=counts,
                is_number=True,
            )
    if isinstance(processes, int):
        yield from _at_least_one("spec.trainer.numProcPerNode", processes, "a node cannot run {} processes")


def _ineffective(
    trainer: Trainer, policy: MLPolicy | None, jobs: Sequence[ReplicatedJob], *, merges_resources: bool
) -> Iterator[Remark]:
    """Yield a remark for each reason why fields of the trainer have no effect, or an effect that breaks MPI."""
    ml_policy, mpi = policy or MLPolicy(), policy.mpi if policy is not None else None
    steps = [job for job in jobs if ancestor_of(job) == constants.ANCESTOR_TRAINER]
    programs = [job for job in steps if containers_of(job, constants.NODE)]
    launcher_trains = mpi is not None and mpi.run_launcher_as_node is True
    workers = mpi is not None and any(job.name == constants.NODE for job in jobs)
    launches = any(job.name == constants.LAUNCHER for job in jobs)
    changed = any(True for _ in trainers(jobs, ml_policy))  # containers that get env and resources
    resources = trainer.resources_per_node
    sets_resources = resources is not None and (resources.limits, resources.requests) != (None, None)
    if sets_resources and merges_resources and policy is None:
        yield Remark("spec.trainer.resourcesPerNode", "has no effect: the runtime has no mlPolicy")
        sets_resources = False
    if resources is not None and resources.claims:
        text = "has no effect: Trainer does not pass claims on to pods; set them in the runtime"
        yield Remark("spec.trainer.resourcesPerNode.claims", text)
    injection = ml_policy.torch.env_injection if ml_policy.torch is not None else None
    injects = injection is not None and any(each.container_names for each in injection.targets or ())
    counted = mpi is not None or ml_policy.flux is not None
    if trainer.num_proc_per_node is not None and ml_policy.torch is None and not counted:
        text = "has no effect: the mlPolicy of the runtime names none of torch, mpi and flux"
        yield Remark("spec.trainer.numProcPerNode", text)
    missing = [
        name
        for name, is_set, has_effect in (
            ("numNodes", trainer.num_nodes is not None, bool(workers if mpi is not None else steps)),
            ("image", trainer.image is not None, bool(programs)),
            ("command", trainer.command is not None, bool(programs)),
            ("args", trainer.args is not None, bool(programs)),
            ("env", bool(trainer.env), changed),
            ("resourcesPerNode", sets_resources, changed),
            (
                "numProcPerNode",
                trainer.num_proc_per_node is not None and (ml_policy.torch is not None or mpi is not None),
                workers or launches if mpi is not None else bool(programs) or injects,
            ),
        )
        if is_set and not has_effect
    ]
    if mpi is not None and not workers:
        for name in ("numNodes", "numProcPerNode"):
            if name in missing:
                missing.remove(name)
                text = "has no effect: the runtime has an mpi policy, but no job node"
                yield Remark(f"spec.trainer.{name}", text)
    if missing:
        reason = _where_the_label_belongs(jobs, constants.ANCESTOR_TRAINER, constants.NODE)
        yield Remark("spec.trainer", f"{_listed(missing)} no effect: {reason}")
    if not workers or not programs:
        return
    if constants.NODE not in {job.name for job in programs}:
        # The launcher has the label. Upstream applies only the resources to the workers, if the launcher trains too.
        kept = ["image"] if trainer.image is not None else []
        kept += ["resourcesPerNode"] if sets_resources and not launcher_trains else []
        if kept:
            text = (
                f"{_listed(kept)} no effect on the workers (job node), which keep the values of the runtime"
            )
            yield Remark("spec.trainer", text)
    elif len(programs) > 1 and (replaced := [each for each in _PROGRAM[1:] if getattr(trainer, each)]):
        verb = "replaces" if len(replaced) == 1 else "replace"
        text = f"{' and '.join(replaced)} also {verb} the SSH server of the workers, which the launcher needs"
        remedy = "remove the label trainjob-ancestor-step from job node of the runtime"
        yield Remark("spec.trainer", f"{text}: {remedy}, or set only image")


def _where_the_label_belongs(jobs: Sequence[ReplicatedJob], step: str, container: str) -> str:
    """Return why no container carries out a step, and where the label or container belongs."""
    named = next((job for job in jobs if ancestor_of(job) == step), None)
    if named is not None:
        return f"job {_cut(named.name)} of the runtime has no container {container}"
    misplaced = next(
        (index for index, job in enumerate(jobs) if _labels_of_pods(job).get(_LABEL) == step), None
    )
    index = misplaced
    if index is None:
        index = next((index for index, job in enumerate(jobs) if job.name == container), 0)
    also = "; on the pod template, it does not count" if misplaced is not None else ""
    place = f"replicatedJobs[{index}].template.metadata.labels"
    return f"no job of the runtime has the label {_LABEL}: {step} ({place}){also}"


def _labels_of_pods(job: ReplicatedJob) -> Mapping[str, str]:
    metadata = job.template.spec.template.metadata
    return (metadata.labels if metadata is not None else None) or {}


def _of_job(path: str, job: ReplicatedJob, spec: TrainingRuntimeSpec) -> Iterator[Remark]:
    """Yield the remarks about the numbers of a replicated job, and about its pods' queue."""
    template = job.template.spec
    for name, number in (
        ("backoffLimit", template.backoff_limit),
        ("backoffLimitPerIndex", template.backoff_limit_per_index),
        ("maxFailedIndexes", template.max_failed_indexes),
        ("activeDeadlineSeconds", template.active_deadline_seconds),
        ("ttlSecondsAfterFinished", template.ttl_seconds_after_finished),
    ):
        if number is not None and number < 0:
            text = f"{number} must be at least 0: the API server refuses the Job, so no pod starts"
            yield Remark(f"{path}.template.spec.{name}", text, prevents_start=True, is_number=True)
    if template.active_deadline_seconds == 0:
        text = "0 must be at least 1: the Job fails at once, so none of its pods starts"
        yield Remark(f"{path}.template.spec.activeDeadlineSeconds", text, prevents_start=True, is_number=True)
    ancestor = ancestor_of(job)
    if job.replicas is not None and job.replicas < 1:
        counts = job.replicas == 0 or ancestor in _STEPS  # JobSet's default, and Trainer's value
        text = "counts as 1" if counts else "must be at least 0: JobSet creates no Jobs, so no pod starts"
        yield Remark(f"{path}.replicas", f"{job.replicas} {text}", prevents_start=not counts, is_number=True)
    pods = template.parallelism
    if ancestor == constants.ANCESTOR_TRAINER and spec.ml_policy is not None:
        pods = spec.ml_policy.num_nodes
        if template.parallelism not in (None, pods):
            text = "has no effect: spec.mlPolicy.numNodes is the number of pods"
            yield Remark(f"{path}.template.spec.parallelism", text)
    elif pods is not None and pods < 1:
        yield Remark(f"{path}.template.spec.parallelism", f"{pods} counts as 1", is_number=True)
    if template.completions not in (None, max(pods or 1, 1)):
        text = "has no effect: each Job gets as many completions as it has pods"
        yield Remark(f"{path}.template.spec.completions", text)
    if _uses_volcano(spec):
        text = "the PodGroup of the TrainJob has the queue of spec.template.metadata.annotations"
        for place, metadata in (("", job.template.metadata), (".spec.template", template.template.metadata)):
            if _has_queue(metadata):
                yield _unread_queue(f"{path}.template{place}.metadata", text)


def _policy_numbers(spec: TrainingRuntimeSpec) -> Iterator[tuple[str, int]]:
    """Yield the path and the number of processes of each framework in the mlPolicy."""
    policy = spec.ml_policy or MLPolicy()
    for name in ("torch", "mpi", "flux"):
        number = getattr(getattr(policy, name), "num_proc_per_node", None)
        if isinstance(number, int):
            yield f"spec.mlPolicy.{name}.numProcPerNode", number


def _of_policy(spec: TrainingRuntimeSpec, jobs: Sequence[ReplicatedJob]) -> Iterator[Remark]:
    """Yield the remarks about frameworks that do not find their jobs, or whose nodes do not find each other.

    Also yield those about elastic training, and about a runtime without jobs.
    """
    if not jobs:
        text = "there is no job, so no pod starts, and TrainJobs never end"
        yield Remark("spec.template.spec.replicatedJobs", text, prevents_start=True)
    policy, known = spec.ml_policy or MLPolicy(), {job.name for job in jobs}
    if policy.torch is not None and policy.torch.elastic_policy is not None:
        text = "has no effect: a TrainJob has a fixed number of nodes, which is 1 if it sets none"
        yield Remark("spec.mlPolicy.torch.elasticPolicy", text)
    if policy.mpi is not None and constants.LAUNCHER not in known:
        yield Remark("spec.mlPolicy.mpi", "no pod gets the host file: the runtime has no job launcher")
    elif policy.mpi is not None and constants.NODE not in known and not policy.mpi.run_launcher_as_node:
        yield Remark("spec.mlPolicy.mpi", "the host file is empty: the runtime has no job node")
    trains = [job.name for job in jobs if ancestor_of(job) == constants.ANCESTOR_TRAINER]
    if policy.flux is not None and (others := [name for name in trains if name != constants.NODE]):
        text = f"job {_cut(others[0])} fails: only the pods of a job with the name node get Flux"
        yield Remark("spec.mlPolicy.flux", text)
    rendezvous = next((each for each in _ONE_TRAINER if getattr(policy, each) is not None), None)
    injects = policy.torch is not None and policy.torch.env_injection is not None
    if rendezvous is not None and len(trains) > 1 and not injects:
        first, second = map(_cut, trains[:2])
        text = f"job {second} gets no variables: the nodes are those of job {first}, the first trainer"
        yield Remark(f"spec.mlPolicy.{rendezvous}", text)
    network = spec.template.spec.network
    framework = next((each for each in _WITH_HOSTS if getattr(policy, each) is not None), None)
    if framework is not None and network is not None and network.enable_dns_hostnames is False:
        text = f"the pods have no host names, by which the nodes of {framework} find each other"
        yield Remark("spec.template.spec.network.enableDNSHostnames", text)


def _refused_by_job_set(spec: TrainingRuntimeSpec, jobs: Sequence[ReplicatedJob]) -> Iterator[Remark]:
    """Yield a remark for each value of the template that JobSet's webhook refuses, whatever the TrainJob sets.

    Values that depend on a feature gate of JobSet are not checked, and neither are labels and annotations.
    """
    template, known = spec.template.spec, {job.name for job in jobs}
    for index, job in enumerate(jobs):
        if not _PART_OF_NAME.fullmatch(job.name):
            why = "is part of names, which consist of lower case letters, digits and hyphens"
            yield _refused(f"replicatedJobs[{index}].name", job.name, why)
        if job.group_name and names.is_dns1035_label(job.group_name[: _LONGEST_NAME + 1]):
            yield _refused(f"replicatedJobs[{index}].groupName", job.group_name, _NO_LABEL)
    subdomain = (template.network.subdomain if template.network is not None else None) or ""
    if subdomain and names.is_dns1035_label(subdomain[: _LONGEST_NAME + 1]):
        yield _refused("network.subdomain", subdomain, _NO_LABEL)
    if template.success_policy is not None:
        yield from _unknown_targets("successPolicy", template.success_policy.target_replicated_jobs, known)
    if template.failure_policy is not None:
        yield from _of_rules(template.failure_policy.rules or (), known)
    if (leader := template.coordinator) is not None:
        leads = next((job for job in jobs if job.name == leader.replicated_job), None)
        if leads is None:
            yield _refused("coordinator.replicatedJob", leader.replicated_job, _NO_JOB)
        elif not 0 <= (leader.job_index or 0) < max(leads.replicas or 1, 1):
            yield _refused(
                "coordinator.jobIndex", str(leader.job_index), "is not the index of one of its Jobs"
            )


def _of_rules(rules: Sequence[FailurePolicyRule], known: AbstractSet[str]) -> Iterator[Remark]:
    """Yield the remarks about the rules of JobSet's failure policy. ``known`` are the names of the jobs."""
    taken: set[str] = set()
    for index, rule in enumerate(rules):
        path = f"failurePolicy.rules[{index}]"
        if rule.name in taken:
            yield _refused(f"{path}.name", rule.name, "is the name of an earlier rule")
        elif rule.name and not _RULE_NAME.fullmatch(rule.name[:129]):
            yield _refused(f"{path}.name", rule.name, "is not a valid name of a rule")
        if rule.name:  # JobSet gives the others a name
            taken.add(rule.name)
        yield from _unknown_targets(path, rule.target_replicated_jobs, known)
        for at, reason in enumerate(rule.on_job_failure_reasons or ()):
            if reason not in _FAILURE_REASONS:
                why = "is not a reason for which a Job fails"
                yield _refused(f"{path}.onJobFailureReasons[{at}]", reason, why)


def _unknown_targets(path: str, targets: Sequence[str] | None, known: AbstractSet[str]) -> Iterator[Remark]:
    for index, name in enumerate(targets or ()):
        if name not in known:
            yield _refused(f"{path}.targetReplicatedJobs[{index}]", name, _NO_JOB)


def _refused(path: str, value: str, why: str) -> Remark:
    text = f"{_cut(value)} {why}: JobSet refuses it, so no pod starts"
    return Remark(f"spec.template.spec.{path}", text, prevents_start=True)


def _of_other_controllers(spec: TrainingRuntimeSpec, jobs: Sequence[ReplicatedJob]) -> Iterator[Remark]:
    """Yield the remarks about objects that the scheduler of the gang, or the controller of their kind, leaves alone."""
    waits_for = itertools.chain.from_iterable(job.depends_on or () for job in jobs)
    awaited = {each.name for each in waits_for if each.status != DEPENDENCY_READY}  # they are not in the gang
    for index, job in enumerate(jobs if _uses_volcano(spec) else ()):
        scheduler = job.template.spec.template.spec.scheduler_name or _DEFAULT_SCHEDULER
        if scheduler == _DEFAULT_SCHEDULER and job.name not in awaited:
            path = f"spec.template.spec.replicatedJobs[{index}].template.spec.template.spec.schedulerName"
            text = (
                f"the pods of job {_cut(job.name)} are not in the gang: {_DEFAULT_SCHEDULER} binds each alone"
            )
            yield Remark(path, f"{text}; set the name of Volcano's scheduler, usually volcano")
    manager = spec.template.spec.managed_by
    if manager not in (None, "", _JOB_SET_CONTROLLER):
        text = f"JobSet leaves the JobSet to {_cut(manager)}, so no pod starts here"
        yield Remark("spec.template.spec.managedBy", text, prevents_start=True)


def _at_least_one(path: str, number: int, effect: str) -> Iterator[Remark]:
    if number < 1:
        yield Remark(path, f"{number} must be at least 1: {effect.format(number)}", is_number=True)


def _queues_of_pods(train_job: TrainJob) -> Iterator[str]:
    """Yield the places where a TrainJob gives a queue of Volcano to its Jobs or pods."""
    for index, override in enumerate(train_job.spec.pod_template_overrides or ()):
        if _has_queue(override.metadata):
            yield f"spec.podTemplateOverrides[{index}].metadata"
    for index, patch in enumerate(generations.runtime_patches(train_job.spec)):
        template = patch.training_runtime_spec.template if patch.training_runtime_spec is not None else None
        jobs = template.spec.replicated_jobs if template is not None and template.spec is not None else None
        for at, job in enumerate(jobs or ()):
            path = f"spec.runtimePatches[{index}].trainingRuntimeSpec.template.spec.replicatedJobs[{at}].template"
            if job.template is None:
                continue
            if _has_queue(job.template.metadata):
                yield f"{path}.metadata"
            pod = job.template.spec.template if job.template.spec is not None else None
            if pod is not None and _has_queue(pod.metadata):
                yield f"{path}.spec.template.metadata"


def _has_queue(metadata: ObjectMeta | None) -> bool:
    return metadata is not None and QUEUE_NAME_ANNOTATION_KEY in (metadata.annotations or {})


def _uses_volcano(spec: TrainingRuntimeSpec) -> bool:
    return spec.pod_group_policy is not None and spec.pod_group_policy.volcano is not None


def _unread_queue(above: str, reason: str) -> Remark:
    return Remark(f"{above}.annotations[{QUEUE_NAME_ANNOTATION_KEY}]", f"has no effect: {reason}")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'}"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
