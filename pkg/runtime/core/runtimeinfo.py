# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Info of a TrainJob before the first stage: the runtime's template with the TrainJob's changes."""

from __future__ import annotations

from collections.abc import Sequence

from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.apis.meta.v1 import ObjectMeta

from pkg.apis.jobset.v1alpha2 import JobSetSpec, ReplicatedJob
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.constants import trainer as constants
from pkg.runtime import runtime
from pkg.runtime.framework import Observer
from pkg.runtime.framework.plugins.jobset import builder
from pkg.util import generations, offload, resources

from .overrides import with_overrides
from .runtimepatches import job_set_metadata


def new_runtime_info(
    train_job: trainer.TrainJob,
    runtime_spec: trainer.TrainingRuntimeSpec,
    observer: Observer | None = None,
    *,
    merges_resources: bool | None = False,
) -> runtime.Info:
    """Return the Info with which the first stage begins: it has the template with the TrainJob's changes.

    Trainer v2.1 and v2.3 apply the TrainJob's ``resourcesPerNode`` differently. If ``merges_resources`` is False
    (v2.1), the TrainJob's resources replace the resources in the template, but the requests of the pod sets stay as
    they were. If ``merges_resources`` is True (v2.3), the TrainJob's resources are merged into the resources in the
    template, and the requests of the pod sets include them. In v2.3, they are ignored if the runtime has no mlPolicy.
    If it is None, they are not applied.

    Raises:
        StrategicMergeError: a change cannot be merged into the template.
        PluginError: the resources would be applied to too many containers.
    """
    wanted, patches = train_job.spec, generations.runtime_patches(train_job.spec)
    overrides = wanted.pod_template_overrides or ()
    template, ml_policy = runtime_spec.template, runtime_spec.ml_policy
    spec = with_overrides(template.spec, overrides, patches, None if observer is None else observer.template)
    labels, annotations = _labels_and_annotations(template.metadata, wanted, patches)
    if merges_resources and ml_policy is not None:
        _apply_resources(spec, train_job, ml_policy, merge=True)
    info = runtime.new_info(
        labels=labels,
        annotations=annotations,
        ml_policy=ml_policy,
        pod_group_policy=runtime_spec.pod_group_policy,
        template_spec_obj_apply=spec,
        pod_sets=[_pod_set(job, ml_policy) for job in spec.replicated_jobs or ()],
    )
    if merges_resources is False:
        _apply_resources(spec, train_job, ml_policy, merge=False)
    if observer is not None:
        observer.begin(info)
    return info


async def info_for_validation(spec: trainer.TrainingRuntimeSpec, train_job: trainer.TrainJob) -> runtime.Info:
    """Return the Info for a validation, without the TrainJob's resources.

    If the TrainJob is large or has overrides or patches, the template is built immediately. Otherwise it is built when
    a plugin reads it.

    Raises:
        StrategicMergeError: a change cannot be merged into the template.
    """
    wanted = train_job.spec

    def build() -> runtime.Info:
        return new_runtime_info(train_job, spec, merges_resources=None)

    patches = generations.runtime_patches(wanted)
    if wanted.pod_template_overrides or patches or offload.is_large(train_job.decoded_size):
        return await offload.run(train_job, build)
    labels, annotations = _labels_and_annotations(spec.template.metadata, wanted, patches)
    info = runtime.new_info(
        labels=labels,
        annotations=annotations,
        ml_policy=spec.ml_policy,
        pod_group_policy=spec.pod_group_policy,
    )
    info.template_spec = runtime.DeferredTemplateSpec(lambda: build().template_spec)
    return info


def _labels_and_annotations(
    metadata: ObjectMeta | None, wanted: trainer.TrainJobSpec, patches: Sequence[trainer.RuntimePatch]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the JobSet's labels and annotations.

    A value of the TrainJob replaces the runtime's value with the same key, and a value of a patch replaces both.
    """
    labels = {**((metadata and metadata.labels) or {}), **(wanted.labels or {})}
    annotations = {**((metadata and metadata.annotations) or {}), **(wanted.annotations or {})}
    for patch in job_set_metadata(patches):
        labels |= patch.labels or {}
        annotations |= patch.annotations or {}
    return labels, annotations


def _pod_set(job: ReplicatedJob, ml_policy: trainer.MLPolicy | None) -> runtime.PodSet:
    """Return the pod set of a job.

    The count of the trainer's pod set is the ``numNodes`` of the mlPolicy, if there is an mlPolicy. Any other count is
    the job's parallelism. A missing number counts as 1.
    """
    ancestor = runtime.ancestor_of(job)
    count = job.template.spec.parallelism
    if ancestor == constants.ANCESTOR_TRAINER and ml_policy is not None:
        count = ml_policy.num_nodes
    return runtime.new_pod_set(
        job.name, ancestor, 1 if count is None else count, job.template.spec.template.spec
    )


def _apply_resources(
    spec: JobSetSpec, train_job: trainer.TrainJob, ml_policy: trainer.MLPolicy | None, *, merge: bool
) -> None:
    """Apply the TrainJob's resources to the trainer's containers.

    If ``merge`` is True, the TrainJob's resources are merged into the containers' resources. Otherwise they replace the
    containers' resources, but only if the TrainJob sets limits or requests. An empty map counts as set. As upstream,
    claims are dropped.
    """
    own = train_job.spec.trainer
    wanted = own.resources_per_node if own is not None else None
    if wanted is None or (not merge and wanted.limits is None and wanted.requests is None):
        return
    containers = list(runtime.trainers(spec.replicated_jobs or (), ml_policy or trainer.MLPolicy()))
    builder.require_room(containers, wanted)
    for container in containers:
        if merge:
            container.resources = resources.merged(container.resources, wanted)
        else:
            container.resources = ResourceRequirements(limits=wanted.limits, requests=wanted.requests)
