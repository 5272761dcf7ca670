# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Configuration: the operator's settings of the manager. The module ``defaults`` has the defaults of unset fields."""

from typing import ClassVar, Final

from controller_runtime.machinery import GVK, Struct
from pydantic import Field

GROUP: Final = "config.trainer.kubeflow.org"
VERSION: Final = "v1alpha1"

V2_1: Final = "2.1"
V2_3: Final = "2.3"
V2_4: Final = "2.4"
"""A preview: v2.4 is not released. The behaviour may change until then."""
COMPATIBILITY_VERSIONS: Final = (V2_1, V2_3, V2_4)
"""The releases of Kubeflow Trainer whose behaviour ``compatibility_version`` can select."""

ALLOW: Final = "allow"
DENY: Final = "deny"
CHOICES: Final = (ALLOW, DENY)
"""The values of settings that allow or deny a field of TrainJobs."""


class ControllerWebhook(Struct):
    """The address of the webhook server, and the folder of its certificate."""

    port: int | None = Field(default=None, description="Port of the webhook server.")
    host: str | None = Field(
        default=None,
        description="Address on which the webhook server listens. An empty value means all addresses.",
    )
    cert_dir: str | None = Field(
        default=None,
        description="Folder with the certificate of the webhook server, in the files `tls.crt` and `tls.key`. By "
        "default, it is `k8s-webhook-server/serving-certs` in the temporary folder.",
    )


class MetricsAuth(Struct):
    """The name that Kubeflow Trainer's main branch has for ``metrics.requireAuthorization``."""

    enabled: bool | None = Field(
        default=None,
        description="The same as `metrics.requireAuthorization`, under the name that newer releases of Trainer use. If "
        "both are set, they must be equal.",
    )


class ControllerMetrics(Struct):
    """How and to which clients metrics are served."""

    bind_address: str | None = Field(
        default=None, description="Address at which metrics are served. With `0`, they are not served."
    )
    secure_serving: bool | None = Field(
        default=None,
        description="Whether metrics are served by HTTPS, with a certificate that the manager creates when it starts.",
    )
    require_authorization: bool | None = Field(
        default=None,
        description="Whether metrics are served only to clients whose token the API server accepts and that have the "
        "permission to `get` the path. By default, they are served to every client. Requires `metrics.secureServing`.",
    )
    auth: MetricsAuth | None = None


class ControllerHealth(Struct):
    """The address and paths of the probes."""

    health_probe_bind_address: str | None = Field(
        default=None,
        description="Address at which the probes are served. With `0`, they are not served.",
    )
    readiness_endpoint_name: str | None = Field(default=None, description="Path of the readiness probe.")
    liveness_endpoint_name: str | None = Field(
        default=None,
        description="Path of the liveness probe. It must differ from the path of the readiness probe.",
    )


class LeaderElection(Struct):
    """Leader election among several replicas of the manager. Durations are written as in Go: ``15s``."""

    leader_elect: bool | None = Field(
        default=None,
        description="Whether the replicas elect a leader, so that only one of them reconciles at a time.",
    )
    lease_duration: str | None = Field(
        default=None,
        description="Time for which a lease is valid without being renewed.",
    )
    renew_deadline: str | None = Field(
        default=None,
        description="Time after which a leader that cannot renew the lease stops. It must be less than "
        "`leaseDuration`.",
    )
    retry_period: str | None = Field(
        default=None,
        description="Time between two attempts of a replica to acquire or renew the lease. It must be less than "
        "`renewDeadline`.",
    )
    resource_lock: str | None = Field(
        default=None, description="Kind of the lock. Only `leases` is supported."
    )
    resource_name: str | None = Field(default=None, description="Name of the Lease.")
    resource_namespace: str | None = Field(
        default=None,
        description="Namespace of the Lease. By default, it is the namespace of the manager.",
    )


class ControllerConfigurationSpec(Struct):
    """The concurrency of the controllers."""

    group_kind_concurrency: dict[str, int] | None = Field(
        default=None,
        description="Maximum number of concurrent reconciles of a kind, by `Kind.group`. The default is 5 for "
        "TrainJobs and 1 for other kinds.",
    )


class CertManagement(Struct):
    """How the manager creates the certificate of its webhooks, and where it stores it."""

    enable: bool | None = Field(
        default=None,
        description="Whether the manager creates, stores and renews the certificate of its webhooks.",
    )
    webhook_service_name: str | None = Field(
        default=None,
        description="Service of the webhooks, for which the certificate is issued.",
    )
    webhook_secret_name: str | None = Field(
        default=None,
        description="Secret in which the CA and the certificate are stored.",
    )


class ClientConnection(Struct):
    """Throttling of the requests to the API server."""

    qps: float | None = Field(
        default=None,
        description="Maximum sustained rate of requests to the API server, in requests per second. A negative value "
        "means no limit, and `0` means 5.",
    )
    burst: int | None = Field(
        default=None,
        description="Maximum number of requests that may be sent at once before `qps` applies. `0` means 10.",
    )


class StatusServer(Struct):
    """The status server, which runs if the feature gate `TrainJobStatus` is enabled."""

    port: int | None = Field(
        default=None,
        description="Port of the status server. It listens on the same address as the webhook server.",
    )
    qps: float | None = Field(
        default=None,
        description="Maximum sustained rate of status updates that are sent to the API server, in updates per second. "
        "`0` means the default.",
    )
    burst: int | None = Field(
        default=None,
        description="Maximum number of status updates that may be sent at once before `qps` applies. `0` means the "
        "default.",
    )


