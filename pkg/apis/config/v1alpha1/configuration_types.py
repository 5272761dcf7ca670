# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Configuration: what an operator sets about the manager. See ``defaults`` for what unset fields become."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import Field

from pkg.apis.machinery.base import JSON, Struct
from pkg.apis.machinery.gvk import GVK

GROUP: Final = "config.trainer.kubeflow.org"
VERSION: Final = "v1alpha1"


class ControllerWebhook(Struct):
    """Where the webhook server listens (``host`` empty: everywhere), and the folder of its certificate."""

    port: int | None = None
    host: str | None = None
    cert_dir: str | None = None


class ControllerMetrics(Struct):
    """Where metrics are served; ``"0"`` turns them off.

    With ``require_authorization``, only to those whose token the API server knows and lets get the path.
    """

    bind_address: str | None = None
    secure_serving: bool | None = None
    require_authorization: bool | None = None


class ControllerHealth(Struct):
    """Where the probes are served; ``"0"`` or an empty address turns them off."""

    health_probe_bind_address: str | None = None
    readiness_endpoint_name: str | None = None
    liveness_endpoint_name: str | None = None


class LeaderElection(Struct):
    """Whether and by which Lease one of several managers is chosen; durations as Go writes them, ``15s``."""

    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class ControllerConfigurationSpec(Struct):
    """How many reconciles of a kind run at once, by ``Kind.group``."""

    group_kind_concurrency: dict[str, int] | None = None


class CertManagement(Struct):
    """Whether the manager makes the webhooks' certificates, for which Service, kept in which Secret."""

    enable: bool | None = None
    webhook_service_name: str | None = None
    webhook_secret_name: str | None = None


class ClientConnection(Struct):
    """Client-side throttling; a negative ``qps`` turns it off."""

    qps: float | None = None
    burst: int | None = None


class ObjectReference(Struct):
    """A namespaced object's name."""

    name: str | None = None
    namespace: str | None = None


class PodGrouper(Struct):
    """The pod grouper's options."""

    enable: bool | None = None
    node_pool_label_key: str | None = None
    queue_label_key: str | None = None
    scheduler_name: str | None = None
    max_concurrent_reconciles: int | None = None
    search_legacy_pod_groups: bool | None = None
    knative_gang_schedule: bool | None = None
    default_priorities_config_map: ObjectReference | None = None
    pod_label_selector: dict[str, str] | None = None
    namespace_label_selector: dict[str, str] | None = None


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
    # Accepted because newer releases have them; without effect.
    status_server: dict[str, JSON] | None = None
    feature_gates: dict[str, bool] | None = None
    tls: dict[str, JSON] | None = None
