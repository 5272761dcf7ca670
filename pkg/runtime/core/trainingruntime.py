# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingRuntime: the namespaced runtime, and the pipeline of both kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.machinery import field
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.machinery.strategicpatch import StrategicMergeError
from controller_runtime.client import FieldIndexer, Reader, peek
from controller_runtime.rest import RestError

from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.jobset.v1alpha2 import ReplicatedJob
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.constants import trainer as constants
from pkg.runtime import indexer as index
from pkg.runtime import interface, runtime
from pkg.runtime.framework import Observer
from pkg.runtime.framework import core as framework
from pkg.runtime.framework.plugins import registry as plugins
from pkg.util import generations, offload

from .overrides import with_overrides

TRAINING_RUNTIME_GROUP_KIND: Final = str(trainer.TrainingRuntime.gvk.group_kind)


class RuntimeNotFoundError(Exception):
    """The runtime that a TrainJob refers to could not be read. The cause is chained."""


async def new_training_runtime(
    client: Reader,
    indexer: FieldIndexer,
    _built: Mapping[str, interface.Runtime],
    *,
    cfg: Configuration | None = None,
) -> TrainingRuntime:
    """Create the runtime and its plugins, and register their cache indices."""
    cfg = defaulted() if cfg is None else cfg
    await index_runtime_references(indexer)
    return TrainingRuntime(await framework.new(client, plugins.new_registry(), indexer, cfg), client, cfg)


async def index_runtime_references(indexer: FieldIndexer) -> None:
    """Index TrainJobs by the runtime of either kind that they refer to."""
    await indexer.index_field(
        trainer.TrainJob, index.TRAIN_JOB_RUNTIME_REF_KEY, index.index_train_job_training_runtime
    )
    await indexer.index_field(
        trainer.TrainJob,
        index.TRAIN_JOB_CLUSTER_RUNTIME_REF_KEY,
        index.index_train_job_cluster_training_runtime,
    )


