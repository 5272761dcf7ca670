# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m trainerctl.localcluster.podlogs``: one server for all nodes of a cluster. It also recycles volumes."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from controller_runtime.client import LiveClient
from controller_runtime.envtest import HOST
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError, RESTMapper, Transport, load_config
from pkg.apis.jobset.v1alpha2 import JOB_SET_NAME_KEY
from pkg.why import LiveObject, kinds

from trainerctl.localcluster import recycling
from trainerctl.localcluster.podlogs.removed import RemovedPods
from trainerctl.localcluster.podlogs.server import LogServer, mutual_tls
from trainerctl.localcluster.podlogs.simulated import SimulatedLogs

_FAILED: Final = {"status.phase": "Failed"}
"""Only failed pods are kept: the invented log of another pod explains nothing."""
_PAUSE: Final = 5.0


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m trainerctl.localcluster.podlogs")
    for flag in ("kubeconfig", "certificate", "key", "client-ca", "removed"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--port", type=int, required=True)
    anyio.run(_serve, parser.parse_args())


async def _serve(parsed: argparse.Namespace) -> None:
    tls = mutual_tls(parsed.certificate, parsed.key, parsed.client_ca)
    async with Transport(await load_config(parsed.kubeconfig)) as transport:
        client = LiveClient(transport, RESTMapper(transport))
        removed = RemovedPods(Path(parsed.removed))
        pods = unstructured(kinds.VERSIONS[kinds.POD][0])

        async def read_pod(namespace: str, name: str) -> LiveObject | None:
            try:
                return LiveObject((await client.get(pods, (namespace, name))).to_dict())
            except NotFoundError:
                return None

        async def keep_failed() -> None:
            while True:
                with suppress(StatusError, RestError):
                    async with client.watch(pods, labels=JOB_SET_NAME_KEY, fields=_FAILED) as events:
                        async for event in events:
                            if event.type == "DELETED":
                                await anyio.to_thread.run_sync(removed.keep, event.object.to_dict())
                await anyio.sleep(_PAUSE)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recycling.recycle, client, lambda *claim: None)
            tasks.start_soon(removed.follow, client)
            tasks.start_soon(keep_failed)
            await LogServer(SimulatedLogs(read_pod).log).serve(HOST, parsed.port, tls)
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    main()
