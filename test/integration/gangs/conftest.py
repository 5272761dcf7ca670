# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server that serves Kubernetes' own gangs, with JobSet's default CRD, which drops their field."""

from collections.abc import Callable, Iterator

import pytest
from controller_runtime.envtest import Environment
from controller_runtime.testing.pytest_envtest import running

from pkg.localcluster.options import Options


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Environment]:
    options = Options(kubernetes="1.35", workloads=True)
    environment = Environment(version=options.kubernetes, api_server_flags=options.api_server_flags)
    with running(environment):
        yield environment


@pytest.fixture(scope="session")
def trainer_control_plane(
    control_plane: Environment, install_trainer: Callable[[Environment], None]
) -> Environment:
    """That API server, with Trainer installed."""
    install_trainer(control_plane)
    return control_plane
