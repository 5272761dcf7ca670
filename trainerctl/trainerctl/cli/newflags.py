# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of ``trainerctl new``."""

from __future__ import annotations

import argparse

from trainerctl.cli import flagtypes


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add(
        "name", metavar="NAME", nargs="?", type=flagtypes.name, help="its name; without one, questions follow"
    )
    add("--runtime", default="torch-distributed", help="name of the runtime (default torch-distributed)")
    add(
        "--kind",
        choices=("ClusterTrainingRuntime", "TrainingRuntime"),
        default="ClusterTrainingRuntime",
        help="kind of the runtime (default ClusterTrainingRuntime)",
    )
    add("--with-runtime", action="store_true", help="write a TrainingRuntime, too: a copy of the shipped one")
    add("--image", help="image of the nodes")
    add("--nodes", type=flagtypes.integer(1, 1 << 20), metavar="N", help="number of nodes")
    add("--gpus", type=flagtypes.integer(0, 1 << 10), metavar="N", help="GPUs per node (nvidia.com/gpu)")
    add("--cpu", metavar="QUANTITY", help="CPUs per node")
    add("--memory", metavar="QUANTITY", help="memory per node")
    add(
        "--env",
        type=flagtypes.variable,
        metavar="NAME=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="environment variables",
    )
    add("--queue", metavar="NAME", help="LocalQueue of Kueue")
    add("--suspend", action="store_true", help="create it suspended")
    add(
        "-f",
        "--filename",
        dest="files",
        metavar="FILE",
        nargs="+",
        action="extend",
        help="files of runtimes to validate against",
    )
    add("-n", "--namespace", type=flagtypes.namespace, help="namespace of the TrainJob")
    flagtypes.compatibility_version(parser)
    add("-o", "--output", choices=("yaml", "json"), default="yaml", help="output format (default yaml)")
    add(
        "--command",
        metavar="WORD",
        nargs=argparse.REMAINDER,
        default=[],
        help="command: the rest of the line",
    )
    parser.set_defaults(function="trainerctl.cli.new:new_command")
