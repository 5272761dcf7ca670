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
DENIED = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}
ENDED = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}


class Server:
    """Serves an empty list of each kind, and one MutatingWebhookConfiguration while it may be read."""

    permitted = False

    def __init__(self) -> None:
        self.transport = rest.FakeTransport(self._answer)

    @property
    def requests(self) -> list[str]:
        """Return the paths of the requests for MutatingWebhookConfigurations."""
        return [each.path for each in self.transport.requests if "mutating" in each.path]

    def _answer(self, request: rest.Request) -> rest.FakeResponse:
        mutating = "mutating" in request.path
        if mutating and not self.permitted:
            return rest.FakeResponse(403, DENIED)
        if request.path.endswith("/defaulter"):
            return rest.FakeResponse(200, HOOKS)
        return rest.FakeResponse(lines=self._stream([HOOKS] if mutating else []))

    async def _stream(self, objects: list[dict[str, Any]]) -> AsyncIterator[bytes]:
        for each in objects:
            yield msgspec.json.encode({"type": "ADDED", "object": each})
        yield msgspec.json.encode({"type": "BOOKMARK", "object": ENDED})
        await anyio.sleep_forever()


@pytest.mark.parametrize("permitted", [True, False])
async def test_a_configuration_that_the_role_denies_is_watched_once_it_may_be_read(permitted: bool) -> None:
    server, changes = Server(), list[float]()
    server.permitted = permitted
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
            server.permitted = True
            await anyio.sleep(cluster.UNTIL_PERMITTED)
        assert len(changes) == 1
        tasks.cancel_scope.cancel()
