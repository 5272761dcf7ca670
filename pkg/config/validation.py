# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for a Configuration that its types cannot express."""

from __future__ import annotations

from typing import Final

from controller_runtime import serving
from controller_runtime.machinery import field

from pkg.apis.config.v1alpha1 import (
    ALLOW,
    CHOICES,
    COMPATIBILITY_VERSIONS,
    Configuration,
    RuntimePatches,
)

from .duration import seconds

_RULES: Final = ("auto", "v0.13", "v0.17")
_MAX_PORT: Final = 65535
_JITTER: Final = 1.2
"""The delay before a retry is at most the retry period times this factor. The renew deadline must allow one retry."""


def validate(cfg: Configuration) -> field.ErrorList:
    """Return an error for each rule that a defaulted Configuration breaks."""
    errors, patches = field.ErrorList(), cfg.runtime_patches or RuntimePatches()
    for name, value, supported in (
        ("compatibilityVersion", cfg.compatibility_version, COMPATIBILITY_VERSIONS),
        ("runtimePatches.securityContext", patches.security_context or ALLOW, CHOICES),
    ):
        if value not in supported:
            errors.append(field.not_supported(field.Path(name), value, supported))
    errors += _validate_not_started_after(cfg)
    errors += _validate_port(field.Path("webhook", "port"), cfg.webhook.port)
    metrics = cfg.metrics
    if metrics.require_authorization and not metrics.secure_serving:
        detail = "needs secureServing: a token must not travel in plain text"
        errors.append(field.invalid(field.Path("metrics", "requireAuthorization"), True, detail))
    burst = cfg.client_connection.burst
    if burst is not None and burst < 0:
        errors.append(
            field.invalid(
                field.Path("clientConnection", "burst"), burst, "must be greater than or equal to 0"
            )
        )
    concurrency = field.Path("controller", "groupKindConcurrency")
    for group_kind, workers in (cfg.controller.group_kind_concurrency or {}).items():
        if workers < 1:
            errors.append(field.invalid(concurrency.key(group_kind), workers, "must be greater than 0"))
    errors += _validate_status_server(cfg)
    errors += _validate_pod_grouper(cfg)
    errors += _validate_endpoints(cfg)
    errors += _validate_leader_election(cfg)
    return errors


def _validate_not_started_after(cfg: Configuration) -> field.ErrorList:
    errors, path = field.ErrorList(), field.Path("notStartedAfter")
    try:
        if seconds(cfg.not_started_after) < 0:
            errors.append(field.invalid(path, cfg.not_started_after, "must be greater than or equal to 0"))
    except ValueError:
        errors.append(
            field.invalid(path, cfg.not_started_after or "", "must be a duration such as 60s or 5m, or 0s")
        )
    return errors


def _validate_port(path: field.Path, port: int | None) -> field.ErrorList:
    errors = field.ErrorList()
    if port is not None and not 1 <= port <= _MAX_PORT:
        errors.append(field.invalid(path, port, "must be between 1 and 65535"))
    return errors


def _validate_status_server(cfg: Configuration) -> field.ErrorList:
    server, path = cfg.status_server, field.Path("statusServer")
    errors = _validate_port(path.child("port"), server.port)
    limits: tuple[tuple[str, float | None], ...] = (("qps", server.qps), ("burst", server.burst))
    for name, value in limits:
        if value is not None and value < 0:
            errors.append(field.invalid(path.child(name), value, "must be greater than or equal to 0"))
    return errors


def _validate_pod_grouper(cfg: Configuration) -> field.ErrorList:
    errors = field.ErrorList()
    grouper, path = cfg.pod_grouper, field.Path("podGrouper")
    if not grouper.scheduler_name:
        errors.append(field.required(path.child("schedulerName"), "pods of this scheduler are grouped"))
    if grouper.rules not in _RULES:
        errors.append(field.not_supported(path.child("rules"), grouper.rules, _RULES))
    workers = grouper.max_concurrent_reconciles
    if workers is not None and workers < 1:
        where = path.child("maxConcurrentReconciles")
        errors.append(field.invalid(where, workers, "must be greater than 0"))
    return errors


def _validate_endpoints(cfg: Configuration) -> field.ErrorList:
    errors = field.ErrorList()
    health, path = cfg.health, field.Path("health")
    for where, address in (
        (field.Path("metrics", "bindAddress"), cfg.metrics.bind_address),
        (path.child("healthProbeBindAddress"), health.health_probe_bind_address),
    ):
        if address and address != "0":
            try:
                serving.Address.parse(address)
            except serving.ServerError:
                errors.append(field.invalid(where, address, "must be host:port, :port, or 0 for none"))
    ready, live = health.readiness_endpoint_name or "", health.liveness_endpoint_name or ""
    if ready.strip("/") == live.strip("/"):
        detail = "must differ from livenessEndpointName"
        errors.append(field.invalid(path.child("readinessEndpointName"), ready, detail))
    return errors


def _validate_leader_election(cfg: Configuration) -> field.ErrorList:
    errors = field.ErrorList()
    election, path = cfg.leader_election, field.Path("leaderElection")
    lasting: dict[str, float] = {}
    for name, text in (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ):
        try:
            lasting[name] = seconds(text)
        except ValueError:
            errors.append(
                field.invalid(path.child(name), text or "", "must be a duration such as 15s or 1m30s")
            )
    if errors or not election.leader_elect:
        return errors
    if lasting["retryPeriod"] <= 0:
        errors.append(
            field.invalid(path.child("retryPeriod"), election.retry_period, "must be greater than 0")
        )
    elif lasting["renewDeadline"] <= lasting["retryPeriod"] * _JITTER:
        detail = f"must be greater than retryPeriod times {_JITTER}"
        errors.append(field.invalid(path.child("renewDeadline"), election.renew_deadline, detail))
    if lasting["leaseDuration"] <= lasting["renewDeadline"]:
        detail = "must be greater than renewDeadline"
        errors.append(field.invalid(path.child("leaseDuration"), election.lease_duration, detail))
    return errors
