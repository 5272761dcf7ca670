# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of end-to-end tests: a client of the local cluster, a namespace for each test, figures."""

import re
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from controller_runtime.apis.core.v1 import Namespace, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.options import Options

from testkit import programs


@pytest.fixture(scope="module")
def cluster(local_cluster: Cluster) -> Cluster:
    """Return the cluster of a module's tests; a module may replace it by one of its own."""
    return local_cluster


@pytest.fixture
async def cluster_client(cluster: Cluster) -> AsyncIterator[LiveClient]:
    """Yield a client of an administrator."""
    async with cluster.client() as client:
        yield client


@pytest.fixture
async def cluster_namespace(cluster_client: LiveClient, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Yield the name of a new namespace in which pods can be created; it is deleted after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    made = await cluster_client.create(
        Namespace.from_dict({"metadata": {"name": f"{words[:40].strip('-')}-{secrets.token_hex(4)}"}})
    )
    key = (made.name, "default")
    await eventually(lambda: cluster_client.get(ServiceAccount, key), reason="the service account is there")
    yield made.name
    await cluster_client.delete(made)


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a separate local cluster with the shipped role, without a manager."""
    cluster = Cluster(tmp_path_factory.mktemp("bare"), Options(manager=False, nodes=2), tied=True)
    anyio.run(cluster.up)
    yield cluster
    cluster.kill()


@pytest.fixture
async def bare_client(bare: Cluster) -> AsyncIterator[LiveClient]:
    """Yield a client of an administrator of the cluster without a manager."""
    async with bare.client() as client:
        yield client


@pytest.fixture(scope="module")
def kubectl() -> Path:
    """Return the kubectl of the API server's release."""
    return anyio.run(programs.located, programs.KUBECTL)
