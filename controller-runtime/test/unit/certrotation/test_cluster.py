# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The watches of the Secret and of the webhook configurations, with an in-memory transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from controller_runtime import client, rest
from controller_runtime.apis.admissionregistration.v1 import MutatingWebhookConfiguration
from controller_runtime.certrotation import cluster

HOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "defaulter", "uid": "u", "resourceVersion": "7"},
}
FAILED = {"kind": "Status", "status": "Failure", "message": "no"}
ENDED = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}


class Server:
    """Serves an empty list of each kind, and one MutatingWebhookConfiguration while it may be read."""

    read = 403
    """The code of the answer when the configuration itself is read; 403 denies the watch, too."""

    def __init__(self) -> None:
        self.transport = rest.FakeTransport(self._answer)

    @property
    def requests(self) -> list[str]:
        """Return the paths of the requests for MutatingWebhookConfigurations."""
        return [each.path for each in self.transport.requests if "mutating" in each.path]

    def _answer(self, request: rest.Request) -> rest.FakeResponse:
        mutating = "mutating" in request.path
        if mutating and (self.read == 403 or request.path.endswith("/defaulter")):
            return rest.FakeResponse(self.read, HOOKS if self.read == 200 else FAILED | {"code": self.read})
        return rest.FakeResponse(lines=self._stream([HOOKS] if mutating else []))

    async def _stream(self, objects: list[dict[str, Any]]) -> AsyncIterator[bytes]:
        for each in objects:
            yield msgspec.json.encode({"type": "ADDED", "object": each})
        yield msgspec.json.encode({"type": "BOOKMARK", "object": ENDED})
        await anyio.sleep_forever()


@pytest.mark.parametrize("read", [200, 404, 403])
async def test_a_configuration_that_the_role_denies_is_watched_once_it_may_be_read(read: int) -> None:
    server, changes = Server(), list[float]()
    server.read, permitted = read, read != 403
    live = client.LiveClient(server.transport, rest.RESTMapper(server.transport))
    options = cluster.Options(
        namespace="system",
        secret="certs",
        service="manager",
        mutating=("defaulter",),
        may_be_denied=(MutatingWebhookConfiguration,),
    )
    connected = cluster.Cluster(live, server.transport, options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connected.watch, lambda: changes.append(anyio.current_time()))
        await anyio.sleep(cluster.UNTIL_PERMITTED * 2.5)
        assert len(changes) == permitted
        if not permitted:
            assert len(server.requests) == 3
            server.read = 200
            await anyio.sleep(cluster.UNTIL_PERMITTED)
        assert len(changes) == 1
        tasks.cancel_scope.cancel()


async def test_every_configuration_of_one_kind_is_watched() -> None:
    server = Server()
    options = cluster.Options(namespace="n", secret="certs", service="s", validating=("one", "two", "three"))
    live = client.LiveClient(server.transport, rest.RESTMapper(server.transport))
    connected = cluster.Cluster(live, server.transport, options)
    with anyio.move_on_after(1):
        await connected.watch(lambda: None)
    names = {dict(each.query)["fieldSelector"] for each in server.transport.requests}
    assert names == {f"metadata.name={name}" for name in ("certs", "one", "two", "three")}
