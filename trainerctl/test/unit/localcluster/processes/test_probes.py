# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of probes; test/integration/localcluster/processes runs probes of real processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc
import pytest
from controller_runtime.apis.core.v1 import Probe

from trainerctl.localcluster.processes.probes import ProbeTarget


@pytest.mark.real_time
@pytest.mark.parametrize(("path", "asked"), [(None, "/"), ("/healthz", "/healthz"), ("a/b?c=d", "/a/b?c=d")])
async def test_a_probe_asks_for_its_path(path: str | None, asked: str) -> None:
    heads: list[bytes] = []

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            heads.append(await stream.receive())
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    container: Any = None
    plan: Any = SimpleNamespace(ports={})
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        probe = Probe.from_dict({"httpGet": {"path": path, "port": port}})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            good, _ = await ProbeTarget(container, plan, "127.0.0.1", []).check(probe, 10)
            tasks.cancel_scope.cancel()
    assert good
    assert heads[0].startswith(f"GET {asked} HTTP/1.1\r\n".encode())


@pytest.mark.real_time
@pytest.mark.parametrize("kind", ["tcpSocket", "grpc"])
async def test_a_connection_is_enough_where_no_path_is_asked(kind: str) -> None:
    async def close(stream: anyio.abc.SocketStream) -> None:
        await stream.aclose()

    container: Any = None
    plan: Any = SimpleNamespace(ports={})
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        target, probe = ProbeTarget(container, plan, "127.0.0.1", []), Probe.from_dict({kind: {"port": port}})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, close)
            assert await target.check(probe, 10) == (True, "")
            tasks.cancel_scope.cancel()
    good, message = await target.check(probe, 10)
    assert not good
    assert message
