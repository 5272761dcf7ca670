# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Services, for :mod:`.v1`: only programs that use these classes load this module."""

from typing import Annotated, ClassVar

from pydantic import Field

from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.base import is_unset
from controller_runtime.machinery.quantity import IntOrString


class ServicePort(Struct):
    name: str | None = None
    protocol: str | None = None
    app_protocol: str | None = None
    port: int | None = None
    target_port: IntOrString | None = None
    node_port: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"port"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"app_protocol"})


class ClientIPConfig(Struct):
    timeout_seconds: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"timeout_seconds"})


class SessionAffinityConfig(Struct):
    client_ip: Annotated[ClientIPConfig | None, Field(alias="clientIP")] = None


class ServiceSpec(Struct):
    ports: list[ServicePort] | None = None
    selector: dict[str, str] | None = None
    cluster_ip: Annotated[str | None, Field(alias="clusterIP")] = None
    cluster_ips: Annotated[list[str] | None, Field(alias="clusterIPs")] = None
    type: str | None = None
    external_ips: Annotated[list[str] | None, Field(alias="externalIPs")] = None
    session_affinity: str | None = None
    load_balancer_ip: Annotated[str | None, Field(alias="loadBalancerIP")] = None
    load_balancer_source_ranges: list[str] | None = None
    external_name: str | None = None
    external_traffic_policy: str | None = None
    health_check_node_port: int | None = None
    publish_not_ready_addresses: bool | None = None
    session_affinity_config: SessionAffinityConfig | None = None
    ip_families: list[str] | None = None
    ip_family_policy: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str | None = None
    internal_traffic_policy: str | None = None
    traffic_distribution: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {
            "ip_family_policy",
            "allocate_load_balancer_node_ports",
            "load_balancer_class",
            "internal_traffic_policy",
            "traffic_distribution",
        }
    )


class PortStatus(Struct):
    port: int = 0
    protocol: str = ""
    error: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"port", "protocol"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"error"})


class LoadBalancerIngress(Struct):
    ip: str | None = None
    hostname: str | None = None
    ip_mode: Annotated[str | None, Field(alias="ipMode")] = None
    ports: list[PortStatus] | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"ip_mode"})


class LoadBalancerStatus(Struct):
    ingress: list[LoadBalancerIngress] | None = None


class ServiceStatus(Struct):
    load_balancer: LoadBalancerStatus = Field(default_factory=LoadBalancerStatus, exclude_if=is_unset)
    conditions: list[Condition] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"load_balancer"})


class Service(Object, group="", version="v1", plural="services"):
    spec: ServiceSpec = Field(default_factory=ServiceSpec)
    status: ServiceStatus = Field(default_factory=ServiceStatus)
