# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The core group: pods, the objects that they refer to, and related small kinds."""

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from controller_runtime import _ondemand
from controller_runtime.apis.meta.v1 import LabelSelector, ObjectMeta
from controller_runtime.machinery import JSON, Object, Struct
from controller_runtime.machinery.base import is_unset
from controller_runtime.machinery.quantity import IntOrString, Quantity, ResourceList

from .events import Event as Event
from .events import EventSeries as EventSeries
from .events import EventSource as EventSource
from .events import ObjectReference as ObjectReference

if TYPE_CHECKING:
    from .claims import PersistentVolumeClaim as PersistentVolumeClaim
    from .claims import PersistentVolumeClaimStatus as PersistentVolumeClaimStatus
    from .generated import Endpoints as Endpoints
    from .generated import EndpointSubset as EndpointSubset
    from .generated import PersistentVolume as PersistentVolume
    from .generated import PersistentVolumeSpec as PersistentVolumeSpec
    from .generated import ResourceQuota as ResourceQuota
    from .generated import ResourceQuotaSpec as ResourceQuotaSpec
    from .namespaces import Namespace as Namespace
    from .namespaces import NamespaceCondition as NamespaceCondition
    from .namespaces import NamespaceSpec as NamespaceSpec
    from .namespaces import NamespaceStatus as NamespaceStatus
    from .nodes import ContainerImage as ContainerImage
    from .nodes import DaemonEndpoint as DaemonEndpoint
    from .nodes import Node as Node
    from .nodes import NodeAddress as NodeAddress
    from .nodes import NodeCondition as NodeCondition
    from .nodes import NodeDaemonEndpoints as NodeDaemonEndpoints
    from .nodes import NodeSpec as NodeSpec
    from .nodes import NodeStatus as NodeStatus
    from .nodes import NodeSwapStatus as NodeSwapStatus
    from .nodes import NodeSystemInfo as NodeSystemInfo
    from .nodes import Taint as Taint
    from .pods import ContainerState as ContainerState
    from .pods import ContainerStateRunning as ContainerStateRunning
    from .pods import ContainerStateTerminated as ContainerStateTerminated
    from .pods import ContainerStateWaiting as ContainerStateWaiting
    from .pods import ContainerStatus as ContainerStatus
    from .pods import HostIP as HostIP
    from .pods import Pod as Pod
    from .pods import PodCondition as PodCondition
    from .pods import PodIP as PodIP
    from .pods import PodResourceClaimStatus as PodResourceClaimStatus
    from .pods import PodStatus as PodStatus
    from .services import ClientIPConfig as ClientIPConfig
    from .services import LoadBalancerIngress as LoadBalancerIngress
    from .services import LoadBalancerStatus as LoadBalancerStatus
    from .services import PortStatus as PortStatus
    from .services import Service as Service
    from .services import ServicePort as ServicePort
    from .services import ServiceSpec as ServiceSpec
    from .services import ServiceStatus as ServiceStatus
    from .services import SessionAffinityConfig as SessionAffinityConfig
else:  # programs that do not need these kinds do not load them
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            ".claims": (
                "PersistentVolumeClaim",
                "PersistentVolumeClaimStatus",
            ),
            ".generated": (
                "EndpointSubset",
                "Endpoints",
                "PersistentVolume",
                "PersistentVolumeSpec",
                "ResourceQuota",
                "ResourceQuotaSpec",
            ),
            ".namespaces": (
                "Namespace",
                "NamespaceCondition",
                "NamespaceSpec",
                "NamespaceStatus",
            ),
            ".nodes": (
                "ContainerImage",
                "DaemonEndpoint",
                "Node",
                "NodeAddress",
                "NodeCondition",
                "NodeDaemonEndpoints",
                "NodeSpec",
                "NodeStatus",
                "NodeSwapStatus",
                "NodeSystemInfo",
                "Taint",
            ),
            ".pods": (
                "ContainerState",
                "ContainerStateRunning",
                "ContainerStateTerminated",
                "ContainerStateWaiting",
                "ContainerStatus",
                "HostIP",
                "Pod",
                "PodCondition",
                "PodIP",
                "PodResourceClaimStatus",
                "PodStatus",
            ),
            ".services": (
                "ClientIPConfig",
                "LoadBalancerIngress",
                "LoadBalancerStatus",
                "PortStatus",
                "Service",
                "ServicePort",
                "ServiceSpec",
                "ServiceStatus",
                "SessionAffinityConfig",
            ),
        },
    )


class LocalObjectReference(Struct):
    name: str | None = None


class TypedLocalObjectReference(Struct):
    api_group: str | None = None
    kind: str = ""
    name: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"api_group", "kind", "name"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"api_group"})


class ObjectFieldSelector(Struct):
    api_version: str | None = None
    field_path: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"field_path"})


