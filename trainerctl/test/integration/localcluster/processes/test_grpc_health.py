# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The gRPC health check, against the gRPC server of etcd and against answers that it does not give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import ETCD, HOST, Binaries, Component, Probe, Supervisor, free_ports

from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.grpchealth import check
from trainerctl.localcluster.processes.probes import ProbeTarget

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SETTINGS = bytes.fromhex("000000040000000000")
TRAILERS = bytes.fromhex("000000010500000001")
PING = bytes.fromhex("000008060000000000") + b"12345678"


def data(message: bytes) -> bytes:
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return len(body).to_bytes(3, "big") + bytes.fromhex("000000000001") + body


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """The port of an etcd without TLS."""
    etcd = (await Binaries().locate(ETCD))["etcd"].path
    port, peer = free_ports(2)
    url, peers = f"http://{HOST}:{port}", f"http://{HOST}:{peer}"
    clients = [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
    argv = [str(etcd), f"--data-dir={tmp_path / 'data'}", f"--listen-peer-urls={peers}", *clients]
    component = Component("etcd", argv, Probe(f"{url}/health"))
    supervisor = Supervisor(tmp_path, tied=True)
    supervisor.start(component)
    try:
        await supervisor.wait_ready(component, timeout=30)
        yield port
    finally:
        supervisor.kill()


@pytest.mark.parametrize(("service", "serves"), [("", True), ("unknown.Service", False)])
async def test_a_server_is_asked(service: str, serves: bool, port: int) -> None:
    ok, message = await check(HOST, port, service)
    assert ok is serves, message


async def test_a_probe_of_a_pod_is_answered(port: int) -> None:
    container = {"name": "c", "image": "i", "livenessProbe": {"grpc": {"port": port}}}
    pod = Pod.from_dict({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    (described,) = pod.spec.containers or []
    assert described.liveness_probe is not None
    plan = process.Plan([], {}, "/", "/dev/null", "/tmp", "p", [], isolated=False)
    target = ProbeTarget(process.ProcessID(1, 0), plan, HOST, [])
    assert await target.check(described.liveness_probe, 10) == (True, "the service is SERVING")


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (SETTINGS + PING + data(b"\x08\x01") + TRAILERS, (True, "the service is SERVING")),
        (SETTINGS + data(b"\x08\x02") + TRAILERS, (False, "the service is NOT_SERVING")),
        (SETTINGS + data(b"") + TRAILERS, (False, "the service is UNKNOWN")),
        (
            SETTINGS + bytes.fromhex("000000000800000001") + data(b"\x08\x01") + TRAILERS,
            (True, "the service is SERVING"),
        ),
        (
            SETTINGS + TRAILERS,
            (False, "the server does not implement the gRPC health protocol, or does not know the service"),
        ),
        (SETTINGS, (False, "the server closed the connection")),
        (b"", (False, "the server closed the connection")),
        (bytes.fromhex("000008070000000000") + b"\0" * 8, (False, "the server refused the call")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", (False, "the answer is not HTTP/2")),
    ],
)
async def test_an_answer_is_judged(answer: bytes, result: tuple[bool, str]) -> None:
    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            if answer:
                await stream.send(answer)

    listener = await anyio.create_tcp_listener(local_host=HOST)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        try:
            found = await check(HOST, port, "")
        except ValueError as error:
            found = False, str(error)
        assert found == result
        tasks.cancel_scope.cancel()
    await listener.aclose()
