# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The labeller in a manager of its own, against a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from labeller import GREETING, LABEL, setup

import controller_runtime as ctrl
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(config: ctrl.Config) -> AsyncIterator[None]:
    """Run the manager while the body runs; an error of the manager fails the test."""
    mgr = ctrl.Manager(config, ctrl.Options(metrics_bind_address="0"))
    setup(mgr)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(mgr.start())
        await mgr.elected.wait()
        yield
        mgr.stop()


def greeting(namespace: str, language: str) -> ctrl.Unstructured:
    return GREETING.from_dict({
        "metadata": {"namespace": namespace, "name": "hello"},
        "spec": {"language": language},
    })  # fmt: skip


async def test_a_greeting_is_labelled(config: ctrl.Config, client: LiveClient, namespace: str) -> None:
    async def label() -> str | None:
        return (await client.get(GREETING, (namespace, "hello"))).labels.get(LABEL)

    async with running(config):
        await client.create(greeting(namespace, "fr"))
        assert await eventually(label, reason="the greeting is not labelled") == "fr"


async def test_the_server_holds_the_schema(client: LiveClient, namespace: str) -> None:
    with pytest.raises(ctrl.InvalidError, match=r'spec.language: Unsupported value: "xx"'):
        await client.create(greeting(namespace, "xx"))
