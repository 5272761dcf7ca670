# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The defaults of the manager's Configuration."""

from typing import Any

import pytest

from pkg.apis.config.v1alpha1 import Configuration, set_defaults


def defaulted(data: dict[str, Any]) -> dict[str, Any]:
    configuration = Configuration.from_dict(data)
    set_defaults(configuration)
    return configuration.to_dict()


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
    assert defaulted(given).items() >= given.items()


def test_an_empty_text_counts_as_unset_where_it_means_nothing() -> None:
    assert defaulted({"metrics": {"bindAddress": ""}})["metrics"]["bindAddress"] == ":8443"
    assert (
        defaulted({"health": {"healthProbeBindAddress": ""}})["health"]["healthProbeBindAddress"] == ":8081"
    )


def test_qps_may_be_written_without_a_point() -> None:
    assert Configuration.from_dict({"clientConnection": {"qps": 50}}).client_connection.qps == 50.0
