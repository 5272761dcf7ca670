# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m trainerctl.localcluster.podlogs``: one server for all nodes of a cluster. It also recycles volumes."""

from __future__ import annotations

import argparse

import anyio
from controller_runtime.client import LiveClient
from controller_runtime.envtest import HOST
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import RESTMapper, Transport, load_config
from pkg.why import LiveObject, kinds

from trainerctl.localcluster import recycling
from trainerctl.localcluster.podlogs.server import LogServer, mutual_tls
from trainerctl.localcluster.podlogs.simulated import SimulatedLogs


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m trainerctl.localcluster.podlogs")
    for flag in ("kubeconfig", "certificate", "key", "client-ca"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--port", type=int, required=True)
    anyio.run(_serve, parser.parse_args())


async def _serve(parsed: argparse.Namespace) -> None:
    tls = mutual_tls(parsed.certificate, parsed.key, parsed.client_ca)
    async with Transport(await load_config(parsed.kubeconfig)) as transport:
        client = LiveClient(transport, RESTMapper(transport))
        pods = unstructured(kinds.VERSIONS[kinds.POD][0])

        async def read_pod(namespace: str, name: str) -> LiveObject | None:
            try:
                return LiveObject((await client.get(pods, (namespace, name))).to_dict())
            except NotFoundError:
                return None

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recycling.recycle, client, lambda *claim: None)
            await LogServer(SimulatedLogs(read_pod).log).serve(HOST, parsed.port, tls)
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    main()
