# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes, for :mod:`.v1`: only programs that use these classes load this module."""

from typing import Annotated, ClassVar

from pydantic import Field

from controller_runtime.machinery import JSON, Object, Struct
from controller_runtime.machinery.quantity import ResourceList


class Taint(Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key", "effect"})


class NodeSpec(Struct):
    pod_cidr: Annotated[str | None, Field(alias="podCIDR")] = None
    pod_cid_rs: Annotated[list[str] | None, Field(alias="podCIDRs")] = None
    provider_id: Annotated[str | None, Field(alias="providerID")] = None
    unschedulable: bool | None = None
    taints: list[Taint] | None = None
    config_source: dict[str, JSON] | None = None
    external_id: Annotated[str | None, Field(alias="externalID")] = None


class NodeCondition(Struct):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset(
        {"type", "status", "last_heartbeat_time", "last_transition_time"}
    )


class NodeAddress(Struct):
    type: str = ""
    address: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"type", "address"})


class DaemonEndpoint(Struct):
    port: Annotated[int, Field(alias="Port")] = 0
    go_always: ClassVar[frozenset[str]] = frozenset({"port"})


class NodeDaemonEndpoints(Struct):
    kubelet_endpoint: DaemonEndpoint | None = None


class NodeSwapStatus(Struct):
    capacity: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"capacity"})


class NodeSystemInfo(Struct):
    machine_id: Annotated[str, Field(alias="machineID")] = ""
    system_uuid: Annotated[str, Field(alias="systemUUID")] = ""
    boot_id: Annotated[str, Field(alias="bootID")] = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""
    swap: NodeSwapStatus | None = None


class ContainerImage(Struct):
    names: list[str] | None = None
    size_bytes: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"names"})


class NodeStatus(Struct):
    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    phase: str | None = None
    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None
    daemon_endpoints: NodeDaemonEndpoints | None = None
    node_info: NodeSystemInfo | None = None
    images: list[ContainerImage] | None = None
    volumes_in_use: list[str] | None = None
    volumes_attached: list[dict[str, JSON]] | None = None
    config: dict[str, JSON] | None = None
    runtime_handlers: list[dict[str, JSON]] | None = None
    features: dict[str, JSON] | None = None
    declared_features: list[str] | None = None


class Node(Object, group="", version="v1", plural="nodes", namespaced=False):
    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)
