# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl cluster up|down|status|list|build``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from controller_runtime.apis.core.v1 import Node
from controller_runtime.envtest import Binaries, EnvtestError
from controller_runtime.envtest.locks import file_lock

from pkg.cli.progress import progress_on
from pkg.cli.terminal import Console
from pkg.localcluster.cluster import Cluster, Options
from pkg.localcluster.names import DEFAULT_NAME, DEMO_NAME, root_directory, state_directory
from pkg.localcluster.nodes import NodeShape, is_usable
from pkg.localcluster.state import State
from pkg.localcluster.tools import ALL

_NODES: Final = 4
_WORDS: Final = {"200": "healthy", "ended": "not running"}


async def up_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Start the cluster, or what has ended of it; print what to export."""
    directory = state_directory(parsed.name)
    if parsed.name == DEMO_NAME:
        raise ValueError(f"the name {DEMO_NAME} is reserved: trainerctl demo replaces that cluster")
    nodes = _NODES if parsed.nodes is None else parsed.nodes
    shape = NodeShape() if parsed.gpus is None else NodeShape(gpus=parsed.gpus)
    options = Options(nodes, shape, not parsed.without_manager, parsed.timeout, parsed.coscheduling)
    async with _lock(parsed.name, err):
        with progress_on(err) as progress:
            cluster = Cluster(directory, options, progress=progress)
            if parsed.recreate or not State.exists(directory):
                await cluster.up()
            else:
                await _keep(cluster, parsed, err)
    if parsed.without_manager:
        err.say("No manager runs. Start yours with:")
        err.say(f"trainer-controller-manager {shlex.join(cluster.manager_arguments)}")
    err.say("The cluster keeps running; its service accounts' tokens are valid for 24 hours.")
    out.say(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0


async def _keep(cluster: Cluster, parsed: argparse.Namespace, err: Console) -> None:
    """Leave a cluster as it is, but start again what has ended of it."""
    if await cluster.is_up():
        err.say(f"Cluster {parsed.name} is up already; it was left as it is.")
    else:
        try:
            started = await cluster.restart()
        except EnvtestError as error:
            hint = f"trainerctl cluster up --recreate --name {parsed.name}"
            raise EnvtestError(
                f"{error}\nCluster {parsed.name} and its objects were kept. To replace them: {hint}"
            ) from error
        names = ", ".join(started) or "nothing; a component was not healthy yet"
        err.say(f"Cluster {parsed.name} was kept with its objects. Started again: {names}.")
    flags = {"--nodes": parsed.nodes, "--gpus": parsed.gpus, "--coscheduling": parsed.coscheduling or None}
    if ignored := [flag for flag, value in flags.items() if value is not None]:
        err.say(f"{', '.join(ignored)} had no effect: the cluster exists. To replace it, add --recreate.")


async def down_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Stop the cluster; it is no error when there is none."""
    directory = state_directory(parsed.name)
    async with _lock(parsed.name, err):
        stopped = await Cluster(directory).down()
    out.say(f"Stopped {', '.join(stopped)}." if stopped else f"No cluster {parsed.name} is running.")
    return 0


async def status_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Print each component's health and log."""
    directory = state_directory(parsed.name)
    state = State.read(directory)
    if state is None:
        name = "" if parsed.name == DEFAULT_NAME else f" --name {parsed.name}"
        err.say(f"There is no cluster {parsed.name}; make one with: trainerctl cluster up{name}")
        return 1
    cluster = Cluster(directory)
    said = await cluster.health()
    rows = []
    for name in state.names:
        process = cluster.supervisor.processes.get(name)
        answer = said.get(name, "ended")
        running = process is not None and answer != "ended"
        pid = str(process.identity.pid) if process is not None and running else "-"
        rows.append((name, _WORDS.get(answer, f"unhealthy: {answer}"), pid))
    out.table(("COMPONENT", "STATE", "PID"), rows)
    out.say(f"logs: {directory / 'logs'}")
    if said.get("kube-apiserver") == "200":
        async with cluster.client() as client:
            nodes = await client.list(Node)
        usable = sum(is_usable(node.to_dict()) for node in nodes)
        out.say(f"nodes: {usable} of {len(nodes)} take pods")
    out.say(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    return 0 if set(said) == set(state.names) and set(said.values()) == {"200"} else 1


async def list_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the clusters of this user."""
    root = root_directory()
    names = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    rows = [(name, *await _described(root / name)) for name in names]
    if rows:
        out.table(("NAME", "STATE", "NODES", "KUBECONFIG"), rows, right=("NODES",))
    else:
        err.say("There are no clusters.")
    return 0


async def _described(directory: Path) -> tuple[str, str, str]:
    """Return the state of a cluster, its number of nodes and its kubeconfig."""
    state = State.read(directory)
    cluster = Cluster(directory)
    if state is None:
        return "unreadable" if State.exists(directory) else "not up", "", ""
    said = await cluster.health()
    sick = [name for name in state.names if said.get(name) != "200"]
    if all(said.get(name, "ended") == "ended" for name in state.names):
        told = "stopped"
    else:
        told = f"unhealthy: {', '.join(sick)}" if sick else "healthy"
    return told, str(state.nodes), str(cluster.kubeconfig)


@asynccontextmanager
async def _lock(name: str, err: Console) -> AsyncIterator[None]:
    """Hold the cluster's lock; report that another command holds it."""

    def waiting() -> None:
        err.say(f"Another command is working on cluster {name}; waiting for it to end.")

    async with file_lock(state_directory(name).parent / f"{name}.lock", waiting=waiting):
        yield


async def build_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Build what is missing; print where each program is."""
    with progress_on(err) as progress:
        located = await Binaries(progress=progress).locate(*ALL)
    for binary in located.values():
        out.say(str(binary.path))
    return 0
