# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JobSet: jobset.x-k8s.io/v1alpha2."""

from typing import Annotated, ClassVar, Final

import msgspec
from controller_runtime.apis.batch.v1 import JobTemplateSpec
from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import JSON, Object, Struct, is_unset
from controller_runtime.machinery.crd import ATOMIC, MAP_BY_NAME, Markers, Rule
from pydantic import Field

from pkg.apis.integers import Int32
from pkg.apis.jobset.labels import JOB_INDEX_KEY as JOB_INDEX_KEY
from pkg.apis.jobset.labels import JOB_SET_NAME_KEY as JOB_SET_NAME_KEY
from pkg.apis.jobset.labels import JOB_SET_UID_KEY as JOB_SET_UID_KEY
from pkg.apis.jobset.labels import REPLICATED_JOB_NAME_KEY as REPLICATED_JOB_NAME_KEY
from pkg.apis.jobset.labels import RESTARTS_KEY as RESTARTS_KEY

# Condition types.
JOB_SET_COMPLETED: Final = "Completed"
JOB_SET_FAILED: Final = "Failed"

# The states of another replicated job that a replicated job can wait for.
DEPENDENCY_READY: Final = "Ready"
DEPENDENCY_COMPLETE: Final = "Complete"

_IMMUTABLE: Final = Rule("self == oldSelf", "Value is immutable")


class DependsOn(Struct):
    """A replicated job that must be ready or complete before another one starts."""

    name: Annotated[str, Markers(required=True)] = ""
    """Name of the replicated job."""
    status: Annotated[str, Markers(enum=(DEPENDENCY_READY, DEPENDENCY_COMPLETE), required=True)] = ""
    """State that the replicated job must have: Ready or Complete."""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "status"})


class ReplicatedJob(Struct):
    """A template of Jobs and the number of Jobs that are created from it."""

    name: Annotated[str, Markers(required=True)] = ""
    """Name of the replicated job. It is part of the names of its Jobs."""
    group_name: Annotated[str | None, Markers(default="default")] = None
    """Name of the group of replicated jobs to which this replicated job belongs. Defaults to default."""
    template: Annotated[JobTemplateSpec, Markers(required=True)] = Field(
        default_factory=JobTemplateSpec, exclude_if=is_unset
    )
    """Template of the Jobs."""
    replicas: Annotated[Int32 | None, Markers(default=1)] = None
    """Number of Jobs. Defaults to 1."""
    depends_on: Annotated[
        list[DependsOn] | None,
        Markers(max_items=5, list_type="map", list_map_keys=("name",), rules=(_IMMUTABLE,)),
    ] = None
    """Earlier replicated jobs of the list that must be ready or complete before this replicated job starts."""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "template"})


