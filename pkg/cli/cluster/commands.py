# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl cluster up|down|status|build``."""

from __future__ import annotations

import argparse
from typing import Final

from pkg.apis.core.v1 import Node
from pkg.cli.cluster.cluster import Cluster, Options
from pkg.cli.cluster.nodes import NodeShape, is_usable
from pkg.cli.cluster.progress import progress_on
from pkg.cli.cluster.state import DEFAULT_NAME, State, state_directory
from pkg.cli.cluster.tools import ALL
from pkg.cli.terminal import Console
from pkg.ctrl.envtest import Binaries
from pkg.ctrl.envtest.locks import file_lock

_WORDS: Final = {"200": "healthy", "ended": "not running"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``cluster`` and their flags to ``parser``."""
    parser.set_defaults(cleans_up=True)
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start the cluster and leave it running")
    up.add_argument("--nodes", type=_count, default=4, metavar="N", help="simulated nodes (4)")
    up.add_argument("--gpus", type=_count, default=8, metavar="N", help="GPUs of each node (8)")
    up.add_argument("--without-manager", action="store_true", help="leave the manager to you")
    up.add_argument(
        "--coscheduling", action="store_true", help="with scheduler-plugins' scheduler, for gangs"
    )
    up.add_argument("--timeout", type=_seconds, default=120, metavar="SECONDS", help="to be up by (120)")
    up.set_defaults(run=up_command)
    down = commands.add_parser("down", help="stop the cluster and remove its files")
    down.set_defaults(run=down_command)
    status = commands.add_parser("status", help="show what runs; exit code 1 unless all is healthy")
    status.set_defaults(run=status_command)
    build = commands.add_parser("build", help="build or find every program the cluster needs")
    build.set_defaults(run=build_command)
    for command in (up, down, status):
        command.add_argument("--name", default=DEFAULT_NAME, help=f"the cluster's name ({DEFAULT_NAME})")


async def up_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Start the cluster unless it is up already; print what to export."""
    directory = state_directory(arguments.name)
    shape = NodeShape(gpus=arguments.gpus)
    options = Options(
        arguments.nodes, shape, not arguments.without_manager, arguments.timeout, arguments.coscheduling
    )
    async with file_lock(directory.parent / f"{arguments.name}.lock"):
        with progress_on(err) as progress:
            cluster = Cluster(directory, options, progress=progress)
            if await cluster.is_up():
                err.say(f"Cluster {arguments.name} is up already; it was left as it is.")
            else:
                await cluster.up()
    if arguments.without_manager:
        err.say("No manager runs. Start yours with:")
        err.say(f"trainer-controller-manager {' '.join(cluster.manager_arguments)}")
    err.say("The cluster keeps running; its service accounts' tokens are valid for 24 hours.")
    out.say(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


async def down_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Stop the cluster; it is no error when there is none."""
    directory = state_directory(arguments.name)
    async with file_lock(directory.parent / f"{arguments.name}.lock"):
        stopped = await Cluster(directory).down()
    text = f"Stopped {', '.join(stopped)}." if stopped else f"No cluster {arguments.name} is running."
    out.say(text)
    return 0


async def status_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print each component's health and log."""
    directory = state_directory(arguments.name)
    state = State.read(directory)
    if state is None:
        err.say(f"There is no cluster {arguments.name}; make one with: trainerctl cluster up")
        return 1
    cluster = Cluster(directory)
    said = await cluster.health()
    rows = []
    for name in state.components:
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
    out.say(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0 if await cluster.is_up() else 1


async def build_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Build what is missing; print where each program is."""
    with progress_on(err) as progress:
        located = await Binaries(progress=progress).locate(*ALL)
    for binary in located.values():
        out.say(str(binary.path))
    return 0


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= number <= 5000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 5000")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time to wait")
    return number
