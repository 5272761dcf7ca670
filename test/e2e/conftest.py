# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of end-to-end tests: a client of the local cluster, a namespace for each test, figures."""

import fcntl
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from controller_runtime.apis.core.v1 import Namespace, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, PlainProgress, Tool, ToolGroup, cache_directory, eventually
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.options import Options


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
    """Return the kubectl of the API server's release; it is built like the cluster's programs if it is missing."""
    group = ToolGroup(Path(__file__).parents[1] / "tools" / "kubectl", "k8s.io/kubernetes")
    tool = Tool("kubectl", group, "k8s.io/kubernetes/cmd/kubectl")
    return anyio.run(Binaries(progress=PlainProgress(sys.stderr)).locate, tool)["kubectl"].path


# Before 0.4, the SDK requires only that kubeflow-trainer-api is at least 2.0, but with 2.2 it cannot read its runtimes.
SDK_MODELS = {"0.2.0": "2.1.0", "0.3.1": "2.1.0", "0.4.1": "2.2.1", "0.5.0": "2.3.0"}


@pytest.fixture(scope="session")
def install_sdk() -> Callable[[str], Path]:
    """Return a function that installs a release of the SDK into a virtual environment, and returns its interpreter.

    The environment stays in the cache for later runs.
    """

    def install(release: str) -> Path:
        home = cache_directory(program="trainer-controller-manager")
        venv = (
            home / f"sdk-{release}-{SDK_MODELS[release]}-py{sys.version_info.major}.{sys.version_info.minor}"
        )
        python, done = venv / "bin" / "python", venv / "installed"
        home.mkdir(parents=True, exist_ok=True)
        with (home / f"{venv.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
                command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                packages = [f"kubeflow=={release}", f"kubeflow-trainer-api=={SDK_MODELS[release]}"]
                subprocess.run([*command, *packages], check=True)
                done.touch()
        return python

    return install
