# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler's PodGroup: pods that are scheduled together or not at all.

The fields are those of v0.13 and v0.17. A server with the CRD of v0.13 prunes the fields that only v0.17 has:
``minSubGroup``, ``preemptionDelay`` and ``stalenessGracePeriod``.
"""

from typing import Annotated, ClassVar, Final

from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.crd import KindMarkers, Markers
from controller_runtime.machinery.quantity import ResourceList
from pydantic import Field

from pkg.apis.integers import Int32

PREEMPTIBLE: Final = "preemptible"
NON_PREEMPTIBLE: Final = "non-preemptible"

DATE_TIME: Final = Markers(format="date-time")


def parse_preemptibility(value: str) -> str:
    """Return ``value`` if it is a preemptibility or empty. With an empty value, the group's priority decides.

    Raises:
        ValueError: it is neither.
    """
    if value not in (PREEMPTIBLE, NON_PREEMPTIBLE, ""):
        raise ValueError(f"invalid preemptibility value: {value}")
    return value


class TopologyConstraint(Struct):
    """Limits on the distance between pods in a topology."""

    preferred_topology_level: str | None = None
    """The level within which all pods should run."""
    required_topology_level: str | None = None
    """The level within which all pods must run."""
    topology: str | None = None
    """The Topology object that defines the levels."""


class SubGroup(Struct):
    """A part of the group's pods, with its own minimum and topology constraint."""

    name: Annotated[str, Markers(min_length=1, required=True)] = ""
    """Name of the subgroup, unique in the group."""
    min_member: Annotated[Int32 | None, Markers(minimum=0)] = None
    """Minimum number of the subgroup's pods that must start together."""
    min_sub_group: Annotated[Int32 | None, Markers(minimum=0)] = None
    """Minimum number of its direct subgroups that must start together. It cannot be combined with minMember."""
    parent: str | None = None
    """Name of the subgroup that contains this one."""
    topology_constraint: TopologyConstraint | None = None
    """Limits on the distance between the subgroup's pods."""


class PodGroupSpec(Struct):
    """The desired state of a group."""

    min_member: Annotated[Int32 | None, Markers(minimum=1)] = None
    """Minimum number of pods that must start together. Without resources for all of them, none is started."""
    min_sub_group: Annotated[Int32 | None, Markers(minimum=1)] = None
    """Minimum number of top-level subgroups that must start together. It cannot be combined with minMember."""
    queue: str | None = None
    """The queue from which the resources are taken. Without it, the group is not scheduled."""
    priority_class_name: str | None = None
    """The PriorityClass of the group."""
    preemptibility: Annotated[str | None, Markers(enum=(PREEMPTIBLE, NON_PREEMPTIBLE))] = None
    """Whether the group may be preempted. If unset, a group with a priority below 100 may be preempted."""
    parallelism: Int32 | None = None
    """Number of pods that run at the same time."""
    completions: Int32 | None = None
    """Number of pods that must succeed for the group to succeed."""
    backoff_limit: Int32 | None = None
    """Number of failed pods at which the group counts as failed."""
    mark_unschedulable: bool | None = None
    """Whether an event on the pods reports that they are unschedulable."""
    scheduling_backoff: Int32 | None = None
    """Number of scheduling cycles after which the group is unschedulable on its node pool: 1, or -1 for never."""
    topology_constraint: TopologyConstraint | None = None
    """Limits on the distance between the group's pods."""
    sub_groups: list[SubGroup] | None = None
    """Parts of the group's pods, with their own minimums and topology constraints."""
    preemption_delay: str | None = None
    """Time that the group waits before other workloads are evicted for it."""
    staleness_grace_period: str | None = None
    """Time for which the group may run with too few pods before it is evicted. A negative value means no limit."""


class PodGroupResourcesStatus(Struct):
    """Resources of the group's pods."""

    allocated: ResourceList | None = None
    allocated_non_preemptible: ResourceList | None = None
    requested: ResourceList | None = None


class PodGroupCondition(Struct):
    """A condition of a group."""

    type: str | None = None
    status: str | None = None
    transition_id: Annotated[str | None, Field(alias="transitionID")] = None
    last_transition_time: Annotated[str | None, DATE_TIME] = None
    reason: str | None = None
    message: str | None = None


class QuotaDetails(Struct):
    """Resources of the queue, and requests of the group, at the time when the group was found unschedulable."""

    name: str | None = None
    queue_requested_resources: ResourceList | None = None
    queue_deserved_resources: ResourceList | None = None
    queue_allocated_resources: ResourceList | None = None
    queue_allocated_non_preemptible_resources: ResourceList | None = None
    queue_resource_limits: ResourceList | None = None
    pod_group_requested_resources: ResourceList | None = None
    pod_group_requested_non_preemptible_resources: ResourceList | None = None


class UnschedulableExplanationDetails(Struct):
    """The machine-readable part of an explanation."""

    queue_details: QuotaDetails | None = None


class UnschedulableExplanation(Struct):
    """A reason why the group cannot be scheduled."""

    reason: str | None = None
    message: str | None = None
    details: UnschedulableExplanationDetails | None = None


class SchedulingCondition(Struct):
    """The scheduler's finding about the group on a node pool."""

    type: str | None = None
    node_pool: str | None = None
    reason: str | None = None
    message: str | None = None
    reasons: list[UnschedulableExplanation] | None = None
    transition_id: Annotated[str | None, Field(alias="transitionID")] = None
    last_transition_time: Annotated[str | None, DATE_TIME] = None
    status: str | None = None


class PodGroupStatus(Struct):
    """The observed state of a group. The scheduler and its pod group controller write it."""

    phase: str | None = None
    conditions: list[PodGroupCondition] | None = None
    running: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    pending: Int32 | None = None
    resources_status: PodGroupResourcesStatus | None = None
    scheduling_conditions: list[SchedulingCondition] | None = None


class PodGroup(Object, group="scheduling.run.ai", version="v2alpha2", kind="PodGroup", plural="podgroups"):
    """PodGroup is the Schema for the podgroups API."""

    applies_defaults: ClassVar[bool] = True

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)
    crd_kind: ClassVar[KindMarkers] = KindMarkers(status_subresource=True, short_names=("pg",))
