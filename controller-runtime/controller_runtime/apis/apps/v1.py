# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deployments, replica sets, stateful sets, daemon sets and their revisions."""

from typing import ClassVar

from pydantic import Field

from controller_runtime.apis.core.v1 import PersistentVolumeClaim, PodTemplateSpec
from controller_runtime.apis.meta.v1 import LabelSelector
from controller_runtime.machinery import JSON, Object, Struct
from controller_runtime.machinery.base import is_unset
from controller_runtime.machinery.quantity import IntOrString


class DeploymentCondition(Struct):
    last_transition_time: str | None = None
    last_update_time: str | None = None
    message: str | None = None
    reason: str | None = None
    status: str = ""
    type: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"status", "type"})


class RollingUpdateDeployment(Struct):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class DeploymentStrategy(Struct):
    rolling_update: RollingUpdateDeployment | None = None
    type: str | None = None


class DeploymentSpec(Struct):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec, exclude_if=is_unset)
    strategy: DeploymentStrategy | None = None
    min_ready_seconds: int | None = None
    revision_history_limit: int | None = None
    paused: bool | None = None
    progress_deadline_seconds: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"selector", "template"})
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"progress_deadline_seconds", "replicas", "revision_history_limit"}
    )


class DeploymentStatus(Struct):
    available_replicas: int | None = None
    collision_count: int | None = None
    conditions: list[DeploymentCondition] | None = None
    observed_generation: int | None = None
    ready_replicas: int | None = None
    replicas: int | None = None
    terminating_replicas: int | None = None
    unavailable_replicas: int | None = None
    updated_replicas: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"collision_count", "terminating_replicas"})


class ReplicaSetCondition(Struct):
    last_transition_time: str | None = None
    message: str | None = None
    reason: str | None = None
    status: str = ""
    type: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"status", "type"})


class ReplicaSetSpec(Struct):
    min_ready_seconds: int | None = None
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec, exclude_if=is_unset)
    go_always: ClassVar[frozenset[str]] = frozenset({"selector", "template"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"replicas"})


class ReplicaSetStatus(Struct):
    available_replicas: int | None = None
    conditions: list[ReplicaSetCondition] | None = None
    fully_labeled_replicas: int | None = None
    observed_generation: int | None = None
    ready_replicas: int | None = None
    replicas: int | None = None
    terminating_replicas: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"replicas"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"terminating_replicas"})


class StatefulSetCondition(Struct):
    last_transition_time: str | None = None
    message: str | None = None
    reason: str | None = None
    status: str = ""
    type: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"status", "type"})


class RollingUpdateStatefulSetStrategy(Struct):
    max_unavailable: IntOrString | None = None
    partition: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"partition"})


class StatefulSetUpdateStrategy(Struct):
    rolling_update: RollingUpdateStatefulSetStrategy | None = None
    type: str | None = None


class StatefulSetPersistentVolumeClaimRetentionPolicy(Struct):
    when_deleted: str | None = None
    when_scaled: str | None = None


class StatefulSetOrdinals(Struct):
    start: int | None = None


class StatefulSetSpec(Struct):
    min_ready_seconds: int | None = None
    ordinals: StatefulSetOrdinals | None = None
    persistent_volume_claim_retention_policy: StatefulSetPersistentVolumeClaimRetentionPolicy | None = None
    pod_management_policy: str | None = None
    replicas: int | None = None
    revision_history_limit: int | None = None
    selector: LabelSelector | None = None
    service_name: str | None = None
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec, exclude_if=is_unset)
    update_strategy: StatefulSetUpdateStrategy | None = None
    volume_claim_templates: list[PersistentVolumeClaim] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"selector", "template"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"replicas", "revision_history_limit"})


class StatefulSetStatus(Struct):
    available_replicas: int | None = None
    collision_count: int | None = None
    conditions: list[StatefulSetCondition] | None = None
    current_replicas: int | None = None
    current_revision: str | None = None
    observed_generation: int | None = None
    ready_replicas: int | None = None
    replicas: int | None = None
    update_revision: str | None = None
    updated_replicas: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"replicas"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"collision_count"})


class DaemonSetCondition(Struct):
    last_transition_time: str | None = None
    message: str | None = None
    reason: str | None = None
    status: str = ""
    type: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"status", "type"})


class RollingUpdateDaemonSet(Struct):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None


class DaemonSetUpdateStrategy(Struct):
    rolling_update: RollingUpdateDaemonSet | None = None
    type: str | None = None


class DaemonSetSpec(Struct):
    min_ready_seconds: int | None = None
    revision_history_limit: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec, exclude_if=is_unset)
    update_strategy: DaemonSetUpdateStrategy | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"selector", "template"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"revision_history_limit"})


class DaemonSetStatus(Struct):
    collision_count: int | None = None
    conditions: list[DaemonSetCondition] | None = None
    current_number_scheduled: int | None = None
    desired_number_scheduled: int | None = None
    number_available: int | None = None
    number_misscheduled: int | None = None
    number_ready: int | None = None
    number_unavailable: int | None = None
    observed_generation: int | None = None
    updated_number_scheduled: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"current_number_scheduled", "desired_number_scheduled", "number_misscheduled", "number_ready"}
    )
    go_pointers: ClassVar[frozenset[str]] = frozenset({"collision_count"})


class Deployment(Object, group="apps", version="v1", plural="deployments"):
    spec: DeploymentSpec = Field(default_factory=DeploymentSpec)
    status: DeploymentStatus = Field(default_factory=DeploymentStatus)


class ReplicaSet(Object, group="apps", version="v1", plural="replicasets"):
    spec: ReplicaSetSpec = Field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = Field(default_factory=ReplicaSetStatus)


class StatefulSet(Object, group="apps", version="v1", plural="statefulsets"):
    spec: StatefulSetSpec = Field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = Field(default_factory=StatefulSetStatus)


class DaemonSet(Object, group="apps", version="v1", plural="daemonsets"):
    spec: DaemonSetSpec = Field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = Field(default_factory=DaemonSetStatus)


class ControllerRevision(Object, group="apps", version="v1", plural="controllerrevisions"):
    """appsv1.ControllerRevision; the controller that stores ``data`` defines its content."""

    data: JSON = None
    revision: int = 0
    go_always: ClassVar[frozenset[str]] = frozenset({"revision"})
