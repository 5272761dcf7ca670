# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Configuration: the operator's settings of the manager. See ``defaults`` for the defaults of unset fields."""

from __future__ import annotations

from typing import ClassVar, Final

from controller_runtime.machinery import GVK, Struct
from pydantic import Field

GROUP: Final = "config.trainer.kubeflow.org"
VERSION: Final = "v1alpha1"

V2_1: Final = "2.1"
V2_3: Final = "2.3"
COMPATIBILITY_VERSIONS: Final = (V2_1, V2_3)
"""The releases of Kubeflow Trainer whose behaviour ``compatibility_version`` selects."""

ALLOW: Final = "allow"
DENY: Final = "deny"
CHOICES: Final = (ALLOW, DENY)
"""The values of settings that allow or deny a field of TrainJobs."""


class ControllerWebhook(Struct):
    """Where the webhook server listens (``host`` empty: everywhere), and the folder of its certificate."""

    port: int | None = Field(default=None, description="the port of the webhook server")
    host: str | None = Field(default=None, description="the address it listens on; empty: all")
    cert_dir: str | None = Field(
        default=None,
        description="the folder of `tls.crt` and `tls.key`; "
        "unset: `k8s-webhook-server/serving-certs` in the temporary folder",
    )


class ControllerMetrics(Struct):
    """Where metrics are served; ``"0"`` turns them off.

    With ``require_authorization``, they are served only to clients whose token the API server accepts and that may get
    the path.
    """

    bind_address: str | None = Field(
        default=None, description="the address at which metrics are served; `0`: none"
    )
    secure_serving: bool | None = Field(
        default=None,
        description="serve them by HTTPS, with a certificate that the manager makes when it starts",
    )
    require_authorization: bool | None = Field(
        default=None,
        description="serve them only to clients whose token the API server accepts and that may `get` the path; "
        "unset: to every client",
    )


class ControllerHealth(Struct):
    """Where the probes are served; ``"0"`` turns them off."""

    health_probe_bind_address: str | None = Field(
        default=None,
        description="the address at which the probes are served; `0`: none",
    )
    readiness_endpoint_name: str | None = Field(default=None, description="the path of the readiness probe")
    liveness_endpoint_name: str | None = Field(default=None, description="the path of the liveness probe")


class LeaderElection(Struct):
    """Whether a leader of several managers is elected, and by which Lease. Durations are written as in Go: ``15s``."""

    leader_elect: bool | None = Field(
        default=None, description="elect a leader: of several replicas, one reconciles at a time"
    )
    lease_duration: str | None = Field(
        default=None,
        description="how long a lease is valid without renewal",
    )
    renew_deadline: str | None = Field(
        default=None,
        description="how long a leader that cannot renew the lease tries before it stops; less than the lease duration",
    )
    retry_period: str | None = Field(
        default=None,
        description="how often a replica tries to acquire or renew the lease; less than the renew deadline",
    )
    resource_lock: str | None = Field(default=None, description="only `leases`")
    resource_name: str | None = Field(default=None, description="the Lease's name")
    resource_namespace: str | None = Field(
        default=None,
        description="the Lease's namespace; empty: the manager's own",
    )


class ControllerConfigurationSpec(Struct):
    """How many reconciles of a kind run at once, by ``Kind.group``."""

    group_kind_concurrency: dict[str, int] | None = Field(
        default=None,
        description="concurrent reconciles, by `Kind.group`; the default is 5 for TrainJobs and 1 for other kinds",
    )


class CertManagement(Struct):
    """Whether the manager makes the webhooks' certificates, for which Service, and in which Secret it keeps them."""

    enable: bool | None = Field(default=None, description="make, keep and renew the webhooks' certificates")
    webhook_service_name: str | None = Field(
        default=None,
        description="the Service that the certificate is for",
    )
    webhook_secret_name: str | None = Field(
        default=None,
        description="the Secret that keeps CA and certificate",
    )


class ClientConnection(Struct):
    """Client-side throttling; a negative ``qps`` turns it off."""

    qps: float | None = Field(
        default=None,
        description="sustained requests a second to the API server; negative: no limit",
    )
    burst: int | None = Field(default=None, description="requests that may exceed `qps` at once")


