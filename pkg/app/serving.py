# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The servers behind the manager's Service: the webhooks and, if the feature gate is enabled, the status server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import controller_runtime as ctrl
from controller_runtime import log
from controller_runtime.webhook import CertWatcher

from pkg import config, features
from pkg import webhooks as admission
from pkg.apis.config.v1alpha1 import Configuration
from pkg.runtime import Runtime
from pkg.util import tlsconfig

if TYPE_CHECKING:
    from pkg.statusserver import StatusServer
    from pkg.util.cert import Certificates

_log = log.logger_from("setup")


def webhooks(mgr: ctrl.Manager, cfg: Configuration, runtimes: Mapping[str, Runtime]) -> Certificates | None:
    """Serve the webhooks. Return the certificates that the manager makes, or None if it reads them from a directory.

    The manager is ready only when the webhooks are served. Controllers do not wait: only admission needs a certificate.
    """
    if not cfg.cert_management.enable:
        admission.setup(mgr, runtimes, cfg)
        mgr.add_readyz_check("readyz", mgr.webhook_server.started_checker())
        return None
    from controller_runtime import certrotation

    from pkg.util import cert  # slow to load, and not needed with certificates from files

    options = cert.options(
        cfg.cert_management.webhook_secret_name or "", cfg.cert_management.webhook_service_name or ""
    )
    return certrotation.add_to_manager(
        mgr,
        options,
        lambda: admission.setup(mgr, runtimes, cfg),
        event_source=cert.EVENT_SOURCE,
        metrics=cert.METRICS,
        check="readyz",
    )


def status(mgr: ctrl.Manager, cfg: Configuration, certificates: Certificates | None) -> StatusServer:
    """Serve status updates with the certificates of the webhooks. The manager is ready only when the server runs.

    In the preview of Trainer v2.4, the server is also part of the liveness probe.
    """
    from pkg import statusserver  # slow to load, and off by default

    if certificates is not None:
        source: Certificates | CertWatcher = certificates
    else:
        folder = Path(config.cert_dir(cfg))
        source = CertWatcher(folder / "tls.crt", folder / "tls.key")
    options = tlsconfig.resolve(cfg.tls).server_options()
    return statusserver.setup_server(
        mgr, cfg.status_server, source, options, probes_of_v2_4=cfg.previews_v2_4
    )


def log_remarks(cfg: Configuration, *, enable_http2: bool) -> None:
    """Log the TLS settings that are insecure, and the settings that have no effect."""
    for text in tlsconfig.resolve(cfg.tls).remarks:
        _log.warning("TLS setting is insecure or has no effect", remark=text)
    gates = features.resolve(cfg.feature_gates or {})
    if cfg.ttl_seconds_after_finished is not None and not gates.enabled(features.TTL_AFTER_FINISHED):
        _log.warning(
            "ttlSecondsAfterFinished of the Configuration has no effect: its feature gate is disabled",
            featureGate=features.TTL_AFTER_FINISHED,
        )
    if (cfg.feature_gates or {}).get(features.MUTABLE_NUM_NODES) and not cfg.second_generation:
        _log.warning(
            "The feature gate has no effect: this compatibilityVersion permits these changes",
            featureGate=features.MUTABLE_NUM_NODES,
            compatibilityVersion=cfg.compatibility_version,
        )
    if enable_http2:
        _log.warning("HTTP/2 is not served; --enable-http2 has no effect")


def log_no_status() -> None:
    """Log that status updates are not served by this replica."""
    _log.warning("Status updates are not served: --webhooks=false leaves the manager without certificates")