class TLSOptions(Struct):
    """TLS settings of the webhook server, the metrics server and the status server."""

    min_version: str | None = Field(
        default=None,
        description="Oldest TLS version that is accepted: `1.0`, `1.1`, `1.2` or `1.3`. The default is `1.2`.",
    )
    cipher_suites: list[str] | None = Field(
        default=None,
        description="Cipher suites for TLS 1.2 and older, by their IANA names. The cipher suites of TLS 1.3 cannot be "
        "configured.",
    )
    next_protos: list[str] | None = Field(
        default=None,
        description="Protocols that are offered by ALPN. Only `http/1.1` is served.",
    )


class ObjectReference(Struct):
    """The name and namespace of an object."""

    name: str | None = Field(default=None, description="Name of the object.")
    namespace: str | None = Field(default=None, description="Namespace of the object.")


class PodGrouper(Struct):
    """Settings of the pod grouper, which creates pod groups for KAI-Scheduler."""

    enable: bool | None = Field(
        default=None, description="Whether the pod grouper runs. `--controllers=podgrouper` enables it, too."
    )
    node_pool_label_key: str | None = Field(
        default=None,
        description="Label of pods and their owners whose value is the name of a node pool.",
    )
    queue_label_key: str | None = Field(
        default=None,
        description="Label of pods and their owners whose value is the name of a queue.",
    )
    scheduler_name: str | None = Field(
        default=None, description="Scheduler whose pods are grouped. Pods of other schedulers are ignored."
    )
    max_concurrent_reconciles: int | None = Field(
        default=None, description="Maximum number of pods that are reconciled at the same time."
    )
    search_legacy_pod_groups: bool | None = Field(
        default=None,
        description="Whether a pod group that an older release created under another name is used again.",
    )
    knative_gang_schedule: bool | None = Field(
        default=None,
        description="Whether the pods of a Knative revision are scheduled as one gang.",
    )
    default_priorities_config_map: ObjectReference | None = Field(
        default=None,
        description="ConfigMap with the default priority class and preemptibility of each kind of workload.",
    )
    pod_label_selector: dict[str, str] | None = Field(
        default=None, description="Labels that a pod must have to be grouped."
    )
    namespace_label_selector: dict[str, str] | None = Field(
        default=None,
        description="Labels that the namespace of a pod must have for the pod to be grouped.",
    )
    rules: str | None = Field(
        default=None,
        description="KAI-Scheduler release whose rules apply: `v0.13`, `v0.17`, or `auto` for the release of the "
        "installed PodGroup.",
    )


class RuntimePatches(Struct):
    """The fields that TrainJobs may set in `runtimePatches`."""

    security_context: str | None = Field(
        default=None,
        description="Whether TrainJobs may set the `securityContext` of pods and containers, which TrainJobs of "
        "Trainer v2.1 cannot set: `allow` (the default) or `deny`.",
    )


class Configuration(Struct):
    """The manager's configuration file."""

    gvk: ClassVar[GVK] = GVK(GROUP, VERSION, "Configuration")

    api_version: str = gvk.api_version
    kind: str = gvk.kind
    webhook: ControllerWebhook = Field(default_factory=ControllerWebhook)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    metrics: ControllerMetrics = Field(default_factory=ControllerMetrics)
    health: ControllerHealth = Field(default_factory=ControllerHealth)
    controller: ControllerConfigurationSpec = Field(default_factory=ControllerConfigurationSpec)
    cert_management: CertManagement = Field(default_factory=CertManagement)
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    pod_grouper: PodGrouper = Field(default_factory=PodGrouper)
    compatibility_version: str | None = Field(
        default=None,
        description="Release of Trainer whose behaviour applies where the releases treat the same object differently: "
        "`2.1`, `2.3`, or `2.4`, which is a preview.",
    )
    not_started_after: str | None = Field(
        default=None,
        description="Time after which a Warning event reports why a created or resumed TrainJob has not started. With "
        "`0s`, there are no such events.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        description="Time in seconds after which finished TrainJobs are deleted, if neither they nor their runtimes "
        "set `ttlSecondsAfterFinished`. By default, they are kept. Requires the feature gate `TTLAfterFinished`.",
    )
    runtime_patches: RuntimePatches | None = Field(
        default=None, description="Fields that TrainJobs may set in `runtimePatches`."
    )
    status_server: StatusServer = Field(default_factory=StatusServer)
    feature_gates: dict[str, bool] | None = Field(
        default=None,
        description="Feature gates, by name. The flag `--feature-gates` takes precedence.",
    )
    tls: TLSOptions = Field(default_factory=TLSOptions)

    @property
    def second_generation(self) -> bool:
        """True if the manager behaves like Trainer v2.3 where v2.1 and v2.3 treat the same object differently."""
        return self.compatibility_version in (V2_3, V2_4)

    @property
    def previews_v2_4(self) -> bool:
        """True if the manager behaves like Trainer's main branch where it differs from Trainer v2.3."""
        return self.compatibility_version == V2_4

    @property
    def denies_security_context(self) -> bool:
        """True if runtime patches must not set a ``securityContext``."""
        return self.runtime_patches is not None and self.runtime_patches.security_context == DENY
