# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Restarts the components of a cluster that have ended. They continue to use their existing files. The objects are
kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from controller_runtime.client import LiveClient
from controller_runtime.envtest import Supervisor
from controller_runtime.rest import Transport, load_config

from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import write_kubeconfig
from trainerctl.localcluster.components import JOBSET_CONTROLLER, MANAGER
from trainerctl.localcluster.state import State

STORE: Final = ("etcd", "kube-apiserver")
"""All other components need these two. They are started in this order."""
ACCOUNTS: Final[Mapping[str, tuple[str, str]]] = {
    JOBSET_CONTROLLER: (manifests.JOBSET_NAMESPACE, manifests.JOBSET_ACCOUNT),
    MANAGER: (manifests.TRAINER_NAMESPACE, manifests.TRAINER_ACCOUNT),
}
"""The components that have a service account, with its namespace and name."""


async def restart(directory: Path, kept: State, supervisor: Supervisor, *, timeout: float) -> list[str]:
    """Start the components that have ended, and return their names once every component is ready.

    If this call fails or is cancelled, the components that it has started are killed.

    Raises:
        ComponentError: a component ends soon after its start, or does not become ready; the error names its log.
    """
    running = {name for name, process in supervisor.processes.items() if process.poll() is None}
    ended = [component for component in kept.components if component.name not in running]
    started: list[str] = []

    def start(names: Collection[str]) -> None:
        for component in ended:
            if component.name in names:
                supervisor.start(component)
                started.append(component.name)

    # Forget the processes that have ended: the watch would report them at once.
    supervisor.kill([name for name in supervisor.processes if name not in running])
    try:
        async with supervisor.watching():
            start(STORE)
            await _ready(kept, supervisor, STORE, timeout)
            others = {component.name for component in ended} - set(STORE)
            if others & ACCOUNTS.keys():
                await write_tokens(directory, kept.server, others & ACCOUNTS.keys())
            start(others)
            await _ready(kept, supervisor, kept.names, timeout)
    except BaseException:
        supervisor.kill(started)
        raise
    return [component.name for component in ended]


async def write_tokens(directory: Path, server: str, components: Collection[str]) -> None:
    """Write a kubeconfig with a new token for each of ``components``."""
    authority = (directory / "pki" / "ca.crt").read_bytes()
    async with Transport(await load_config(str(directory / "admin.kubeconfig"))) as transport:
        client = LiveClient(transport)
        for component in sorted(components):
            namespace, name = ACCOUNTS[component]
            path = directory / f"{component}.kubeconfig"
            await write_kubeconfig(client, path, server, authority, namespace=namespace, name=name)


async def _ready(kept: State, supervisor: Supervisor, names: Collection[str], timeout: float) -> None:
    for component in kept.components:
        if component.name in names:
            await supervisor.wait_ready(component, timeout=timeout)
