# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What tests of every kind share: one real API server, one whole cluster, a namespace for each test, figures."""

import dataclasses
import re
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import pytest

from pkg.apis.machinery.gvk import GVK
from pkg.apis.machinery.object import unstructured
from pkg.cli.cluster import Cluster
from pkg.ctrl.client import LiveClient
from pkg.ctrl.envtest import Environment, PlainProgress
from pkg.ctrl.rest import Config, RESTMapper, Transport

NAMESPACE = unstructured(GVK("", "v1", "Namespace"))
FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Environment]:
    """One etcd and kube-apiserver for the whole run; no controllers. Belongs to no event loop."""
    environment = Environment()
    anyio.run(environment.start)
    yield environment
    anyio.run(environment.stop)


@pytest.fixture(scope="session")
def local_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The whole local cluster with our manager, for end-to-end tests; belongs to no event loop.

    ``.kubeconfig`` is the administrator's file, ``async with .client() as client`` an administrator's client.
    """
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), tied=True, progress=PlainProgress(sys.stderr))
    anyio.run(cluster.up)
    yield cluster
    cluster.supervisor.check()
    cluster.kill()


@pytest.fixture
def rest_config(control_plane: Environment) -> Config:
    """How an administrator reaches the run's API server; a copy, for the test to change."""
    return dataclasses.replace(control_plane.config)


@pytest.fixture
async def live_client(rest_config: Config) -> AsyncIterator[LiveClient]:
    """A client that asks the run's API server, closed after the test."""
    async with Transport(rest_config) as transport:
        yield LiveClient(transport, RESTMapper(transport))


@pytest.fixture
async def namespace(live_client: LiveClient, request: pytest.FixtureRequest) -> str:
    """A fresh namespace, named after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    name = f"{words[:40].strip('-')}-{secrets.token_hex(4)}"
    await live_client.create(NAMESPACE.from_dict({"metadata": {"name": name}}))
    return name


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print a figure at the end of the run beside its bound, and assert it."""
    lines = request.config.stash.setdefault(FIGURES, [])

    def show(what: str, value: float, *, at_most: float, unit: str = "s") -> None:
        lines.append(f"{what}: {value:.4g} {unit} (at most {at_most:g})")
        assert value <= at_most, lines[-1]

    return show


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured."""
    if lines := config.stash.get(FIGURES, []):
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)
