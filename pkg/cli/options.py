# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The flags that several commands share, what they read, and how warnings are printed."""

from __future__ import annotations

import argparse

from controller_runtime.client import LiveClient
from controller_runtime.rest import Transport, load_config

from pkg.cli.terminal import Console
from pkg.offline import inputfiles, trainjobs
from pkg.offline.trainjobs import Offline


async def load(arguments: argparse.Namespace) -> Offline:
    """Return what the command line names.

    Raises:
        InputError: a file makes no sense, or there is no TrainJob in them.
    """
    found = await inputfiles.load(arguments.files)
    if arguments.kubeconfig is None and arguments.context is None:
        return await trainjobs.prepare(found, namespace=arguments.namespace)
    config = await load_config(arguments.kubeconfig, context=arguments.context)
    async with Transport(config) as transport:
        return await trainjobs.prepare(found, namespace=arguments.namespace, cluster=LiveClient(transport))


def say_warnings(given: Offline, err: Console) -> None:
    """Print what the input has that a server would drop."""
    for warning in given.warnings:
        say(err, f"warning: {warning}")


def say(err: Console, text: str) -> None:
    """Print a line for people, as it is."""
    err.say(f"trainerctl: {text}")
