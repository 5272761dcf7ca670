# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The defaults of the manager's Configuration."""

from typing import Any

import pytest

from pkg.apis.config.v1alpha1 import Configuration, set_defaults

DEFAULTS: dict[str, Any] = {
    "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
    "kind": "Configuration",
    "webhook": {"port": 9443, "host": ""},
    "leaderElection": {
        "leaderElect": False,
        "leaseDuration": "15s",
        "renewDeadline": "10s",
        "retryPeriod": "2s",
        "resourceLock": "leases",
        "resourceName": "trainer.kubeflow.org",
        "resourceNamespace": "",
    },
    "metrics": {"bindAddress": ":8443", "secureServing": True},
    "health": {
        "healthProbeBindAddress": ":8081",
        "readinessEndpointName": "readyz",
        "livenessEndpointName": "healthz",
    },
    "controller": {"groupKindConcurrency": {}},
    "certManagement": {
        "enable": True,
        "webhookServiceName": "kubeflow-trainer-controller-manager",
        "webhookSecretName": "kubeflow-trainer-webhook-cert",
    },
    "clientConnection": {"qps": 50.0, "burst": 100},
    "statusServer": {"port": 10443, "qps": 5.0, "burst": 10},
    "tls": {},
    "podGrouper": {
        "enable": False,
        "nodePoolLabelKey": "kai.scheduler/node-pool",
        "queueLabelKey": "kai.scheduler/queue",
        "schedulerName": "kai-scheduler",
        "maxConcurrentReconciles": 10,
        "searchLegacyPodGroups": True,
        "knativeGangSchedule": True,
        "rules": "auto",
    },
    "compatibilityVersion": "2.1",
    "notStartedAfter": "60s",
}


def defaulted(data: dict[str, Any]) -> dict[str, Any]:
    configuration = Configuration.from_dict(data)
    set_defaults(configuration)
    return configuration.to_dict()


def test_an_empty_file_gets_every_default() -> None:
    assert defaulted({}) == DEFAULTS


def test_leader_election_asked_for_alone_gets_a_name_and_durations() -> None:
    got = defaulted({"leaderElection": {"leaderElect": True}})
    assert got["leaderElection"] == {**DEFAULTS["leaderElection"], "leaderElect": True}


@pytest.mark.parametrize(
    "given",
    [
        {"webhook": {"port": 1, "host": "127.0.0.1", "certDir": "/certs"}},
        {"metrics": {"bindAddress": "0", "secureServing": False}},
        {
            "health": {
                "healthProbeBindAddress": "0",
                "readinessEndpointName": "r",
                "livenessEndpointName": "l",
            }
        },
        {"clientConnection": {"qps": -1.0, "burst": 0}},
        {"controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5}}},
    ],
)
def test_what_is_said_stands(given: dict[str, Any]) -> None:
    assert defaulted(given) == {**DEFAULTS, **given}


def test_an_empty_text_counts_as_unset_where_it_means_nothing() -> None:
    assert defaulted({"metrics": {"bindAddress": ""}})["metrics"] == DEFAULTS["metrics"]
    assert defaulted({"health": {"healthProbeBindAddress": ""}})["health"] == DEFAULTS["health"]


def test_qps_may_be_written_without_a_point() -> None:
    assert Configuration.from_dict({"clientConnection": {"qps": 50}}).client_connection.qps == 50.0
