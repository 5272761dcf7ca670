# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures: one API server for the run; a client and a namespace for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment
from controller_runtime.rest import RESTMapper, Transport


@pytest.fixture(scope="session")
def config() -> Iterator[ctrl.Config]:
    """An administrator's client configuration for an API server with our CRDs; the server is not bound to an event
    loop.
    """
    environment = Environment(crds=[Path(__file__).parent / "crds"])
    asyncio.run(environment.start())
    yield environment.config
    asyncio.run(environment.stop())


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked ``anyio`` run on asyncio; anyio's pytest plugin is installed with controller-runtime."""
    return "asyncio"


@pytest.fixture
async def client(config: ctrl.Config, anyio_backend: str) -> AsyncIterator[LiveClient]:
    """A client without a cache, so that a test sees the stored objects."""
    async with Transport(config) as transport:
        yield LiveClient(transport, RESTMapper(transport))


@pytest.fixture
async def namespace(client: LiveClient) -> str:
    """A new namespace for each test. Namespaces are not deleted, because no controller would empty them."""
    made = await client.create(Namespace(metadata=ctrl.ObjectMeta(generate_name="test-")))
    return made.name
