# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the nodes whose pods run as local processes ready while the kubelet runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec
from controller_runtime import client, log
from controller_runtime.apis.coordination.v1 import Lease, LeaseSpec
from controller_runtime.apis.core.v1 import Node
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.meta import format_micro_time, format_time
from controller_runtime.rest import RestError

from trainerctl.localcluster.nodes import PROCESS_NODES

LEASES: Final = "kube-node-lease"
_LEASE_SECONDS: Final = 40
_RENEW_SECONDS: Final = 10.0
_HEALTHY: Final = {"MemoryPressure": "KubeletHasSufficientMemory", "DiskPressure": "KubeletHasNoDiskPressure"}
_log = log.logger_from("processes.nodes")


class Nodes:
    """Keeps the nodes of local processes ready, and knows their names."""

    def __init__(self, client_: client.Client) -> None:
        self._client = client_
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    async def start(self) -> None:
        """Report the nodes as ready until cancelled. If a request fails, log the error and try again."""
        while True:
            try:
                await self.heartbeat()
            except (StatusError, RestError) as error:
                _log.info("Nodes cannot report that they are ready", error=str(error))
                await anyio.sleep(1)
                continue
            await anyio.sleep(_RENEW_SECONDS)

    def need_leader_election(self) -> bool:
        """Return False, because only one kubelet runs."""
        return False

    async def heartbeat(self) -> None:
        """Renew the lease of every node. If a node is not ready, report it as ready."""
        now = datetime.now(UTC)
        for node in await self._client.list(Node, labels=PROCESS_NODES):
            self._names.add(node.name)
            await self._renew(node, now)
            found = node.status.conditions or []
            if not any((each.type, each.status) == ("Ready", "True") for each in found):
                await self._make_ready(node, now)

    async def _renew(self, node: Node, now: datetime) -> None:
        lease = Lease(
            metadata=ObjectMeta(name=node.name, namespace=LEASES),
            spec=LeaseSpec(
                holder_identity=node.name,
                lease_duration_seconds=_LEASE_SECONDS,
                renew_time=format_micro_time(now),
            ),
        )
        body = msgspec.json.encode({"spec": {"renewTime": format_micro_time(now)}})
        try:
            await self._client.patch(lease, client.raw_patch(client.MERGE, body))
        except NotFoundError:
            await self._client.create(lease)

    async def _make_ready(self, node: Node, now: datetime) -> None:
        time = format_time(now)
        times = {"lastHeartbeatTime": time, "lastTransitionTime": time}
        conditions = [
            {"type": kind, "status": "False", "reason": why, **times} for kind, why in _HEALTHY.items()
        ]
        conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady", **times})
        body = msgspec.json.encode({"status": {"conditions": conditions}})
        await self._client.status.patch(node, client.raw_patch(client.STRATEGIC, body))
