# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for a Configuration that its types cannot express."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller_runtime import serving
from controller_runtime.machinery import field
from controller_runtime.machinery.goduration import seconds
from controller_runtime.machinery.quantity import MAX_INT32

from pkg.apis.config.v1alpha1 import (
    ALLOW,
    CHOICES,
    COMPATIBILITY_VERSIONS,
    Configuration,
    RuntimePatches,
)

_RULES: Final = ("auto", "v0.13", "v0.17")
_MAX_PORT: Final = 65535
_JITTER: Final = 1.2
"""The delay before a retry is at most the retry period times this factor. The renew deadline must allow one retry."""


def validate(cfg: Configuration) -> field.ErrorList:
    """Return an error for each rule that a defaulted Configuration breaks."""
    return field.ErrorList(
        [
            *_choices(cfg),
            *_not_started_after(cfg),
            *_ttl(cfg),
            *_port(field.Path("webhook", "port"), cfg.webhook.port),
            *_metrics_and_controllers(cfg),
            *_status_server(cfg),
            *_pod_grouper(cfg),
            *_endpoints(cfg),
            *_leader_election(cfg),
        ]
    )


def _choices(cfg: Configuration) -> Iterator[field.FieldError]:
    patches = cfg.runtime_patches or RuntimePatches()
    for name, value, supported in (
        ("compatibilityVersion", cfg.compatibility_version, COMPATIBILITY_VERSIONS),
        ("runtimePatches.securityContext", patches.security_context or ALLOW, CHOICES),
    ):
        if value not in supported:
            yield field.not_supported(field.Path(name), value, supported)


def _not_started_after(cfg: Configuration) -> Iterator[field.FieldError]:
    path, after = field.Path("notStartedAfter"), cfg.not_started_after or ""
    try:
        if seconds(after) < 0:
            yield field.invalid(path, after, "must be greater than or equal to 0")
    except ValueError:
        yield field.invalid(path, after, "must be a duration such as 60s or 5m, or 0s")


def _ttl(cfg: Configuration) -> Iterator[field.FieldError]:
    seconds = cfg.ttl_seconds_after_finished
    if seconds is not None and not 0 <= seconds <= MAX_INT32:
        yield field.invalid(
            field.Path("ttlSecondsAfterFinished"), seconds, f"must be between 0 and {MAX_INT32}"
        )


def _port(path: field.Path, port: int | None) -> Iterator[field.FieldError]:
    if port is not None and not 1 <= port <= _MAX_PORT:
        yield field.invalid(path, port, "must be between 1 and 65535")


def _metrics_and_controllers(cfg: Configuration) -> Iterator[field.FieldError]:
    metrics = cfg.metrics
    required = metrics.auth.enabled if metrics.auth is not None else None
    if required is not None and required != metrics.require_authorization:
        detail = "must be equal to metrics.requireAuthorization, which has the same meaning"
        yield field.invalid(field.Path("metrics", "auth", "enabled"), required, detail)
    if metrics.require_authorization and not metrics.secure_serving:
        name = ("requireAuthorization",) if required is None else ("auth", "enabled")
        detail = "needs secureServing: a token must not travel in plain text"
        yield field.invalid(field.Path("metrics", *name), True, detail)
    burst = cfg.client_connection.burst
    if burst is not None and burst < 0:
        path = field.Path("clientConnection", "burst")
        yield field.invalid(path, burst, "must be greater than or equal to 0")
    concurrency = field.Path("controller", "groupKindConcurrency")
    for group_kind, workers in (cfg.controller.group_kind_concurrency or {}).items():
        if workers < 1:
            yield field.invalid(concurrency.key(group_kind), workers, "must be greater than 0")


def _status_server(cfg: Configuration) -> Iterator[field.FieldError]:
    server, path = cfg.status_server, field.Path("statusServer")
    yield from _port(path.child("port"), server.port)
    limits: tuple[tuple[str, float | None], ...] = (("qps", server.qps), ("burst", server.burst))
    for name, value in limits:
        if value is not None and value < 0:
            yield field.invalid(path.child(name), value, "must be greater than or equal to 0")


def _pod_grouper(cfg: Configuration) -> Iterator[field.FieldError]:
    grouper, path = cfg.pod_grouper, field.Path("podGrouper")
    if not grouper.scheduler_name:
        yield field.required(path.child("schedulerName"), "pods of this scheduler are grouped")
    if grouper.rules not in _RULES:
        yield field.not_supported(path.child("rules"), grouper.rules, _RULES)
    workers = grouper.max_concurrent_reconciles
    if workers is not None and workers < 1:
        yield field.invalid(path.child("maxConcurrentReconciles"), workers, "must be greater than 0")


def _endpoints(cfg: Configuration) -> Iterator[field.FieldError]:
    health, path = cfg.health, field.Path("health")
    for where, address in (
        (field.Path("metrics", "bindAddress"), cfg.metrics.bind_address),
        (path.child("healthProbeBindAddress"), health.health_probe_bind_address),
    ):
        if address and address != "0":
            try:
                serving.Address.parse(address)
            except serving.ServerError:
                yield field.invalid(where, address, "must be host:port, :port, or 0 for none")
    ready, live = health.readiness_endpoint_name or "", health.liveness_endpoint_name or ""
    if ready.strip("/") == live.strip("/"):
        detail = "must differ from livenessEndpointName"
        yield field.invalid(path.child("readinessEndpointName"), ready, detail)


def _leader_election(cfg: Configuration) -> Iterator[field.FieldError]:
    election, path = cfg.leader_election, field.Path("leaderElection")
    lasting: dict[str, float] = {}
    texts = {
        "leaseDuration": election.lease_duration,
        "renewDeadline": election.renew_deadline,
        "retryPeriod": election.retry_period,
    }
    for name, text in texts.items():
        try:
            lasting[name] = seconds(text)
        except ValueError:
            yield field.invalid(path.child(name), text or "", "must be a duration such as 15s or 1m30s")
    if len(lasting) < len(texts) or not election.leader_elect:
        return
    if lasting["retryPeriod"] <= 0:
        yield field.invalid(path.child("retryPeriod"), election.retry_period, "must be greater than 0")
    elif lasting["renewDeadline"] <= lasting["retryPeriod"] * _JITTER:
        detail = f"must be greater than retryPeriod times {_JITTER}"
        yield field.invalid(path.child("renewDeadline"), election.renew_deadline, detail)
    if lasting["leaseDuration"] <= lasting["renewDeadline"]:
        detail = "must be greater than renewDeadline"
        yield field.invalid(path.child("leaseDuration"), election.lease_duration, detail)
