# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods, for :mod:`.v1`: only programs that use these classes load this module."""

from typing import Annotated, ClassVar

from pydantic import Field

from controller_runtime.apis.core.v1 import PodSpec, ResourceRequirements
from controller_runtime.machinery import JSON, Object, Struct
from controller_runtime.machinery.quantity import ResourceList


class PodCondition(Struct):
    type: str = ""
    observed_generation: int | None = None
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"type", "status", "last_probe_time", "last_transition_time"}
    )


class ContainerStateWaiting(Struct):
    reason: str | None = None
    message: str | None = None


class ContainerStateRunning(Struct):
    started_at: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"started_at"})


class ContainerStateTerminated(Struct):
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    container_id: Annotated[str | None, Field(alias="containerID")] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"exit_code", "started_at", "finished_at"})


class ContainerState(Struct):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct):
    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    ready: bool = False
    restart_count: int | None = None
    image: str = ""
    image_id: Annotated[str, Field(alias="imageID")] = ""
    container_id: Annotated[str | None, Field(alias="containerID")] = None
    started: bool | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None
    volume_mounts: list[dict[str, JSON]] | None = None
    user: dict[str, JSON] | None = None
    allocated_resources_status: list[dict[str, JSON]] | None = None
    stop_signal: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"name", "state", "last_state", "ready", "restart_count", "image", "image_id"}
    )
    go_pointers: ClassVar[frozenset[str]] = frozenset({"started", "stop_signal"})


class PodIP(Struct):
    ip: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"ip"})


class HostIP(Struct):
    ip: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"ip"})


class PodResourceClaimStatus(Struct):
    name: str = ""
    resource_claim_name: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"resource_claim_name"})


class PodStatus(Struct):
    observed_generation: int | None = None
    phase: str | None = None
    conditions: list[PodCondition] | None = None
    message: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None
    host_ip: Annotated[str | None, Field(alias="hostIP")] = None
    host_ips: Annotated[list[HostIP] | None, Field(alias="hostIPs")] = None
    pod_ip: Annotated[str | None, Field(alias="podIP")] = None
    pod_ips: Annotated[list[PodIP] | None, Field(alias="podIPs")] = None
    start_time: str | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    qos_class: str | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None
    resize: str | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: dict[str, JSON] | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class Pod(Object, group="", version="v1", plural="pods"):
    spec: PodSpec = Field(default_factory=PodSpec)
    status: PodStatus = Field(default_factory=PodStatus)
