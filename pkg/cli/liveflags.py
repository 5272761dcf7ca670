# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of the commands that read or change TrainJobs of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from pkg.cli import flagtypes

Add = Callable[[argparse.ArgumentParser], None]


def _why(parser: argparse.ArgumentParser) -> None:
    _named(parser, ("text", "json"))
    parser.epilog = (
        "The exit code is 0 if the TrainJob runs, starts or is complete, 1 if something is wrong, and 3 if it waits: "
        "for a person, a queue, or free capacity."
    )
    parser.set_defaults(function="pkg.cli.why:why_command")


COMMANDS: Final[tuple[tuple[str, str, Add], ...]] = (
    ("why", "explain why a TrainJob does not run: the cause, its evidence, and the remedy", _why),
)


def _named(parser: argparse.ArgumentParser, outputs: Sequence[str] = ()) -> None:
    parser.add_argument("name", metavar="NAME", type=flagtypes.name, help="name of the TrainJob")
    _cluster(parser, outputs)


def _cluster(parser: argparse.ArgumentParser, outputs: Sequence[str] = ()) -> None:
    add = parser.add_argument
    add(
        "-n",
        "--namespace",
        type=flagtypes.namespace,
        help="namespace of the TrainJob (default that of the kubeconfig's context)",
    )
    add("--kubeconfig", help="kubeconfig of the cluster (default as kubectl)")
    add("--context", help="context of the kubeconfig")
    if outputs:
        default = outputs[0]
        add("-o", "--output", choices=outputs, default=default, help=f"output format (default {default})")
