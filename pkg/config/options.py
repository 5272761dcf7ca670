# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Converts a loaded Configuration to the options of the manager, its client and its webhooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from controller_runtime import manager, metrics, rest
from controller_runtime.machinery.goduration import seconds
from controller_runtime.webhook import default_cert_dir

from pkg import features
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.scheme import default_scheme
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import tlsconfig

from .config import ConfigurationError

_CONCURRENCY: Final = {str(TrainJob.gvk.group_kind): 5}
"""Number of concurrent reconciles by kind, if the Configuration does not set it."""


def manager_options(cfg: Configuration) -> manager.Options:
    """Return the manager's options. ``cfg`` must be valid and have all defaults, as after :func:`pkg.config.load`."""
    health, election = cfg.health, cfg.leader_election
    tls = tlsconfig.resolve(cfg.tls).server_options()
    return manager.Options(
        scheme=default_scheme(),
        # Objects of kinds without a model are owners of pods. The pod grouper decides which of these kinds to watch.
        client_live_unstructured=True,
        controller=manager.ControllerDefaults(
            group_kind_concurrency={**_CONCURRENCY, **(cfg.controller.group_kind_concurrency or {})}
        ),
        leader_election=bool(election.leader_elect),
        leader_election_id=election.resource_name or "",
        leader_election_namespace=election.resource_namespace or "",
        lease_duration=seconds(election.lease_duration),
        renew_deadline=seconds(election.renew_deadline),
        retry_period=seconds(election.retry_period),
        metrics_bind_address=cfg.metrics.bind_address or "",
        metrics_secure=bool(cfg.metrics.secure_serving),
        # Off by default, unlike in other controller-runtime projects: upstream serves metrics to every client, and
        # its role does not permit the manager to review tokens.
        metrics_filter=metrics.with_authentication_and_authorization
        if cfg.metrics.require_authorization
        else None,
        metrics_tls_options=tls,
        health_probe_bind_address=health.health_probe_bind_address or "",
        readiness_endpoint_name=health.readiness_endpoint_name or "",
        liveness_endpoint_name=health.liveness_endpoint_name or "",
        webhook_host=cfg.webhook.host or "",
        webhook_port=cfg.webhook.port or 0,
        webhook_cert_dir=cert_dir(cfg),
        webhook_tls_options=tls,
    )


def rest_config(cfg: Configuration, connection: rest.Config) -> rest.Config:
    """Return ``connection`` with the request limits of the Configuration. As in client-go, 0 means 5 and 10."""
    client = cfg.client_connection
    return dataclasses.replace(connection, qps=client.qps or 5.0, burst=client.burst or 10)


def with_feature_gates(cfg: Configuration, flags: Mapping[str, bool]) -> Configuration:
    """Return ``cfg`` with the feature gates of the command line, which take precedence.

    Raises:
        ConfigurationError: a gate is not known.
    """
    gates = {**(cfg.feature_gates or {}), **flags}
    try:
        features.resolve(gates)
    except features.UnknownFeatureGateError as error:
        raise ConfigurationError(f"featureGates: {error}") from error
    return cfg.model_copy(update={"feature_gates": gates})


def cert_dir(cfg: Configuration) -> str:
    """Return the folder of the webhooks' certificate."""
    return cfg.webhook.cert_dir or str(default_cert_dir())