class ResourceFieldSelector(Struct):
    container_name: str | None = None
    resource: str = ""
    divisor: Quantity | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"resource", "divisor"})


class ConfigMapKeySelector(Struct):
    name: str | None = None
    key: str = ""
    optional: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class SecretKeySelector(Struct):
    name: str | None = None
    key: str = ""
    optional: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class FileKeySelector(Struct):
    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"volume_name", "path", "key"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class EnvVarSource(Struct):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(Struct):
    name: str = ""
    value: str | None = None
    value_from: EnvVarSource | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})


class ConfigMapEnvSource(Struct):
    name: str | None = None
    optional: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class SecretEnvSource(Struct):
    name: str | None = None
    optional: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class EnvFromSource(Struct):
    prefix: str | None = None
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


class ContainerPort(Struct):
    name: str | None = None
    host_port: int | None = None
    container_port: int | None = None
    protocol: str | None = None
    host_ip: Annotated[str | None, Field(alias="hostIP")] = None
    go_always: ClassVar[frozenset[str]] = frozenset({"container_port"})


class ResourceClaim(Struct):
    name: str = ""
    request: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})


class ResourceRequirements(Struct):
    limits: ResourceList | None = None
    requests: ResourceList | None = None
    claims: list[ResourceClaim] | None = None


class ContainerResizePolicy(Struct):
    resource_name: str = ""
    restart_policy: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"resource_name", "restart_policy"})


class ContainerRestartRuleOnExitCodes(Struct):
    operator: str | None = None
    values: list[int] | None = None


class ContainerRestartRule(Struct):
    action: str | None = None
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class VolumeMount(Struct):
    name: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None
    mount_path: str = ""
    sub_path: str | None = None
    mount_propagation: str | None = None
    sub_path_expr: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "mount_path"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"recursive_read_only", "mount_propagation"})


class VolumeDevice(Struct):
    name: str = ""
    device_path: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "device_path"})


class HTTPHeader(Struct):
    name: str = ""
    value: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "value"})


class HTTPGetAction(Struct):
    path: str | None = None
    port: IntOrString | None = None
    host: str | None = None
    scheme: str | None = None
    http_headers: list[HTTPHeader] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"port"})


class TCPSocketAction(Struct):
    port: IntOrString | None = None
    host: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"port"})


class ExecAction(Struct):
    command: list[str] | None = None


class GRPCAction(Struct):
    port: int | None = None
    service: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"port", "service"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"service"})


class SleepAction(Struct):
    seconds: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"seconds"})


class Probe(Struct):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int | None = None
    timeout_seconds: int | None = None
    period_seconds: int | None = None
    success_threshold: int | None = None
    failure_threshold: int | None = None
    termination_grace_period_seconds: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"termination_grace_period_seconds"})


class LifecycleHandler(Struct):
    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Struct):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"stop_signal"})


class Capabilities(Struct):
    add: list[str] | None = None
    drop: list[str] | None = None


class SELinuxOptions(Struct):
    user: str | None = None
    role: str | None = None
    type: str | None = None
    level: str | None = None


class WindowsSecurityContextOptions(Struct):
    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"gmsa_credential_spec_name", "gmsa_credential_spec", "run_as_user_name", "host_process"}
    )


class SeccompProfile(Struct):
    type: str = ""
    localhost_profile: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"type"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"localhost_profile"})


class AppArmorProfile(Struct):
    type: str = ""
    localhost_profile: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"type"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"localhost_profile"})


class SecurityContext(Struct):
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {
            "privileged",
            "run_as_user",
            "run_as_group",
            "run_as_non_root",
            "read_only_root_filesystem",
            "allow_privilege_escalation",
            "proc_mount",
        }
    )


class Sysctl(Struct):
    name: str = ""
    value: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "value"})


class PodSecurityContext(Struct):
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: list[int] | None = None
    supplemental_groups_policy: str | None = None
    fs_group: int | None = None
    sysctls: list[Sysctl] | None = None
    fs_group_change_policy: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_change_policy: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {
            "run_as_user",
            "run_as_group",
            "run_as_non_root",
            "supplemental_groups_policy",
            "fs_group",
            "fs_group_change_policy",
            "se_linux_change_policy",
        }
    )


class Container(Struct):
    name: str = ""
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    ports: list[ContainerPort] | None = None
    env_from: list[EnvFromSource] | None = None
    env: list[EnvVar] | None = None
    resources: ResourceRequirements | None = None
    resize_policy: list[ContainerResizePolicy] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None
    volume_devices: list[VolumeDevice] | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str | None = None
    termination_message_policy: str | None = None
    image_pull_policy: str | None = None
    security_context: SecurityContext | None = None
    stdin: bool | None = None
    stdin_once: bool | None = None
    tty: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name", "resources"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"restart_policy"})


class NodeSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key", "operator"})


class NodeSelectorTerm(Struct):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Struct):
    node_selector_terms: list[NodeSelectorTerm] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"node_selector_terms"})


class PreferredSchedulingTerm(Struct):
    weight: int | None = None
    preference: NodeSelectorTerm | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"weight", "preference"})


class NodeAffinity(Struct):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None


class PodAffinityTerm(Struct):
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"topology_key"})


class WeightedPodAffinityTerm(Struct):
    weight: int | None = None
    pod_affinity_term: PodAffinityTerm | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"weight", "pod_affinity_term"})


class PodAffinity(Struct):
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None


class PodAntiAffinity(Struct):
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"toleration_seconds"})


class TopologySpreadConstraint(Struct):
    max_skew: int | None = None
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"max_skew", "topology_key", "when_unsatisfiable"})
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"min_domains", "node_affinity_policy", "node_taints_policy"}
    )


class KeyToPath(Struct):
    key: str = ""
    path: str = ""
    mode: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"key", "path"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"mode"})


class ConfigMapVolumeSource(Struct):
    name: str | None = None
    items: list[KeyToPath] | None = None
    default_mode: int | None = None
    optional: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"default_mode", "optional"})


class SecretVolumeSource(Struct):
    secret_name: str | None = None
    items: list[KeyToPath] | None = None
    default_mode: int | None = None
    optional: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"default_mode", "optional"})


class EmptyDirVolumeSource(Struct):
    medium: str | None = None
    size_limit: Quantity | None = None


class HostPathVolumeSource(Struct):
    path: str = ""
    type: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"path"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"type"})


class PersistentVolumeClaimVolumeSource(Struct):
    claim_name: str = ""
    read_only: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"claim_name"})


class NFSVolumeSource(Struct):
    server: str = ""
    path: str = ""
    read_only: bool | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"server", "path"})


class DownwardAPIVolumeFile(Struct):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"path"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"mode"})


class DownwardAPIVolumeSource(Struct):
    items: list[DownwardAPIVolumeFile] | None = None
    default_mode: int | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"default_mode"})


class SecretProjection(Struct):
    name: str | None = None
    items: list[KeyToPath] | None = None
    optional: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class ConfigMapProjection(Struct):
    name: str | None = None
    items: list[KeyToPath] | None = None
    optional: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"optional"})


class DownwardAPIProjection(Struct):
    items: list[DownwardAPIVolumeFile] | None = None


class ServiceAccountTokenProjection(Struct):
    audience: str | None = None
    expiration_seconds: int | None = None
    path: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"path"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"expiration_seconds"})


class ClusterTrustBundleProjection(Struct):
    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"path"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"name", "signer_name", "optional"})


class PodCertificateProjection(Struct):
    signer_name: str | None = None
    key_type: str | None = None
    max_expiration_seconds: int | None = None
    credential_bundle_path: str | None = None
    key_path: str | None = None
    certificate_chain_path: str | None = None
    user_annotations: dict[str, str] | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"max_expiration_seconds"})


class VolumeProjection(Struct):
    secret: SecretProjection | None = None
    downward_api: Annotated[DownwardAPIProjection | None, Field(alias="downwardAPI")] = None
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(Struct):
    sources: list[VolumeProjection] | None = None
    default_mode: int | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"sources"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"default_mode"})


class CSIVolumeSource(Struct):
    driver: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] | None = None
    node_publish_secret_ref: LocalObjectReference | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"driver"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"read_only", "fs_type"})


class ImageVolumeSource(Struct):
    reference: str | None = None
    pull_policy: str | None = None


class TypedObjectReference(Struct):
    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"api_group", "kind", "name"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"api_group", "namespace"})


class VolumeResourceRequirements(Struct):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class PersistentVolumeClaimSpec(Struct):
    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements | None = None
    volume_name: str | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"resources"})
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"storage_class_name", "volume_mode", "volume_attributes_class_name"}
    )


class PersistentVolumeClaimTemplate(Struct):
    metadata: ObjectMeta | None = None
    spec: PersistentVolumeClaimSpec = Field(default_factory=PersistentVolumeClaimSpec)
    go_always: ClassVar[frozenset[str]] = frozenset({"metadata", "spec"})


