# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests of every kind: one real API server, one whole cluster, a namespace for each test, figures."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio
import pytest
from controller_runtime.envtest import PlainProgress
from controller_runtime.testing.pytest_envtest import control_plane as control_plane
from controller_runtime.testing.pytest_envtest import live_client as live_client
from controller_runtime.testing.pytest_envtest import namespace as namespace
from controller_runtime.testing.pytest_envtest import rest_config as rest_config
from ctrl_testkit.figures import figure as figure
from ctrl_testkit.figures import pytest_terminal_summary as pytest_terminal_summary
from ctrl_testkit.programs import pytest_configure as pytest_configure
from ctrl_testkit.programs import pytest_runtest_makereport as pytest_runtest_makereport
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.tools import DEFAULT_JOBSET, DEFAULT_KUBERNETES

KUBERNETES = os.environ.get("CLUSTER_KUBERNETES", DEFAULT_KUBERNETES)
JOBSET = os.environ.get("CLUSTER_JOBSET", DEFAULT_JOBSET)


RunCluster = Callable[[Options], AbstractContextManager[Cluster]]


@pytest.fixture(scope="session")
def run_cluster(tmp_path_factory: pytest.TempPathFactory) -> RunCluster:
    """Return a function that runs a local cluster: ``with run_cluster(Options(...)) as cluster``.

    The cluster does not belong to an event loop.
    """

    @contextmanager
    def running(options: Options) -> Iterator[Cluster]:
        directory = tmp_path_factory.mktemp("cluster")
        cluster = Cluster(directory, options, tied=True, progress=PlainProgress(sys.stderr))
        anyio.run(cluster.up)
        try:
            yield cluster
            cluster.supervisor.check()
        finally:
            cluster.kill()

    return running


@pytest.fixture(scope="session")
def local_cluster(run_cluster: RunCluster) -> Iterator[Cluster]:
    """Yield the whole local cluster with our manager, for end-to-end tests.

    ``CLUSTER_KUBERNETES`` and ``CLUSTER_JOBSET`` choose releases other than the default ones. ``.kubeconfig`` is the
    administrator's file, and ``async with .client() as client`` gives an administrator's client.
    """
    with run_cluster(Options(kubernetes=KUBERNETES, jobset=JOBSET)) as cluster:
        yield cluster
