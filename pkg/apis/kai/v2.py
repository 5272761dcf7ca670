# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler's Queue: a share of the cluster's resources."""

from typing import Annotated, ClassVar, Final

from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.crd import KindMarkers, Markers, PrinterColumn
from controller_runtime.machinery.quantity import ResourceList
from pydantic import Field

DATE_TIME: Final = Markers(format="date-time")


class QueueResource(Struct):
    """A queue's share of one resource; -1 means no limit."""

    quota: float | None = None
    over_quota_weight: float | None = None
    limit: float | None = None


class QueueResources(Struct):
    """A queue's share of each resource."""

    gpu: QueueResource | None = None
    cpu: QueueResource | None = None
    memory: QueueResource | None = None


class QueueSpec(Struct):
    """The desired state of a queue."""

    display_name: str | None = None
    parent_queue: str | None = None
    resources: QueueResources | None = None
    priority: int | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class QueueCondition(Struct):
    """A condition of a queue."""

    type: str = ""
    status: str = ""
    last_probe_time: Annotated[str | None, DATE_TIME] = None
    last_transition_time: Annotated[str | None, DATE_TIME] = None
    reason: str | None = None
    message: str | None = None


class QueueStatus(Struct):
    """The observed state of a queue."""

    conditions: list[QueueCondition] | None = None
    child_queues: list[str] | None = None
    allocated: ResourceList | None = None
    allocated_non_preemptible: ResourceList | None = None
    requested: ResourceList | None = None


class Queue(Object, group="scheduling.run.ai", version="v2", kind="Queue", plural="queues", namespaced=False):
    """Queue is the Schema for the queues API."""

    spec: QueueSpec = Field(default_factory=QueueSpec)
    status: QueueStatus = Field(default_factory=QueueStatus)
    crd_kind: ClassVar[KindMarkers] = KindMarkers(
        printer_columns=(
            PrinterColumn("Priority", "string", ".spec.priority"),
            PrinterColumn("Parent", "string", ".spec.parentQueue"),
            PrinterColumn("Children", "string", ".status.childQueues"),
            PrinterColumn("DisplayName", "string", ".spec.displayName"),
        ),
        status_subresource=True,
    )