class Network(Struct):
    """The DNS names of the pods."""

    enable_dns_hostnames: Annotated[bool | None, Field(alias="enableDNSHostnames")] = None
    """Whether pods can be reached by their host names through a headless Service. Defaults to true."""
    subdomain: str | None = None
    """Subdomain of the pods' host names, and name of the Service. Defaults to the name of the JobSet."""
    publish_not_ready_addresses: bool | None = None
    """Whether the host names of pods resolve before the pods are ready. Defaults to true."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"enable_dns_hostnames", "publish_not_ready_addresses"})


class SuccessPolicy(Struct):
    """The condition under which the JobSet has succeeded."""

    operator: Annotated[str, Markers(enum=("All", "Any"), required=True)] = ""
    """Whether all of the Jobs must succeed, or any of them."""
    target_replicated_jobs: Annotated[list[str] | None, ATOMIC] = None
    """Replicated jobs whose Jobs are considered. By default, all are."""
    go_always: ClassVar[frozenset[str]] = frozenset({"operator"})


class FailurePolicyRule(Struct):
    """An action for Jobs that fail in a certain way."""

    name: Annotated[str, Markers(required=True)] = ""
    """Name of the rule."""
    action: Annotated[
        str,
        Markers(
            enum=(
                "FailJobSet",
                "RestartJobSet",
                "RestartJobSetAndIgnoreMaxRestarts",
                "RestartJob",
                "RestartJobAndIgnoreMaxRestarts",
            ),
            required=True,
        ),
    ] = ""
    """Action of the rule: fail the JobSet, or restart the JobSet or the Job, with or without counting the restart."""
    on_job_failure_reasons: list[str] | None = None
    """Reasons of Job failures to which the rule applies. By default, it applies to all reasons."""
    on_job_failure_message_patterns: list[str] | None = None
    """Regular expressions for messages of Job failures to which the rule applies. By default, all messages match."""
    target_replicated_jobs: Annotated[list[str] | None, ATOMIC] = None
    """Replicated jobs to whose Jobs the rule applies. By default, it applies to all."""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "action"})


class FailurePolicy(Struct):
    """The conditions under which the JobSet is restarted or has failed."""

    max_restarts: Int32 | None = None
    """Maximum number of restarts before the JobSet fails. Defaults to 0."""
    restart_strategy: Annotated[
        str | None, Markers(default="Recreate", enum=("Recreate", "BlockingRecreate", "InPlaceRestart"))
    ] = None
    """How a restart replaces the Jobs. Defaults to Recreate."""
    rules: list[FailurePolicyRule] | None = None
    """Rules for Jobs that fail. The first rule that matches applies; without a match, the JobSet is restarted."""


class StartupPolicy(Struct):
    """The order in which the replicated jobs start."""

    startup_policy_order: Annotated[str, Markers(enum=("AnyOrder", "InOrder"), required=True)] = ""
    """AnyOrder, or InOrder: each replicated job starts when the one before it is ready."""
    go_always: ClassVar[frozenset[str]] = frozenset({"startup_policy_order"})


class Coordinator(Struct):
    """The pod that coordinates the others. All Jobs and pods get its address in an annotation and a label."""

    replicated_job: Annotated[str, Markers(required=True)] = ""
    """Name of the replicated job that contains the pod."""
    job_index: int | None = None
    """Index of the Job in the replicated job."""
    pod_index: int | None = None
    """Completion index of the pod in the Job."""
    go_always: ClassVar[frozenset[str]] = frozenset({"replicated_job"})


class VolumeRetentionPolicy(Struct):
    """The time at which the volumes of a JobSet are deleted."""

    when_deleted: Annotated[str | None, Markers(default="Delete", enum=("Delete", "Retain"))] = None
    """Whether the volumes are deleted with the JobSet (Delete, the default) or are kept (Retain)."""


class VolumeClaimPolicy(Struct):
    """Volumes that all Jobs of a JobSet share."""

    crd: ClassVar[Markers] = Markers(
        rules=(
            Rule(
                "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
                "namespace cannot be set for VolumeClaimPolicies templates",
            ),
        )
    )

    templates: Annotated[
        list[dict[str, JSON]] | None,
        Markers(max_items=50, list_type="atomic", schema="core.v1.PersistentVolumeClaim"),
    ] = None
    """Templates of PersistentVolumeClaims that are created for the JobSet."""
    retention_policy: VolumeRetentionPolicy | None = None
    """The time at which the volumes are deleted."""


class JobSetSpec(Struct):
    """Desired state of a JobSet."""

    crd: ClassVar[Markers] = Markers(
        rules=(
            Rule(
                "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
                " && self.replicatedJobs.exists(x, has(x.dependsOn)))",
                "StartupPolicy and DependsOn APIs are mutually exclusive",
            ),
        )
    )

    replicated_jobs: Annotated[list[ReplicatedJob] | None, MAP_BY_NAME] = None
    """Groups of Jobs. The Jobs of a group are created from the same template."""
    network: Annotated[Network | None, Markers(rules=(_IMMUTABLE,))] = None
    """The DNS names of the pods."""
    success_policy: Annotated[SuccessPolicy | None, Markers(rules=(_IMMUTABLE,))] = None
    """The condition under which the JobSet has succeeded. By default, all Jobs must succeed."""
    failure_policy: Annotated[FailurePolicy | None, Markers(rules=(_IMMUTABLE,))] = None
    """The conditions under which the JobSet is restarted or has failed. By default, it fails when any Job fails."""
    startup_policy: Annotated[StartupPolicy | None, Markers(rules=(_IMMUTABLE,))] = None
    """The order in which the replicated jobs start. By default, all start at once."""
    suspend: bool | None = None
    """Whether the Jobs are suspended. In the JobSet of a TrainJob, it has the TrainJob's value."""
    coordinator: Coordinator | None = None
    """The pod that coordinates the others."""
    managed_by: str | None = None
    """The controller that manages the JobSet. By default, it is the JobSet controller."""
    ttl_seconds_after_finished: Annotated[Int32 | None, Markers(minimum=0)] = None
    """Time, in seconds, after which a finished JobSet is deleted. By default, it is never deleted."""
    volume_claim_policies: Annotated[
        list[VolumeClaimPolicy] | None, Markers(max_items=50, list_type="atomic", rules=(_IMMUTABLE,))
    ] = None
    """Volumes that all Jobs of the JobSet share. Requires JobSet v0.11 or newer."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"suspend", "managed_by", "ttl_seconds_after_finished"})


class ReplicatedJobStatus(Struct):
    """The numbers of Jobs of one replicated job by their state."""

    name: Annotated[str, Markers(required=True)] = ""
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    suspended: int = 0
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"name", "ready", "succeeded", "failed", "active", "suspended"}
    )


class JobSetStatus(Struct):
    """Observed state of a JobSet."""

    conditions: list[Condition] | None = None
    restarts: int | None = None
    restarts_count_towards_max: int | None = None
    terminal_state: str | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"restarts"})


class _OutlineMetadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _OutlineSpec(msgspec.Struct):
    suspend: bool | None = None


class JobSetOutline(msgspec.Struct):
    """What is often read of a JobSet. To read only this takes a tenth of decoding the JobSet."""

    metadata: _OutlineMetadata
    spec: _OutlineSpec


class JobSet(Object, group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets"):
    """A set of Jobs that run, fail and restart together."""

    applies_defaults: ClassVar[bool] = True

    spec: JobSetSpec = Field(default_factory=JobSetSpec)
    status: JobSetStatus = Field(default_factory=JobSetStatus)
