# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Let a manager make and renew the certificates of its webhooks."""

from __future__ import annotations

import functools
from collections.abc import Callable

from controller_runtime import manager

from .certificates import Certificates, Metrics
from .cluster import Options, connect

EVENT_SOURCE = "webhook-certificates"


def add_to_manager(
    mgr: manager.Manager,
    options: Options,
    register: Callable[[], None],
    *,
    event_source: str = EVENT_SOURCE,
    metrics: Metrics | None = None,
    check: str = "webhooks",
) -> Certificates:
    """Serve the webhooks that ``register`` adds to ``mgr.webhook_server``, with certificates that this program makes.

    ``register`` is called once, as soon as the first certificate is served. Until the webhooks are served, the
    readiness check named ``check`` fails. Every replica answers webhooks, so controllers and leader election do not
    wait.
    """

    def begin() -> None:  # an earlier access to the server would start it
        mgr.webhook_server.use(certificates)
        register()

    def ready() -> None:
        certificates.check()
        mgr.webhook_server.started_checker()()

    certificates = Certificates(
        options,
        functools.partial(connect, mgr.config, options),
        mgr.event_recorder_for(event_source),
        when_served=begin,
        metrics=metrics,
    )
    mgr.add(certificates)
    mgr.add_readyz_check(check, ready)
    return certificates
