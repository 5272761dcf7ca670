# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The flags that several commands share, what they read, and how warnings are printed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from controller_runtime.client import LiveClient
from controller_runtime.rest import Transport, load_config

from pkg.cli.arguments import namespace
from pkg.cli.terminal import Console
from pkg.offline import documents, inputs
from pkg.offline.documents import DEFAULT_NAMESPACE
from pkg.offline.inputs import Offline


def add_files(parser: argparse.ArgumentParser, *, outputs: Sequence[str] = ()) -> None:
    """Add ``-f``, ``-n`` and, with ``outputs``, ``-o``, whose first choice is the default."""
    parser.add_argument(
        "-f",
        "--filename",
        dest="files",
        metavar="FILE",
        nargs="+",
        action="extend",
        required=True,
        help="YAML or JSON, many documents; a folder; - for standard input",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        type=namespace,
        default=DEFAULT_NAMESPACE,
        help="namespace for objects that do not set one",
    )
    if outputs:
        parser.add_argument(
            "-o", "--output", choices=outputs, default=outputs[0], help=f"how to print it ({outputs[0]})"
        )


def add_files_and_cluster(parser: argparse.ArgumentParser, outputs: Sequence[str]) -> None:
    """Add ``-f``, ``-o`` and where runtimes may come from."""
    add_files(parser, outputs=outputs)
    parser.add_argument("--kubeconfig", help="read runtimes missing from the files from this cluster")
    parser.add_argument("--context", help="read them from the cluster of this context")


async def load(arguments: argparse.Namespace) -> Offline:
    """Return what the command line names.

    Raises:
        InputError: a file makes no sense, or there is no TrainJob in them.
    """
    found = await documents.load(arguments.files)
    if arguments.kubeconfig is None and arguments.context is None:
        return await inputs.prepare(found, namespace=arguments.namespace)
    config = await load_config(arguments.kubeconfig, context=arguments.context)
    async with Transport(config) as transport:
        return await inputs.prepare(found, namespace=arguments.namespace, cluster=LiveClient(transport))


def say_warnings(given: Offline, err: Console) -> None:
    """Print what the input has that a server would drop."""
    for warning in given.warnings:
        say(err, f"warning: {warning}")


def say(err: Console, text: str) -> None:
    """Print a line for people, as it is."""
    err.say(f"trainerctl: {text}")
