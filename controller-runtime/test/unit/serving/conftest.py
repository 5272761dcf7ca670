# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an HTTP service and a connected client."""

from collections.abc import AsyncIterator

import pytest

from ctrl_testkit.connections import Client, Service


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    yield service
    service.go_on.set()
    await service.shared.drain(1)
    for client in service.clients:
        client.sock.close()


@pytest.fixture
async def client(service: Service) -> "Client":
    return await service.connect()
