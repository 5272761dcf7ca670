# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import ssl

import pytest
from controller_runtime import metrics, rest

from pkg import config


def test_the_defaults_become_a_managers_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    options = config.manager_options(config.load())
    assert options.controller.group_kind_concurrency == {"TrainJob.trainer.kubeflow.org": 5}
    assert (options.webhook_host, options.webhook_port) == ("", 9443)
    assert options.webhook_cert_dir == "/nowhere/k8s-webhook-server/serving-certs"
    monkeypatch.delenv("TMPDIR")
    assert config.cert_dir(config.load()) == "/tmp/k8s-webhook-server/serving-certs"
    assert (options.metrics_bind_address, options.metrics_secure) == (":8443", True)
    assert options.metrics_filter is None
    assert options.health_probe_bind_address == ":8081"
    assert not options.leader_election
    assert (
        options.leader_election_id,
        options.lease_duration,
        options.renew_deadline,
        options.retry_period,
    ) == (
        "trainer.kubeflow.org",
        15,
        10,
        2,
    )


def test_what_is_configured_counts() -> None:
    cfg = config.load()
    cfg.controller.group_kind_concurrency = {"TrainJob.trainer.kubeflow.org": 2}
    cfg.webhook.cert_dir = "/certs"
    cfg.metrics.require_authorization = True
    cfg.health.health_probe_bind_address = "0"
    cfg.health.readiness_endpoint_name, cfg.health.liveness_endpoint_name = "ready", "live"
    options = config.manager_options(cfg)
    assert options.controller.group_kind_concurrency == {"TrainJob.trainer.kubeflow.org": 2}
    assert options.webhook_cert_dir == "/certs"
    assert options.metrics_filter is metrics.with_authentication_and_authorization
    assert options.health_probe_bind_address == "0"
    assert (options.readiness_endpoint_name, options.liveness_endpoint_name) == ("ready", "live")


def test_tls_options_apply_to_webhooks_and_metrics() -> None:
    cfg = config.load()
    cfg.tls.min_version = "1.3"

    options = config.manager_options(cfg)

    assert options.webhook_tls_options is not None
    assert options.webhook_tls_options.minimum_version is ssl.TLSVersion.TLSv1_3
    assert options.metrics_tls_options == options.webhook_tls_options


def test_the_connection_is_throttled_as_configured() -> None:
    cfg = config.load()
    connection = rest.Config(host="https://h")
    assert (config.rest_config(cfg, connection).qps, config.rest_config(cfg, connection).burst) == (50, 100)
    cfg.client_connection.qps = -1
    assert config.rest_config(cfg, connection).qps == -1
    cfg.client_connection.qps, cfg.client_connection.burst = 0, 0
    assert (config.rest_config(cfg, connection).qps, config.rest_config(cfg, connection).burst) == (5, 10)
    assert connection.qps == 0