class StatusServer(Struct):
    """The status server: its port, and the throttling of its client. It is served with the gate `TrainJobStatus`."""

    port: int | None = Field(
        default=None,
        description="the port of the status server, which listens on the address of the webhook server",
    )
    qps: float | None = Field(
        default=None,
        description="sustained status updates a second that are sent to the API server; `0`: the default",
    )
    burst: int | None = Field(
        default=None, description="updates that may exceed `qps` at once; `0`: the default"
    )


class TLSOptions(Struct):
    """TLS of the webhook server, the metrics server and the status server."""

    min_version: str | None = Field(
        default=None,
        description="the oldest TLS version that is accepted: `1.0`, `1.1`, `1.2` or `1.3`; unset: `1.2`",
    )
    cipher_suites: list[str] | None = Field(
        default=None,
        description="the cipher suites of TLS 1.2 and older, by their IANA names; those of TLS 1.3 are fixed",
    )
    next_protos: list[str] | None = Field(
        default=None,
        description="the protocols offered by ALPN; only `http/1.1` is served",
    )


class ObjectReference(Struct):
    """A namespaced object's name."""

    name: str | None = Field(default=None, description="its name")
    namespace: str | None = Field(default=None, description="its namespace")


class PodGrouper(Struct):
    """The pod grouper's options."""

    enable: bool | None = Field(default=None, description="group pods; so does `--controllers=podgrouper`")
    node_pool_label_key: str | None = Field(
        default=None,
        description="the label that names a node pool, on pods and owners",
    )
    queue_label_key: str | None = Field(
        default=None,
        description="the label that names a queue, on pods and owners",
    )
    scheduler_name: str | None = Field(default=None, description="pods of other schedulers are left alone")
    max_concurrent_reconciles: int | None = Field(
        default=None, description="pods reconciled at the same time"
    )
    search_legacy_pod_groups: bool | None = Field(
        default=None,
        description="reuse a group that an older release made under another name",
    )
    knative_gang_schedule: bool | None = Field(
        default=None,
        description="group the pods of a Knative revision together",
    )
    default_priorities_config_map: ObjectReference | None = Field(
        default=None,
        description="the ConfigMap with a kind's default priority class and preemptibility",
    )
    pod_label_selector: dict[str, str] | None = Field(default=None, description="only pods with these labels")
    namespace_label_selector: dict[str, str] | None = Field(
        default=None,
        description="only pods in namespaces with these labels",
    )
    rules: str | None = Field(
        default=None,
        description="the KAI-Scheduler release whose rules apply: v0.13, v0.17, or auto for the installed PodGroup's",
    )


class RuntimePatches(Struct):
    """Which fields TrainJobs may set in `runtimePatches`."""

    security_context: str | None = Field(
        default=None,
        description="the `securityContext` of pods and containers, which TrainJobs of Trainer v2.1 cannot set: "
        "`allow` or `deny`; unset: `allow`",
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
        description="the release of Trainer whose behaviour applies where the same object has different results: "
        "`2.1` or `2.3`",
    )
    not_started_after: str | None = Field(
        default=None,
        description="how long after its creation or resume a TrainJob may start before a Warning event reports why it "
        "has not; `0s`: no event",
    )
    runtime_patches: RuntimePatches | None = Field(
        default=None, description="which fields TrainJobs may set in `runtimePatches`"
    )
    status_server: StatusServer = Field(default_factory=StatusServer)
    feature_gates: dict[str, bool] | None = Field(
        default=None,
        description="feature gates by name; `--feature-gates` takes precedence",
    )
    tls: TLSOptions = Field(default_factory=TLSOptions)

    @property
    def second_generation(self) -> bool:
        """True if the behaviour of Trainer v2.3 applies where it differs from v2.1's for the same object."""
        return self.compatibility_version == V2_3

    @property
    def denies_security_context(self) -> bool:
        """True if runtime patches must not set a ``securityContext``."""
        return self.runtime_patches is not None and self.runtime_patches.security_context == DENY