class TrainingRuntime(interface.Runtime):
    """Serves TrainJobs that refer to a TrainingRuntime; its pipeline serves the cluster-scoped kind too."""

    def __init__(self, fwk: framework.Framework, client: Reader, cfg: Configuration | None = None) -> None:
        self.framework = fwk
        self.client = client
        self.cfg = defaulted() if cfg is None else cfg

    def observe(self, observer: Observer | None) -> None:
        """Set the observer of all later passes, those of the cluster-scoped kind included."""
        self.framework.observer = observer

    async def new_objects(self, train_job: trainer.TrainJob) -> list[Object]:
        """Return the objects to apply."""
        key = NamespacedName(train_job.namespace, train_job.spec.runtime_ref.name)
        try:
            found = await peek(self.client, trainer.TrainingRuntime, key)
        except (StatusError, RestError) as error:
            raise RuntimeNotFoundError(
                f"TrainingRuntime specified in TrainJob is not found: {error}"
            ) from error
        with offload.weighing(found.decoded_size):
            return await self.objects_from(found.spec, train_job)

    async def objects_from(
        self, spec: trainer.TrainingRuntimeSpec, train_job: trainer.TrainJob
    ) -> list[Object]:
        """Return the objects of a TrainJob with a runtime's spec. Changes neither."""
        train_job = generations.with_word(train_job)
        info = await offload.run(
            train_job, self.runtime_info, train_job, spec.template, spec.ml_policy, spec.pod_group_policy
        )
        return await self.framework.run_component_builder_plugins(info, train_job)

    def runtime_info(
        self,
        train_job: trainer.TrainJob,
        runtime_template_spec: object,
        ml_policy: trainer.MLPolicy | None,
        pod_group_policy: trainer.PodGroupPolicy | None,
    ) -> runtime.Info:
        """Run the stages up to the one that builds the objects."""
        if not isinstance(runtime_template_spec, trainer.JobSetTemplateSpec):
            raise TypeError("unsupported runtimeTemplateSpec")
        info = new_runtime_info(
            train_job, runtime_template_spec, ml_policy, pod_group_policy, self.framework.observer
        )
        self.framework.run_enforce_ml_policy_plugins(info, train_job)
        self.framework.run_enforce_pod_group_policy_plugins(info, train_job)
        self.framework.run_pod_network_plugins(info, train_job)
        return info

    async def train_job_status(self, train_job: trainer.TrainJob) -> trainer.TrainJobStatus | None:
        """Return the status from its objects."""
        return await self.framework.run_train_job_status_plugin(train_job)

    def event_handler_registrars(self) -> list[interface.ReconcilerBuilder]:
        """Return the plugins' watches."""
        return self.framework.reconciler_builders()

    async def validate_objects(
        self, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Reject a TrainJob whose runtime cannot be read, else run the plugins' validation."""
        key = NamespacedName(new.namespace, new.spec.runtime_ref.name)
        try:
            found = await peek(self.client, trainer.TrainingRuntime, key)
        except (StatusError, RestError) as error:
            detail = f"{error}: specified trainingRuntime must be created before the TrainJob is created"
            path = field.Path("spec", "runtimeRef")
            return [], field.ErrorList([field.invalid(path, new.spec.runtime_ref, detail)])
        with offload.weighing(found.decoded_size):
            return await self.validate_against(found.spec, old, new)

    async def validate_against(
        self, spec: trainer.TrainingRuntimeSpec, old: trainer.TrainJob | None, new: trainer.TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Return the plugins' warnings and errors, or an error if an override does not fit the template."""
        old, new = old and generations.with_word(old), generations.with_word(new)
        try:
            info = await offload.run(
                new, new_runtime_info, new, spec.template, spec.ml_policy, spec.pod_group_policy
            )
        except StrategicMergeError as error:
            path = field.Path("spec", "podTemplateOverrides")
            return [], field.ErrorList([field.invalid(path, new.spec.pod_template_overrides, str(error))])
        return await self.framework.run_custom_validation_plugins(info, old, new)


def new_runtime_info(
    train_job: trainer.TrainJob,
    template: trainer.JobSetTemplateSpec,
    ml_policy: trainer.MLPolicy | None,
    pod_group_policy: trainer.PodGroupPolicy | None,
    observer: Observer | None = None,
) -> runtime.Info:
    """Return the Info before the first stage: the template with overrides, its pod sets, the labels of both.

    Raises:
        StrategicMergeError: an override does not fit the template.
    """
    metadata = template.metadata
    overrides = train_job.spec.pod_template_overrides or ()
    spec = with_overrides(template.spec, overrides, None if observer is None else observer.template)
    info = runtime.new_info(
        labels={**((metadata and metadata.labels) or {}), **(train_job.spec.labels or {})},
        annotations={**((metadata and metadata.annotations) or {}), **(train_job.spec.annotations or {})},
        ml_policy=ml_policy,
        pod_group_policy=pod_group_policy,
        template_spec_obj_apply=spec,
        pod_sets=[_pod_set(job, ml_policy) for job in spec.replicated_jobs or ()],
    )
    if observer is not None:
        observer.begin(info)
    return info


def _pod_set(job: ReplicatedJob, ml_policy: trainer.MLPolicy | None) -> runtime.PodSet:
    """Return a job's number of pods: its parallelism, or the mlPolicy's number of nodes for the trainer."""
    labels = (job.template.metadata.labels if job.template.metadata is not None else None) or {}
    ancestor = labels.get(constants.LABEL_TRAIN_JOB_ANCESTOR)
    count = job.template.spec.parallelism
    if ancestor == constants.ANCESTOR_TRAINER and ml_policy is not None:
        count = ml_policy.num_nodes
    return runtime.new_pod_set(
        job.name, ancestor, 1 if count is None else count, job.template.spec.template.spec
    )
