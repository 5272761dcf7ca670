# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Factories of objects. Unset fields have the defaults that an API server with our CRDs would set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from controller_runtime.apis.batch.v1 import JobSpec, JobTemplateSpec
from controller_runtime.apis.core.v1 import Container, EnvVar, PodSpec, PodTemplateSpec, ResourceRequirements
from controller_runtime.apis.meta.v1 import ObjectMeta

from pkg.apis.jobset.v1alpha2 import JobSet, JobSetSpec, JobSetStatus, ReplicatedJob
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    JobSetTemplateSpec,
    MLPolicy,
    PodGroupPolicy,
    PodTemplateOverride,
    RuntimeRef,
    Trainer,
    TrainingRuntime,
    TrainingRuntimeSpec,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)
from pkg.constants import trainer as constants

R = TypeVar("R", TrainingRuntime, ClusterTrainingRuntime)
UID: Final = "11111111-2222-3333-4444-555555555555"


def crd_without_schema(group: str, version: str, kind: str, scope: str = "Namespaced") -> dict[str, Any]:
    """Return the CRD of a kind whose objects may have any fields."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    # The API server requires this annotation for kinds in groups of the Kubernetes project.
    approval = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approval},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }


def make_train_job(
    namespace: str,
    name: str,
    *,
    runtime: str = "runtime",
    runtime_kind: str = ClusterTrainingRuntime.gvk.kind,
    uid: str = UID,
    suspend: bool | None = False,
    trainer: Trainer | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    overrides: Sequence[PodTemplateOverride] | None = None,
    managed_by: str | None = constants.TRAIN_JOB_CONTROLLER_NAME,
    status: TrainJobStatus | None = None,
    **spec: Any,
) -> TrainJob:
    """Return a TrainJob; ``labels`` and ``annotations`` are those of its spec."""
    return TrainJob(
        metadata=ObjectMeta(namespace=namespace, name=name, uid=uid),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name=runtime, api_group=TrainJob.gvk.group, kind=runtime_kind),
            suspend=suspend,
            trainer=trainer,
            labels=None if labels is None else dict(labels),
            annotations=None if annotations is None else dict(annotations),
            pod_template_overrides=None if overrides is None else list(overrides),
            managed_by=managed_by,
            **spec,
        ),
        status=TrainJobStatus() if status is None else status,
    )


def written_train_job(
    namespace: str,
    runtime: str,
    *,
    name: str = "job",
    kind: str | None = TrainingRuntime.gvk.kind,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> TrainJob:
    """Return a TrainJob as a user writes it: ``spec`` has fields by their JSON names, and all others are left out.

    If ``kind`` is None, the reference to the runtime has only the name.
    """
    document = train_job_document(namespace, runtime, name=name, kind=kind, metadata=metadata, **spec)
    return TrainJob.from_dict(document)


def train_job_document(
    namespace: str = "ns",
    runtime: str = "torch",
    *,
    name: str = "job",
    kind: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a TrainJob as :func:`written_train_job` does, but as JSON, in which any value may be malformed."""
    reference = {"name": runtime} | ({} if kind is None else {"apiGroup": TrainJob.gvk.group, "kind": kind})
    return {
        "apiVersion": TrainJob.gvk.api_version,
        "kind": TrainJob.gvk.kind,
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "spec": {"runtimeRef": reference, **spec},
    }


