# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of the manager's certificates, which Go managers and dashboards know."""

from datetime import UTC, datetime
from pathlib import Path

from controller_runtime import certrotation
from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from controller_runtime.metrics import REGISTRY
from cryptography import x509

from pkg.util import cert


def test_the_certificates_have_the_names_of_trainers() -> None:
    options = cert.options("certs", "manager", namespace="system")
    made = certrotation.issue(["manager.system.svc"], datetime.now(UTC), options.subjects)
    assert (
        x509.load_pem_x509_certificate(made.ca_crt).subject.rfc4514_string()
        == "CN=kubeflow-trainer-ca,O=kubeflow-trainer"
    )
    serving = x509.load_pem_x509_certificate(made.tls_crt)
    assert serving.subject.rfc4514_string() == "CN=kubeflow-trainer-webhooks,O=kubeflow-trainer"
    assert sorted(made.to_data()) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert made.ca_key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")


def test_the_configurations_are_the_managers_and_the_mutating_one_may_be_denied() -> None:
    options = cert.options("certs", "manager", namespace="system")
    assert list(options.configurations()) == [
        (ValidatingWebhookConfiguration, "validator.trainer.kubeflow.org"),
        (MutatingWebhookConfiguration, "defaulter.trainer.kubeflow.org"),
    ]
    assert options.may_be_denied == (MutatingWebhookConfiguration,)
    assert options.since == "trainer.kubeflow.org/webhook-authority-since"


def test_the_metrics_keep_their_names() -> None:
    names = {each.name for each in REGISTRY.collect()}
    assert {
        "kubeflow_trainer_webhook_certificates_issued",
        "kubeflow_trainer_webhook_certificates_failures",
        "kubeflow_trainer_webhook_certificate_expiry_timestamp_seconds",
    } <= names


def test_the_namespace_is_that_of_the_pod(tmp_path: Path) -> None:
    assert cert.operator_namespace(tmp_path) == "kubeflow-system"
    (tmp_path / "namespace").write_text("trainers\n")
    assert cert.operator_namespace(tmp_path) == "trainers"
