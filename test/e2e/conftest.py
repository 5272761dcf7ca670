# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What end-to-end tests share: a client of the local cluster, a namespace for each test, figures."""

import re
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from controller_runtime.apis.core.v1 import Namespace, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, PlainProgress, Tool, ToolGroup, eventually

from pkg.localcluster.cluster import Cluster


@pytest.fixture
async def cluster_client(local_cluster: Cluster) -> AsyncIterator[LiveClient]:
    """An administrator's client."""
    async with local_cluster.client() as client:
        yield client


@pytest.fixture
async def cluster_namespace(cluster_client: LiveClient, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A fresh namespace in which pods can be made; removed after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    made = await cluster_client.create(
        Namespace.from_dict({"metadata": {"name": f"{words[:40].strip('-')}-{secrets.token_hex(4)}"}})
    )
    key = (made.name, "default")
    await eventually(lambda: cluster_client.get(ServiceAccount, key), reason="the service account is there")
    yield made.name
    await cluster_client.delete(made)


@pytest.fixture(scope="module")
def kubectl() -> Path:
    """The kubectl of the API server's release, built like the cluster's own programs."""
    group = ToolGroup(Path(__file__).parents[1] / "tools" / "kubectl", "k8s.io/kubernetes")
    tool = Tool("kubectl", group, "k8s.io/kubernetes/cmd/kubectl")
    return anyio.run(Binaries(progress=PlainProgress(sys.stderr)).locate, tool)["kubectl"].path