class EphemeralVolumeSource(Struct):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(Struct):
    name: str = ""
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: dict[str, JSON] | None = None
    aws_elastic_block_store: dict[str, JSON] | None = None
    git_repo: dict[str, JSON] | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: dict[str, JSON] | None = None
    glusterfs: dict[str, JSON] | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: dict[str, JSON] | None = None
    flex_volume: dict[str, JSON] | None = None
    cinder: dict[str, JSON] | None = None
    cephfs: dict[str, JSON] | None = None
    flocker: dict[str, JSON] | None = None
    downward_api: Annotated[DownwardAPIVolumeSource | None, Field(alias="downwardAPI")] = None
    fc: dict[str, JSON] | None = None
    azure_file: dict[str, JSON] | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: dict[str, JSON] | None = None
    quobyte: dict[str, JSON] | None = None
    azure_disk: dict[str, JSON] | None = None
    photon_persistent_disk: dict[str, JSON] | None = None
    projected: ProjectedVolumeSource | None = None
    portworx_volume: dict[str, JSON] | None = None
    scale_io: Annotated[dict[str, JSON] | None, Field(alias="scaleIO")] = None
    storageos: dict[str, JSON] | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})


class HostAlias(Struct):
    ip: str = ""
    hostnames: list[str] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"ip"})


class PodDNSConfigOption(Struct):
    name: str | None = None
    value: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"value"})


class PodDNSConfig(Struct):
    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[PodDNSConfigOption] | None = None


class PodReadinessGate(Struct):
    condition_type: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"condition_type"})


class PodSchedulingGate(Struct):
    name: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})


class PodSchedulingGroup(Struct):
    pod_group_name: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"pod_group_name"})


class PodResourceClaim(Struct):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})
    go_pointers: ClassVar[frozenset[str]] = frozenset({"resource_claim_name", "resource_claim_template_name"})


class PodOS(Struct):
    name: str = ""
    go_always: ClassVar[frozenset[str]] = frozenset({"name"})


class EphemeralContainer(Container):
    target_container_name: str | None = None


class PodSpec(Struct):
    volumes: list[Volume] | None = None
    init_containers: list[Container] | None = None
    containers: list[Container] | None = None
    ephemeral_containers: list[EphemeralContainer] | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    dns_policy: str | None = None
    node_selector: dict[str, str] | None = None
    service_account_name: str | None = None
    service_account: str | None = None
    automount_service_account_token: bool | None = None
    node_name: str | None = None
    host_network: bool | None = None
    host_pid: Annotated[bool | None, Field(alias="hostPID")] = None
    host_ipc: Annotated[bool | None, Field(alias="hostIPC")] = None
    share_process_namespace: bool | None = None
    security_context: PodSecurityContext | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    hostname: str | None = None
    subdomain: str | None = None
    affinity: Affinity | None = None
    scheduler_name: str | None = None
    tolerations: list[Toleration] | None = None
    host_aliases: list[HostAlias] | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    dns_config: PodDNSConfig | None = None
    readiness_gates: list[PodReadinessGate] | None = None
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    preemption_policy: str | None = None
    overhead: ResourceList | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    set_hostname_as_fqdn: Annotated[bool | None, Field(alias="setHostnameAsFQDN")] = None
    os: PodOS | None = None
    host_users: bool | None = None
    scheduling_gates: list[PodSchedulingGate] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    resource_claims: list[PodResourceClaim] | None = None
    resources: ResourceRequirements | None = None
    hostname_override: str | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"containers"})
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {
            "termination_grace_period_seconds",
            "active_deadline_seconds",
            "automount_service_account_token",
            "share_process_namespace",
            "priority",
            "runtime_class_name",
            "enable_service_links",
            "preemption_policy",
            "set_hostname_as_fqdn",
            "host_users",
            "hostname_override",
        }
    )


class PodTemplateSpec(Struct):
    metadata: ObjectMeta | None = None
    spec: PodSpec = Field(default_factory=PodSpec, exclude_if=is_unset)
    go_always: ClassVar[frozenset[str]] = frozenset({"metadata", "spec"})


class LimitRangeItem(Struct):
    type: str = ""
    max: ResourceList | None = None
    min: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"type"})


class LimitRangeSpec(Struct):
    limits: list[LimitRangeItem] | None = None
    go_always: ClassVar[frozenset[str]] = frozenset({"limits"})


class PodTemplate(Object, group="", version="v1", plural="podtemplates"):
    template: PodTemplateSpec = Field(default_factory=PodTemplateSpec)
    go_always: ClassVar[frozenset[str]] = frozenset({"template"})


class Secret(Object, group="", version="v1", plural="secrets"):
    immutable: bool | None = None
    data: dict[str, str] | None = None
    string_data: dict[str, str] | None = None
    type: str | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"immutable"})


class ConfigMap(Object, group="", version="v1", plural="configmaps"):
    immutable: bool | None = None
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"immutable"})


class LimitRange(Object, group="", version="v1", plural="limitranges"):
    spec: LimitRangeSpec = Field(default_factory=LimitRangeSpec)


class ServiceAccount(Object, group="", version="v1", plural="serviceaccounts"):
    secrets: list[ObjectReference] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    automount_service_account_token: bool | None = None
    go_pointers: ClassVar[frozenset[str]] = frozenset({"automount_service_account_token"})
