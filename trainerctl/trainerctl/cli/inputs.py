# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The input of ``render`` and ``explain``."""

from __future__ import annotations

import argparse

from controller_runtime.client import LiveClient
from controller_runtime.rest import Transport, load_config

from trainerctl.cli import live, streams
from trainerctl.offline import inputfiles, trainjobs
from trainerctl.offline.trainjobs import Offline


async def load(arguments: argparse.Namespace) -> Offline:
    """Return the TrainJobs of the files, and print a warning for each field that a server would drop.

    Raises:
        InputError: a file is not valid, or contains no TrainJob.
    """
    given = await _load(arguments)
    for warning in given.warnings:
        streams.say_error(f"warning: {warning}")
    return given


async def _load(arguments: argparse.Namespace) -> Offline:
    found = await inputfiles.load(arguments.files)
    version = arguments.compatibility_version
    if arguments.kubeconfig is None and arguments.context is None:
        return await trainjobs.prepare(found, namespace=arguments.namespace, version=version)
    config = await load_config(arguments.kubeconfig, context=arguments.context)
    async with Transport(config) as transport:
        client = LiveClient(live.FirstAnswer(transport))
        return await trainjobs.prepare(found, namespace=arguments.namespace, cluster=client, version=version)
