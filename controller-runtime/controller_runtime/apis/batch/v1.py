# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs and cron jobs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from controller_runtime.apis.core.v1 import ObjectReference, PodTemplateSpec
from controller_runtime.apis.meta.v1 import LabelSelector, ObjectMeta
from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.base import is_unset


class PodFailurePolicyOnExitCodesRequirement(Struct):
    container_name: str | None = None
    operator: str = ""
    values: list[int] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"operator", "values"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"container_name"})


class PodFailurePolicyOnPodConditionsPattern(Struct):
    type: str = ""
    status: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"type", "status"})


class PodFailurePolicyRule(Struct):
    action: str = ""
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None
    on_pod_conditions: list[PodFailurePolicyOnPodConditionsPattern] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"action"})


class PodFailurePolicy(Struct):
    rules: list[PodFailurePolicyRule] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"rules"})


class SuccessPolicyRule(Struct):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"succeeded_indexes", "succeeded_count"})


class SuccessPolicy(Struct):
    rules: list[SuccessPolicyRule] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"rules"})


class JobSpec(Struct):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    selector: LabelSelector | None = None
    manual_selector: bool | None = None
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec, exclude_if=is_unset)
    ttl_seconds_after_finished: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"template"})
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {
            "parallelism",
            "completions",
            "active_deadline_seconds",
            "backoff_limit",
            "backoff_limit_per_index",
            "max_failed_indexes",
            "manual_selector",
            "ttl_seconds_after_finished",
            "completion_mode",
            "suspend",
            "pod_replacement_policy",
            "managed_by",
        }
    )


class JobTemplateSpec(Struct):
    metadata: ObjectMeta | None = None
    spec: JobSpec = Field(default_factory=JobSpec, exclude_if=is_unset)
    go_always: ClassVar[frozenset[str]] = frozenset({"metadata", "spec"})


class JobCondition(Struct):
    type: str = ""
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"type", "status", "last_probe_time", "last_transition_time"}
    )


class UncountedTerminatedPods(Struct):
    succeeded: list[str] | None = None
    failed: list[str] | None = None


class JobStatus(Struct):
    conditions: list[JobCondition] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    terminating: int | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    ready: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"terminating", "failed_indexes", "ready"})


class CronJobSpec(Struct):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str | None = None
    suspend: bool | None = None
    job_template: JobTemplateSpec | None = None
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"schedule", "job_template"})
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {
            "time_zone",
            "starting_deadline_seconds",
            "suspend",
            "successful_jobs_history_limit",
            "failed_jobs_history_limit",
        }
    )


class CronJobStatus(Struct):
    active: list[ObjectReference] | None = None
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class Job(Object, group="batch", version="v1", plural="jobs"):
    spec: JobSpec = Field(default_factory=JobSpec)
    status: JobStatus = Field(default_factory=JobStatus)


class CronJob(Object, group="batch", version="v1", plural="cronjobs"):
    spec: CronJobSpec = Field(default_factory=CronJobSpec)
    status: CronJobStatus = Field(default_factory=CronJobStatus)
