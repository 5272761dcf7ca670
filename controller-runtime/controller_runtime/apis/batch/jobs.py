# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs and cron jobs, for :mod:`.v1`: only programs that use these classes load this module."""

from typing import ClassVar

from pydantic import Field

from controller_runtime.apis.batch.v1 import JobSpec, JobTemplateSpec
from controller_runtime.apis.core.v1 import ObjectReference
from controller_runtime.machinery import Object, Struct


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
