# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs, their templates, and cron jobs."""

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from controller_runtime import _ondemand
from controller_runtime.apis.core.v1 import PodTemplateSpec
from controller_runtime.apis.meta.v1 import LabelSelector, ObjectMeta
from controller_runtime.machinery import Struct
from controller_runtime.machinery.base import is_unset

if TYPE_CHECKING:
    from .jobs import CronJob as CronJob
    from .jobs import CronJobSpec as CronJobSpec
    from .jobs import CronJobStatus as CronJobStatus
    from .jobs import Job as Job
    from .jobs import JobCondition as JobCondition
    from .jobs import JobStatus as JobStatus
    from .jobs import UncountedTerminatedPods as UncountedTerminatedPods
else:  # programs that do not need these kinds do not load them
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            ".jobs": (
                "CronJob",
                "CronJobSpec",
                "CronJobStatus",
                "Job",
                "JobCondition",
                "JobStatus",
                "UncountedTerminatedPods",
            ),
        },
    )


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
