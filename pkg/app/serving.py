# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The servers with certificates for the manager's Service: the webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import controller_runtime as ctrl
from controller_runtime import log

from pkg import webhooks as admission
from pkg.apis.config.v1alpha1 import Configuration
from pkg.runtime import Runtime
from pkg.util import tlsconfig

from .certificates import ManagedWebhooks, certificates_for

if TYPE_CHECKING:
    from pkg.util.cert import Certificates

_log = log.logger_from("setup")


def webhooks(mgr: ctrl.Manager, cfg: Configuration, runtimes: Mapping[str, Runtime]) -> Certificates | None:
    """Serve the webhooks, with certificates of the manager's own or of a directory; readiness waits for them.

    Returns the manager's own certificates, or None if they are in a directory.
    """
    if not cfg.cert_management.enable:
        admission.setup(mgr, runtimes, cfg)
        mgr.add_readyz_check("readyz", mgr.webhook_server.started_checker())
        return None
    certificates = certificates_for(mgr, cfg.cert_management)

    def register() -> None:
        mgr.webhook_server.use(certificates)
        admission.setup(mgr, runtimes, cfg)

    def started() -> None:  # an earlier access to the server would start it
        mgr.webhook_server.started_checker()()

    managed = ManagedWebhooks(certificates, register, started)
    mgr.add(managed)
    mgr.add_readyz_check("readyz", managed.check)
    return certificates


def remark(cfg: Configuration, *, enable_http2: bool) -> None:
    """Log settings of the servers that are insecure or have no effect."""
    for text in tlsconfig.resolve(cfg.tls).remarks:
        _log.warning("TLS setting has limits", remark=text)
    if enable_http2:
        _log.warning("HTTP/2 is not served; --enable-http2 has no effect")
