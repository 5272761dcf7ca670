# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Logs of pods through a real API server, from a server that answers as a kubelet does."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from controller_runtime import webhook
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.machinery import errors

pytestmark = pytest.mark.integration


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[tuple[int, list[dict[str, str]]]]:
    """Serve logs; yield the port and the queries of the requests. A followed log never ends."""
    queries: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        queries.append({"path": request.path, **request.query})
        if request.match_info["container"] == "broken":
            return web.Response(status=404, text="no such container")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"one\ntw")
        await response.write("o ü\n".encode())
        if "follow" in request.query:
            await anyio.sleep_forever()
        return response

    cert, key = webhook.SelfSigned("127.0.0.1").pair()
    (tmp_path / "pair.pem").write_bytes(cert + b"\n" + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1], queries
    finally:
        await runner.cleanup()


async def test_the_log_of_a_container_is_read_whole_and_followed(
    live_client: LiveClient, namespace: str, kubelet: tuple[int, list[dict[str, str]]]
) -> None:
    port, queries = kubelet
    node = await live_client.create(Node.from_dict({"metadata": {"name": namespace}}))
    status = (
        f'{{"status":{{"addresses":[{{"type":"InternalIP","address":"127.0.0.1"}}],'
        f'"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}'
    )
    await live_client.status.patch(node, raw_patch(MERGE, status.encode()))
    containers = [{"name": name, "image": "i"} for name in ("main", "broken")]
    pod = await live_client.create(
        Pod.from_dict(
            {
                "metadata": {"name": "p", "namespace": namespace},
                "spec": {"nodeName": namespace, "containers": containers},
            }
        )
    )
    logs = live_client.subresource("log")

    assert await logs.get(pod, container="main", tail_lines=5, timestamps=True) == "one\ntwo ü\n"
    with anyio.fail_after(20):
        async with logs.stream(pod, container="main", follow=True, since_seconds=60) as lines:
            assert await anext(lines) == "one"
            assert await anext(lines) == "two ü"
    async with logs.stream(pod, container="main", limit_bytes=1000) as lines:
        assert [line async for line in lines] == ["one", "two ü"]
    with pytest.raises(errors.StatusError):
        await logs.get(pod, container="broken")
    with pytest.raises(errors.BadRequestError, match="a container name must be specified"):
        await logs.get(pod)

    path = f"/containerLogs/{namespace}/p/main"
    assert queries[0] == {"path": path, "tailLines": "5", "timestamps": "true"}
    assert queries[1] == {"path": path, "follow": "true", "sinceSeconds": "60"}
    assert queries[2] == {"path": path, "limitBytes": "1000"}
    await live_client.delete(pod, grace_period_seconds=0)
    await live_client.delete(node)
