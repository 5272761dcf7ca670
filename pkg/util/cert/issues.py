# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The event, the metric and the log line of each new certificate in the Secret."""

from __future__ import annotations

from typing import Final

from controller_runtime import log, metrics, recorder
from controller_runtime.apis.core.v1 import Secret
from prometheus_client.metrics import Counter

from .pki import Verdict

EVENT_SOURCE: Final = "trainer-webhook-certificates"
CREATED: Final = "WebhookCertificatesCreated"
RENEWED: Final = "WebhookCertificatesRenewed"
REPAIRED: Final = "WebhookCertificatesRepaired"

ISSUED: Final = Counter(
    "kubeflow_trainer_webhook_certificates_issued_total",
    "Certificates that this replica put into the Secret, by reason: created, renewed, repaired",
    ["reason"],
    registry=metrics.REGISTRY,
)

_log = log.logger_from("cert-rotation")


def report(events: recorder.EventRecorder, secret: Secret, verdict: Verdict, *, first: bool) -> None:
    """Report why this replica put a new certificate into the Secret. ``first``: the Secret had none."""
    what = "authority and serving certificate" if verdict.authority else "serving certificate"
    if first:
        reason, label, kind, why = CREATED, "created", recorder.NORMAL, "there were none"
    elif verdict.due:
        reason, label, kind, why = RENEWED, "renewed", recorder.NORMAL, str(verdict)
    else:
        reason, label, kind, why = REPAIRED, "repaired", recorder.WARNING, str(verdict)
    ISSUED.labels(label).inc()
    events.event(secret, kind, reason, f"New {what} for the webhooks: {why}")
    show = _log.warning if kind == recorder.WARNING else _log.info
    show("Webhook certificates issued", secret=str(secret.key), issued=what, reason=why)
