# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl run``: runs the manager in the foreground. It connects to a local cluster, or to the cluster of a
kubeconfig.
"""

from __future__ import annotations

import argparse

from pkg import app

from trainerctl.cli import streams
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.names import state_directory


def run_command(parsed: argparse.Namespace) -> int:
    """Run the manager and return its exit code. It gets the flags for the cluster and the flags in ``parsed.rest``."""
    if parsed.kubeconfig:
        return app.main([f"--kubeconfig={parsed.kubeconfig}", "--webhooks=false", *parsed.rest])
    cluster = Cluster(state_directory(parsed.name))
    if not cluster.kubeconfig.exists():
        streams.say_error(
            f"cluster {parsed.name} does not exist; create it with `trainerctl cluster up --without-manager`, "
            "or name another cluster with --name or --kubeconfig"
        )
        return 1
    return app.main([*cluster.manager_arguments, *parsed.rest])