def pod_override(
    pod: Mapping[str, Any], *jobs: str, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an item of ``podTemplateOverrides`` as JSON: changes of the spec of the pods of ``jobs``, by default ``node``."""
    made = {"targetJobs": [{"name": job} for job in jobs or (constants.NODE,)], "spec": dict(pod)}
    return made if metadata is None else {**made, "metadata": dict(metadata)}


def runtime_patch(
    manager: str,
    pod: Mapping[str, Any] | None = None,
    *,
    job: str = constants.NODE,
    pod_metadata: Mapping[str, Any] | None = None,
    **template: Any,
) -> dict[str, Any]:
    """Return an item of ``runtimePatches`` as JSON: changes of the pods of a job, and fields of ``template``.

    Without ``pod``, no job is changed.
    """
    pods = {"spec": dict(pod or {})} | ({} if pod_metadata is None else {"metadata": dict(pod_metadata)})
    jobs = [{"name": job, "template": {"spec": {"template": pods}}}]
    patched = template if pod is None else {**template, "spec": {"replicatedJobs": jobs}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": patched}}


def written_runtime(
    namespace: str,
    name: str = "runtime",
    *,
    pod: Mapping[str, Any] | None = None,
    pod_metadata: Mapping[str, Any] | None = None,
    job: Mapping[str, Any] | None = None,
    job_set: Mapping[str, Any] | None = None,
    **spec: Any,
) -> TrainingRuntime:
    """Return a TrainingRuntime as an administrator writes it, with the trainer's job ``node``; MPI has a launcher, too.

    ``spec`` has fields by their JSON names, and so have ``pod`` and ``pod_metadata`` for the pods, ``job`` for the spec
    of the Jobs and ``job_set`` for that of the JobSet.
    """
    pods = {"spec": {"containers": [{"name": constants.NODE, "image": "busybox"}], **(pod or {})}}
    if pod_metadata is not None:
        pods["metadata"] = dict(pod_metadata)
    jobs: list[dict[str, Any]] = [
        {"name": constants.NODE, "template": {"spec": {**(job or {}), "template": pods}}}
    ]
    if "mpi" in spec.get("mlPolicy", {}):
        jobs.insert(0, {**jobs[0], "name": constants.LAUNCHER})
    labels = {constants.LABEL_TRAIN_JOB_ANCESTOR: constants.ANCESTOR_TRAINER}
    jobs[0] = {**jobs[0], "template": {"metadata": {"labels": labels}, **jobs[0]["template"]}}
    whole = {"template": {"spec": {"replicatedJobs": jobs, **(job_set or {})}}, **spec}
    return TrainingRuntime.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": whole})


def written_cluster_runtime(name: str = "runtime", **spec: Any) -> ClusterTrainingRuntime:
    """Return a ClusterTrainingRuntime as :func:`written_runtime` returns a TrainingRuntime."""
    made = written_runtime("", name, **spec).to_dict()
    return ClusterTrainingRuntime.from_dict({"metadata": {"name": name}, "spec": made["spec"]})


def replicated(runtime: R, replicas: int) -> R:
    """Return the runtime after its first job got so many replicas."""
    (runtime.spec.template.spec.replicated_jobs or [])[0].replicas = replicas
    return runtime


def make_replicated_job(
    name: str,
    *,
    ancestor: str | None = None,
    container: str | None = None,
    image: str = "example.com/image:1",
    env: Mapping[str, str] | None = None,
    resources: ResourceRequirements | None = None,
    **pod_spec: Any,
) -> ReplicatedJob:
    """Return a template's job with one container, which by default has the name of the job."""
    labels = None if ancestor is None else {constants.LABEL_TRAIN_JOB_ANCESTOR: ancestor}
    variables = None if env is None else [EnvVar(name=key, value=value) for key, value in env.items()]
    main = Container(name=container or name, image=image, env=variables, resources=resources)
    pod = PodTemplateSpec(spec=PodSpec(containers=[main], **pod_spec))
    return ReplicatedJob(
        name=name,
        group_name="default",
        replicas=1,
        template=JobTemplateSpec(
            metadata=None if labels is None else ObjectMeta(labels=labels), spec=JobSpec(template=pod)
        ),
    )


def make_training_runtime_spec(
    *jobs: ReplicatedJob,
    ml_policy: MLPolicy | None = None,
    pod_group_policy: PodGroupPolicy | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> TrainingRuntimeSpec:
    """Return a runtime's spec. If no jobs are given, it has the trainer's job ``node``."""
    metadata = None
    if labels is not None or annotations is not None:
        metadata = ObjectMeta(
            labels=None if labels is None else dict(labels),
            annotations=None if annotations is None else dict(annotations),
        )
    default = make_replicated_job(constants.NODE, ancestor=constants.ANCESTOR_TRAINER)
    return TrainingRuntimeSpec(
        ml_policy=ml_policy,
        pod_group_policy=pod_group_policy,
        template=JobSetTemplateSpec(
            metadata=metadata, spec=JobSetSpec(replicated_jobs=list(jobs) or [default])
        ),
    )


def make_training_runtime(
    namespace: str, name: str = "runtime", spec: TrainingRuntimeSpec | None = None
) -> TrainingRuntime:
    """Return a TrainingRuntime."""
    return TrainingRuntime(
        metadata=ObjectMeta(namespace=namespace, name=name), spec=spec or make_training_runtime_spec()
    )


def make_cluster_training_runtime(
    name: str = "runtime",
    spec: TrainingRuntimeSpec | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> ClusterTrainingRuntime:
    """Return a ClusterTrainingRuntime."""
    return ClusterTrainingRuntime(
        metadata=ObjectMeta(name=name, labels=None if labels is None else dict(labels)),
        spec=spec or make_training_runtime_spec(),
    )


def make_job_set(
    namespace: str, name: str, *, suspend: bool | None = None, status: JobSetStatus | None = None
) -> JobSet:
    """Return a JobSet that no TrainJob controls, with one job ``node``."""
    return JobSet(
        metadata=ObjectMeta(namespace=namespace, name=name),
        spec=JobSetSpec(replicated_jobs=[make_replicated_job(constants.NODE)], suspend=suspend),
        status=JobSetStatus() if status is None else status,
    )


def make_ended_status(condition: str, *, reason: str = "R", **more: Any) -> JobSetStatus:
    """Return the status of a JobSet that has ended with this condition; ``more`` are other fields by JSON name."""
    ended = {
        "type": condition,
        "status": "True",
        "reason": reason,
        "message": "m",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    return JobSetStatus.from_dict({"conditions": [ended], "restarts": 0, **more})
