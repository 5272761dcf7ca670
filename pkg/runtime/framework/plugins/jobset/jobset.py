# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet: builds a TrainJob's JobSet, sets its pods' host names, reports its status, and validates TrainJobs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from controller_runtime.apis.core.v1 import Container
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Reader, peek
from controller_runtime.machinery import Object, conditions
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.field import ErrorList

from pkg import apply
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import (
    JOB_SET_COMPLETED,
    JOB_SET_FAILED,
    JobSet,
    JobSetOutline,
    JobSetSpec,
    JobSetStatus,
)
from pkg.apis.trainer.v1alpha1 import (
    TRAIN_JOB_COMPLETE,
    TRAIN_JOB_FAILED,
    JobStatus,
    TrainJob,
    TrainJobStatus,
)
from pkg.constants import trainer as constants
from pkg.runtime.framework.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    InvalidFieldError,
    PodNetworkPlugin,
    TrainJobStatusPlugin,
    WatchExtensionPlugin,
)
from pkg.runtime.framework.plugins import trainernodes
from pkg.runtime.interface import ReconcilerBuilder
from pkg.runtime.runtime import Container as ContainerChanges
from pkg.runtime.runtime import Info, PodSet, template_spec_apply
from pkg.util import generations, offload, trainjob
from pkg.util.attempts import attempts_of

from . import builder, patchvalidation, validation

if TYPE_CHECKING:
    from controller_runtime.builder import Builder
    from controller_runtime.cache import Cache
    from controller_runtime.client import Client


# +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=create;delete;get;list;watch;update;patch
class JobSetPlugin(
    WatchExtensionPlugin,
    PodNetworkPlugin,
    ComponentBuilderPlugin,
    TrainJobStatusPlugin,
    CustomValidationPlugin,
):
    """Serves every runtime, because every template is the template of a JobSet."""

    name = "JobSet"
    builds_siblings = False

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._second_generation = False

    def configure(self, cfg: Configuration) -> None:
        """Set the generation.

        In the second generation, the plugin lists the hosts of all replicas, and requires the initializers' volume.
        """
        self._second_generation = cfg.second_generation

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Watch the JobSets that TrainJobs control."""
        return [_watch_job_sets]

    async def validate(self, info: Info, old: TrainJob | None, new: TrainJob) -> tuple[list[str], ErrorList]:
        """Check the TrainJob against the jobs and containers of the template."""
        wanted = new.spec
        if old is None and not (
            wanted.initializer or wanted.pod_template_overrides or wanted.runtime_patches
        ):
            return [], ErrorList()  # the TrainJob names no part of the template
        spec = template_spec_apply(info, JobSetSpec)
        if spec is None:
            return [], ErrorList()
        containers = validation.containers_by_job(spec)
        errors = ErrorList(
            validation.validate_initializers(containers, new, spec if self._second_generation else None)
        )
        errors += await validation.validate_override_changes(self._client, old, new)
        if not generations.suspends_with_same_overrides(old, new):
            errors += await offload.run(new, validation.validate_overrides, containers, new)
        errors += await patchvalidation.validate_patch_changes(self._client, old, new)
        errors += await offload.run(new, patchvalidation.validate_patches, new)
        return [], errors

    def identify_pod_network(self, info: Info, train_job: TrainJob) -> None:
        """Set the host names that the JobSet controller gives to the pods."""
        spec = template_spec_apply(info, JobSetSpec)
        if spec is None:
            return
        subdomain = trainernodes.subdomain(info, train_job)
        for job, pod_set in zip(spec.replicated_jobs or (), info.template_spec.pod_sets, strict=True):
            replicas = job.replicas if self._second_generation else None
            replicas = constants.DEFAULT_JOB_REPLICAS if replicas is None else replicas
            pod_set.hosts = functools.partial(_hosts, train_job.name, subdomain, replicas)

    def sync_parallel_count(self, info: Info) -> None:
        """Set the number of pods of each Job to the count of its pod set.

        Raises:
            InvalidFieldError: the count is negative. Upstream makes a JobSet whose Job the API server refuses.
        """
        spec = template_spec_apply(info, JobSetSpec)
        if spec is None:
            return
        for job, pod_set in zip(spec.replicated_jobs or (), info.template_spec.pod_sets, strict=True):
            if pod_set.count < 0:
                detail = f"{pod_set.count} pods of job {job.name} are not possible"
                raise InvalidFieldError(f"spec.trainer.numNodes must be at least 1: {detail}")
            job.template.spec.parallelism = job.template.spec.completions = pod_set.count

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the JobSet, or nothing while both TrainJob and JobSet run."""
        if not train_job.spec.suspend and await self._runs(train_job):
            return []
        made = await offload.run(train_job, job_set, info, train_job)
        return [] if made is None else [made]

    async def _runs(self, train_job: TrainJob) -> bool:
        try:
            present = await peek(self._client, JobSet, train_job.key)
        except NotFoundError:
            return False
        return not (present.view(JobSetOutline) or await offload.decoded(present)).spec.suspend

    async def status(self, train_job: TrainJob) -> TrainJobStatus | None:
        """Return the status from the JobSet's conditions and job counts.

        None is returned for a finished TrainJob whose JobSet was deleted: the TrainJob keeps its status. A TrainJob
        that has exceeded its deadline keeps its conditions.

        Raises:
            NotFoundError: a TrainJob that is not finished has no JobSet.
        """
        try:
            job_set = await peek(self._client, JobSet, train_job.key)
        except NotFoundError:
            if trainjob.is_finished(train_job):
                return None
            raise
        reported = job_set.part("status", JobSetStatus)
        status = trainjob.own_status(train_job.status)
        current = list(status.conditions or ())
        exceeded = trainjob.deadline_exceeded(train_job)
        for source, target in (
            () if exceeded else ((JOB_SET_COMPLETED, TRAIN_JOB_COMPLETE), (JOB_SET_FAILED, TRAIN_JOB_FAILED))
        ):
            found = conditions.find(reported.conditions or [], source)
            if found is not None and found.status == "True":
                conditions.set_status_condition(current, found.model_copy(update={"type": target}))
        status.conditions = current or None
        status.jobs_status = [
            JobStatus(
                name=job.name,
                ready=job.ready,
                succeeded=job.succeeded,
                failed=job.failed,
                active=job.active,
                suspended=job.suspended,
            )
            for job in reported.replicated_jobs_status or ()
        ] or None
        # To decode all metadata would take three times as long.
        attempts = attempts_of((job_set.view(JobSetOutline) or job_set).metadata, reported)
        if attempts is not None:
            status.execution_attempts = attempts
        return status


