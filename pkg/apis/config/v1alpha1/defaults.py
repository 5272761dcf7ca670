# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The defaults of a Configuration's unset fields."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import Struct

from .configuration_types import V2_1, Configuration

_DEFAULTS: Final[dict[str, dict[str, str | int | float | bool]]] = {
    "webhook": {"port": 9443, "host": ""},
    "metrics": {"bind_address": ":8443", "secure_serving": True},
    "health": {
        "health_probe_bind_address": ":8081",
        "readiness_endpoint_name": "readyz",
        "liveness_endpoint_name": "healthz",
    },
    "leader_election": {
        "leader_elect": False,
        "lease_duration": "15s",
        "renew_deadline": "10s",
        "retry_period": "2s",
        "resource_lock": "leases",
        "resource_name": "trainer.kubeflow.org",
        "resource_namespace": "",
    },
    "cert_management": {
        "enable": True,
        "webhook_service_name": "kubeflow-trainer-controller-manager",
        "webhook_secret_name": "kubeflow-trainer-webhook-cert",
    },
    "client_connection": {"qps": 50.0, "burst": 100},
    "status_server": {"port": 10443, "qps": 5.0, "burst": 10},
    "pod_grouper": {
        "enable": False,
        "node_pool_label_key": "kai.scheduler/node-pool",
        "queue_label_key": "kai.scheduler/queue",
        "scheduler_name": "kai-scheduler",
        "max_concurrent_reconciles": 10,
        "search_legacy_pod_groups": True,
        "knative_gang_schedule": True,
        "rules": "auto",
    },
}
_EMPTY_MEANS_UNSET: Final = frozenset(
    {
        "bind_address",
        "health_probe_bind_address",
        "readiness_endpoint_name",
        "liveness_endpoint_name",
        "resource_name",
        "resource_lock",
        "webhook_service_name",
        "webhook_secret_name",
    }
)
"""String fields in which an empty value means the default, as in the Go manager; ``"0"`` turns an address off."""


def defaulted(compatibility_version: str = V2_1) -> Configuration:
    """Return a new Configuration in which all fields have their defaults, for a release of Trainer."""
    cfg = Configuration(compatibility_version=compatibility_version)
    set_defaults(cfg)
    return cfg


def set_defaults(cfg: Configuration) -> None:
    """Fill in every field of ``cfg`` that is unset and has a default."""
    for part, defaults in _DEFAULTS.items():
        struct: Struct = getattr(cfg, part)
        for name, value in defaults.items():
            current = getattr(struct, name)
            if current is None or (current == "" and name in _EMPTY_MEANS_UNSET):
                setattr(struct, name, value)
    if cfg.metrics.require_authorization is None and cfg.metrics.auth is not None:
        cfg.metrics.require_authorization = cfg.metrics.auth.enabled
    if cfg.controller.group_kind_concurrency is None:
        cfg.controller.group_kind_concurrency = {}
    if not cfg.compatibility_version:
        cfg.compatibility_version = V2_1
    if not cfg.not_started_after:
        cfg.not_started_after = "60s"
