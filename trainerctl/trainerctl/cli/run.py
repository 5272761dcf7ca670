# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl run``: runs the manager in the foreground. It connects to a local cluster, or to the cluster of a
kubeconfig.
"""

from __future__ import annotations

import argparse

import anyio
from controller_runtime.rest import RestError
from pkg import app, config
from pkg.app import flags

from trainerctl.cli import streams
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.names import state_directory


def run_command(parsed: argparse.Namespace) -> int:
    """Run the manager and return its exit code. It gets the flags for the cluster and the flags in ``parsed.rest``.

    In a local cluster, install the webhooks that it serves first. With ``--webhooks=false``, remove them.
    """
    if parsed.kubeconfig:
        return app.main([f"--kubeconfig={parsed.kubeconfig}", "--webhooks=false", *parsed.rest])
    cluster = Cluster(state_directory(parsed.name))
    if not cluster.kubeconfig.exists():
        streams.say_error(
            f"cluster {parsed.name} does not exist; create it with `trainerctl cluster up --without-manager`, "
            "or name another cluster with --name or --kubeconfig"
        )
        return 1
    arguments = [*cluster.manager_arguments, *parsed.rest]
    try:
        given = flags.parse(arguments)
    except (flags.FlagError, flags.HelpRequested):
        return app.main(arguments)  # it prints the error or the help
    if not given.version:
        try:
            loaded = config.load(given.config, lambda _: None)  # app.main prints the warnings
            anyio.run(cluster.set_webhooks, loaded.webhook.port if given.webhooks else None)
        except RestError as error:
            streams.say_error(
                f"{error}; start the cluster with `trainerctl cluster start --name {parsed.name}`"
            )
            return 1
    return app.main(arguments)