def _hosts(job: str, subdomain: str, replicas: int, pod_set: PodSet) -> Iterator[str]:
    for replica in range(replicas if pod_set.count > 0 else 0):  # billions of replicas may have no pods
        for pod in range(pod_set.count):
            yield f"{job}-{pod_set.name}-{replica}-{pod}.{subdomain}"


def _watch_job_sets(watching: Builder, _client: Client, _cache: Cache) -> Builder:
    from controller_runtime import handler, predicate  # rendering without a cluster loads no controllers

    owner = handler.enqueue_request_for_owner(TrainJob, only_controller=True)
    return watching.watches(JobSet, owner, predicates=[predicate.NotOwnWrite()])


def job_set(info: Info, train_job: TrainJob) -> JobSet | None:
    """Return the TrainJob's JobSet. The template in ``info`` is changed and becomes the JobSet's spec.

    The plugins' changes to the pod sets are written back to the template.
    """
    spec = template_spec_apply(info, JobSetSpec)
    if spec is None:
        return None
    jobs = spec.replicated_jobs or ()
    for job, pod_set in zip(jobs, info.template_spec.pod_sets, strict=True):
        pod_spec = job.template.spec.template.spec
        pod_spec.volumes = apply.upsert_volumes(pod_spec.volumes, pod_set.volumes or ())
        _sync_containers(pod_spec.containers or (), pod_set.containers)
        if pod_set.init_containers:
            present = pod_spec.init_containers or []
            added = [Container(name=each.name) for each in pod_set.init_containers[len(present) :]]
            pod_spec.init_containers = [*present, *added]
            for container, changed in zip(present, pod_set.init_containers, strict=False):
                if changed.ports == container.ports:
                    changed.ports = None  # upserting a list into itself can lose ports
            _sync_containers(pod_spec.init_containers, pod_set.init_containers)
    metadata = ObjectMeta(
        name=train_job.name,
        namespace=train_job.namespace,
        labels=info.labels or None,
        annotations=info.annotations or None,
        owner_references=[trainjob.controller_reference(train_job)],
    )
    builder.apply_initializer(jobs, train_job)
    builder.apply_trainer(jobs, info, train_job)
    builder.apply_scheduler(jobs, info.scheduler)
    spec.suspend = train_job.spec.suspend
    return JobSet(metadata=metadata, spec=spec)


def _sync_containers(containers: Iterable[Container], changes: Iterable[ContainerChanges]) -> None:
    for container, changed in zip(containers, changes, strict=True):
        container.env = apply.upsert_env_vars(container.env, changed.env or ())
        container.ports = apply.upsert_port(container.ports, changed.ports or ())
        container.volume_mounts = apply.upsert_volume_mounts(
            container.volume_mounts, changed.volume_mounts or ()
        )
        if changed.image is not None:
            container.image = changed.image
        if changed.command is not None:
            container.command = changed.command
