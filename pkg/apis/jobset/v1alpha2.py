# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet: jobset.x-k8s.io/v1alpha2."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from controller_runtime.apis.batch.v1 import JobTemplateSpec
from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import ATOMIC, CRD, JSON, MAP_BY_NAME, Int32, Object, Rule, Struct, is_unset
from pydantic import Field

# Labels of Jobs and their pods.
JOB_SET_NAME_KEY: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_UID_KEY: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME_KEY: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_KEY: Final = "jobset.sigs.k8s.io/job-index"
RESTARTS_KEY: Final = "jobset.sigs.k8s.io/restart-attempt"

# Condition types.
JOB_SET_COMPLETED: Final = "Completed"
JOB_SET_FAILED: Final = "Failed"

# The states of another replicated job that a replicated job can wait for.
DEPENDENCY_READY: Final = "Ready"
DEPENDENCY_COMPLETE: Final = "Complete"

_IMMUTABLE: Final = Rule("self == oldSelf", "Value is immutable")


class DependsOn(Struct):
    """A replicated job that has to be ready or complete first."""

    name: str = ""
    status: Annotated[str, CRD(enum=(DEPENDENCY_READY, DEPENDENCY_COMPLETE))] = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "status"})


class ReplicatedJob(Struct):
    """A job template and how many jobs are made from it."""

    name: str = ""
    group_name: Annotated[str | None, CRD(default="default")] = None
    template: Annotated[JobTemplateSpec, CRD(required=True)] = Field(
        default_factory=JobTemplateSpec, exclude_if=is_unset
    )
    replicas: Annotated[Int32 | None, CRD(default=1)] = None
    depends_on: Annotated[
        list[DependsOn] | None,
        CRD(max_items=5, list_type="map", list_map_keys=("name",), rules=(_IMMUTABLE,)),
    ] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "template"})


class Network(Struct):
    """How the pods find each other by name."""

    enable_dns_hostnames: Annotated[bool | None, Field(alias="enableDNSHostnames")] = None
    subdomain: str | None = None
    publish_not_ready_addresses: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"enable_dns_hostnames", "publish_not_ready_addresses"})


class SuccessPolicy(Struct):
    """When the JobSet has succeeded."""

    operator: Annotated[str, CRD(enum=("All", "Any"))] = ""
    target_replicated_jobs: Annotated[list[str] | None, ATOMIC] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"operator"})


class FailurePolicyRule(Struct):
    """What is done about jobs that fail in a certain way."""

    name: str = ""
    action: Annotated[
        str,
        CRD(
            enum=(
                "FailJobSet",
                "RestartJobSet",
                "RestartJobSetAndIgnoreMaxRestarts",
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            )
        ),
    ] = ""
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: Annotated[list[str] | None, ATOMIC] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "action"})


class FailurePolicy(Struct):
    """When the JobSet has failed, and when it is restarted."""

    max_restarts: Int32 | None = None
    restart_strategy: Annotated[
        str | None, CRD(default="Recreate", enum=("Recreate", "BlockingRecreate", "InPlaceRestart"))
    ] = None
    rules: list[FailurePolicyRule] | None = None


class StartupPolicy(Struct):
    """In which order the replicated jobs start."""

    startup_policy_order: Annotated[str, CRD(enum=("AnyOrder", "InOrder"))] = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"startup_policy_order"})


class Coordinator(Struct):
    """The pod that is the coordinator of the others."""

    replicated_job: str = ""
    job_index: int | None = None
    pod_index: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"replicated_job"})


class VolumeRetentionPolicy(Struct):
    """When the volumes of a JobSet are deleted."""

    when_deleted: Annotated[str | None, CRD(default="Delete", enum=("Delete", "Retain"))] = None


class VolumeClaimPolicy(Struct):
    """Volumes that all jobs of a JobSet share."""

    crd: ClassVar[CRD] = CRD(
        rules=(
            Rule(
                "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
                "namespace cannot be set for VolumeClaimPolicies templates",
            ),
        )
    )

    templates: Annotated[
        list[dict[str, JSON]] | None,
        CRD(max_items=50, list_type="atomic", schema="core.v1.PersistentVolumeClaim"),
    ] = None
    retention_policy: VolumeRetentionPolicy | None = None


class JobSetSpec(Struct):
    """What a JobSet is to be."""

    crd: ClassVar[CRD] = CRD(
        rules=(
            Rule(
                "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
                " && self.replicatedJobs.exists(x, has(x.dependsOn)))",
                "StartupPolicy and DependsOn APIs are mutually exclusive",
            ),
        )
    )

    replicated_jobs: Annotated[list[ReplicatedJob] | None, MAP_BY_NAME] = None
    network: Annotated[Network | None, CRD(rules=(_IMMUTABLE,))] = None
    success_policy: Annotated[SuccessPolicy | None, CRD(rules=(_IMMUTABLE,))] = None
    failure_policy: Annotated[FailurePolicy | None, CRD(rules=(_IMMUTABLE,))] = None
    startup_policy: Annotated[StartupPolicy | None, CRD(rules=(_IMMUTABLE,))] = None
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: Annotated[Int32 | None, CRD(minimum=0)] = None
    volume_claim_policies: Annotated[
        list[VolumeClaimPolicy] | None, CRD(max_items=50, list_type="atomic", rules=(_IMMUTABLE,))
    ] = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"suspend", "managed_by", "ttl_seconds_after_finished"})


class ReplicatedJobStatus(Struct):
    """How many jobs of one replicated job are in which state."""

    name: str = ""
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    suspended: int = 0
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"name", "ready", "succeeded", "failed", "active", "suspended"}
    )


class JobSetStatus(Struct):
    """How a JobSet is doing."""

    conditions: list[Condition] | None = None
    restarts: int | None = None
    restarts_count_towards_max: int | None = None
    terminal_state: str | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"restarts"})


class JobSet(Object, group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets"):
    """A set of jobs that run, fail and restart together."""

    spec: JobSetSpec = Field(default_factory=JobSetSpec)
    status: JobSetStatus = Field(default_factory=JobSetStatus)
