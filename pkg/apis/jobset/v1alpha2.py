# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from pkg.apis.batch.v1 import JobTemplateSpec
from pkg.apis.machinery.base import Struct, is_unset
from pkg.apis.machinery.object import Object
from pkg.apis.meta.v1 import Condition

JOB_SET_NAME_KEY: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_UID_KEY: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME_KEY: Final = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS_KEY: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX_KEY: Final = "jobset.sigs.k8s.io/job-index"
JOB_GLOBAL_INDEX_KEY: Final = "jobset.sigs.k8s.io/job-global-index"
EXCLUSIVE_KEY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOB_SET_CONTROLLER_NAME: Final = "jobset.sigs.k8s.io/jobset-controller"

# Condition types.
JOB_SET_COMPLETED: Final = "Completed"
JOB_SET_FAILED: Final = "Failed"
JOB_SET_SUSPENDED: Final = "Suspended"
JOB_SET_STARTUP_POLICY_IN_PROGRESS: Final = "StartupPolicyInProgress"
JOB_SET_STARTUP_POLICY_COMPLETED: Final = "StartupPolicyCompleted"

# What a replicated job waits for in another.
DEPENDENCY_READY: Final = "Ready"
DEPENDENCY_COMPLETE: Final = "Complete"


class DependsOn(Struct):
    """jobsetv1alpha2.DependsOn."""

    name: str = ""
    status: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "status"})


class ReplicatedJob(Struct):
    """jobsetv1alpha2.ReplicatedJob."""

    name: str = ""
    group_name: str | None = None
    template: JobTemplateSpec = Field(default_factory=JobTemplateSpec, exclude_if=is_unset)
    replicas: int | None = None
    depends_on: list[DependsOn] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "template"})


class Network(Struct):
    """jobsetv1alpha2.Network."""

    enable_dns_hostnames: bool | None = Field(default=None, alias="enableDNSHostnames")
    subdomain: str | None = None
    publish_not_ready_addresses: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"enable_dns_hostnames", "publish_not_ready_addresses"})


class SuccessPolicy(Struct):
    """jobsetv1alpha2.SuccessPolicy."""

    operator: str = ""
    target_replicated_jobs: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"operator"})


class FailurePolicyRule(Struct):
    """jobsetv1alpha2.FailurePolicyRule."""

    name: str = ""
    action: str = ""
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "action"})


class FailurePolicy(Struct):
    """jobsetv1alpha2.FailurePolicy."""

    max_restarts: int | None = None
    restart_strategy: str | None = None
    rules: list[FailurePolicyRule] | None = None


class StartupPolicy(Struct):
    """jobsetv1alpha2.StartupPolicy."""

    startup_policy_order: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"startup_policy_order"})


class Coordinator(Struct):
    """jobsetv1alpha2.Coordinator."""

    replicated_job: str = ""
    job_index: int | None = None
    pod_index: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"replicated_job"})


class JobSetSpec(Struct):
    """jobsetv1alpha2.JobSetSpec."""

    replicated_jobs: list[ReplicatedJob] | None = None
    network: Network | None = None
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"suspend", "managed_by", "ttl_seconds_after_finished"})


class ReplicatedJobStatus(Struct):
    """jobsetv1alpha2.ReplicatedJobStatus."""

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
    """jobsetv1alpha2.JobSetStatus."""

    conditions: list[Condition] | None = None
    restarts: int | None = None
    restarts_count_towards_max: int | None = None
    terminal_state: str | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"restarts"})


class JobSet(Object, group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets"):
    """jobsetv1alpha2.JobSet."""

    spec: JobSetSpec = Field(default_factory=JobSetSpec)
    status: JobSetStatus = Field(default_factory=JobSetStatus)
