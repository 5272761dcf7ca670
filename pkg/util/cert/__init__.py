# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The certificates of the manager's webhooks, made by ``controller_runtime.certrotation``.

The Secret has the same content as Trainer's, so that a Go manager can take it over again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller_runtime import certrotation
from controller_runtime.apis.admissionregistration.v1 import MutatingWebhookConfiguration
from controller_runtime.certrotation import FORMER as FORMER
from controller_runtime.certrotation import Certificates as Certificates

# +kubebuilder:rbac:groups="",resources=secrets,verbs=create;get;list;watch;update
# +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=validator.trainer.kubeflow.org,verbs=get;list;watch;update
# +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=defaulter.trainer.kubeflow.org,verbs=get;list;watch;update

EVENT_SOURCE: Final = "trainer-webhook-certificates"
DEFAULT_NAMESPACE: Final = "kubeflow-system"
METRICS: Final = certrotation.Metrics("kubeflow_trainer_webhook")
_SUBJECTS: Final = certrotation.Subjects(
    authority="kubeflow-trainer-ca", serving="kubeflow-trainer-webhooks", organization="kubeflow-trainer"
)
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def operator_namespace(folder: Path = _SERVICE_ACCOUNT) -> str:
    """Return the pod's namespace, or ``kubeflow-system`` if the process does not run in a pod."""
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def options(
    secret: str,
    service: str,
    *,
    namespace: str = "",
    validating: str = "validator.trainer.kubeflow.org",
    mutating: str = "defaulter.trainer.kubeflow.org",
    propagation_delay: float = 10.0,
) -> certrotation.Options:
    """Return the options for the manager's webhooks; by default in the namespace of the pod.

    Trainer v2.1 has no MutatingWebhookConfiguration, and its role does not permit reading one.
    """
    return certrotation.Options(
        namespace=namespace or operator_namespace(),
        secret=secret,
        service=service,
        validating=(validating,),
        mutating=(mutating,),
        may_be_denied=(MutatingWebhookConfiguration,),
        subjects=_SUBJECTS,
        since="trainer.kubeflow.org/webhook-authority-since",
        propagation_delay=propagation_delay,
    )
