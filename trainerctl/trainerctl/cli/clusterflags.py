# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of ``trainerctl cluster`` and their flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from trainerctl.cli import flagtypes
from trainerctl.localcluster.names import DEFAULT_NAME


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``cluster`` and their flags."""
    parser.set_defaults(cleans_up=True)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, about, flags in COMMANDS:
        command = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        module = "clusterlogs" if name == "logs" else "cluster"
        command.set_defaults(function=f"trainerctl.cli.{module}:{name}_command")
        if flags is not None:
            flags(command)


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name",
        type=flagtypes.cluster,
        default=DEFAULT_NAME,
        help=f"name of the cluster (default '{DEFAULT_NAME}')",
    )


def _start(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    _timeout(parser)


def _timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", type=flagtypes.seconds, default=120, metavar="SECONDS", help="time limit (default 120)"
    )


def _logs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("components", metavar="COMPONENT", nargs="*", help="components, as status names them (default all)")
    add("--tail", type=flagtypes.integer(0, 1 << 30), metavar="N", help="number of last lines (default all)")
    add("-f", "--follow", action="store_true", help="print new lines until it is interrupted")
    _name(parser)


def _up(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=flagtypes.integer(0, 5000), metavar="N", help="number of simulated nodes (default 4)")
    add(
        "--gpus",
        type=flagtypes.integer(0, 5000),
        metavar="N",
        help="GPUs per node (default 8, or 0 with --run-processes)",
    )
    add(
        "--run-processes",
        action="store_true",
        help="run the containers' commands as processes of this machine, without isolation",
    )
    add(
        "--image",
        type=flagtypes.image,
        action="append",
        default=[],
        metavar="IMAGE=FOLDER",
        help="with --run-processes: folder with the programs of an image, e.g. the bin folder of a virtual"
        " environment; can be repeated (default: that of the Python that runs trainerctl)",
    )
    add("--without-manager", action="store_true", help="do not start the manager")
    add(
        "--coscheduling",
        action="store_true",
        help="use the scheduler of scheduler-plugins, for gang scheduling",
    )
    add(
        "--workloads",
        action="store_true",
        help="enable Kubernetes' own gang scheduling: the feature gates and the API (1.35 and newer)",
    )
    add("--prometheus", action="store_true", help="run Prometheus, with a page of the dashboard's queries")
    add("--feature-gates", metavar="NAME=BOOL,...", help="feature gates of the manager, as for its own flag")
    _releases(parser)
    add(
        "--kai-scheduler",
        metavar="PATH",
        help="program of KAI-Scheduler, run beside the scheduler; the manager groups its pods",
    )
    add("--kai-binder", metavar="PATH", help="program that binds for --kai-scheduler")
    add(
        "--kai-crds",
        metavar="FOLDER",
        help="CRDs of the release of --kai-scheduler (default: those of v0.17)",
    )
    add("--recreate", action="store_true", help="replace an existing cluster and all its objects")
    _timeout(parser)
    _name(parser)


def _releases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubernetes",
        metavar="RELEASE",
        help="release line of Kubernetes: 1.34, 1.35, 1.36 or 1.37 (default 1.35)",
    )
    parser.add_argument(
        "--jobset", metavar="RELEASE", help="release line of JobSet: 0.10, 0.11 or 0.12 (default 0.10)"
    )


COMMANDS: Final[tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None] | None], ...]] = (
    ("up", "start the cluster and leave it running; an existing cluster keeps its objects", _up),
    ("down", "stop the cluster and remove it with all its objects", _name),
    ("stop", "stop the cluster and keep its objects", _name),
    ("start", "start a stopped cluster with its objects", _start),
    ("logs", "print the logs of the cluster's components", _logs),
    ("status", "show the state of each component; exit code 1 unless all are healthy", _name),
    ("list", "list the clusters", None),
    ("build", "build the programs that the cluster needs, and print their paths", _releases),
)
