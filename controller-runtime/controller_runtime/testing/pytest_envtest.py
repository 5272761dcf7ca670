# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: one real API server for the whole run, and a client and a namespace for each test.

Import the fixtures in ``conftest.py``::

    from controller_runtime.testing.pytest_envtest import *

To give ``control_plane`` another scope or other flags, write your own fixture with :func:`running`:
``with running(Environment(...)) as environment``.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
import pytest

from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment
from controller_runtime.rest import Config, RESTMapper, Transport

__all__ = ["control_plane", "live_client", "namespace", "rest_config"]


@contextmanager
def running(environment: Environment) -> Iterator[Environment]:
    """Run an API server, for your own fixtures. Tests with different event loops can use it."""
    anyio.run(environment.start)
    try:
        yield environment
    finally:
        anyio.run(environment.stop)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Environment]:
    """One etcd and kube-apiserver for the whole run, without controllers."""
    with running(Environment()) as environment:
        yield environment


@pytest.fixture
def rest_config(control_plane: Environment) -> Config:
    """A copy of the administrator's client configuration for the API server; the test may change it."""
    return dataclasses.replace(control_plane.config)


@pytest.fixture
async def live_client(rest_config: Config) -> AsyncIterator[LiveClient]:
    """A client of the run's API server, closed after the test."""
    async with Transport(rest_config) as transport:
        yield LiveClient(transport, RESTMapper(transport))


@pytest.fixture
async def namespace(live_client: LiveClient, request: pytest.FixtureRequest) -> str:
    """A new namespace, named after the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    name = f"{words[:40].strip('-')}-{secrets.token_hex(4)}"
    await live_client.create(Namespace.from_dict({"metadata": {"name": name}}))
    return name
