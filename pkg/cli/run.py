# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl run``: the manager in the foreground, against the local cluster or a kubeconfig."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pkg.cli.arguments import Parser
from pkg.localcluster import DEFAULT_NAME, Cluster, state_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the flags of ``run``; all others are the manager's own."""
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"the local cluster to work in ({DEFAULT_NAME})")
    parser.add_argument("--kubeconfig", help="work in this cluster instead, with this file's rights")
    parser.epilog = (
        "Every other flag is passed to trainer-controller-manager. With --kubeconfig it runs with --webhooks=false, because the "
        "API server of that cluster cannot reach this machine; --webhooks serves them."
    )


def main(argv: Sequence[str]) -> int:
    """Run the manager with the flags that fit the cluster; return its exit code."""
    from pkg import app  # here, because it loads every controller

    parser = Parser(
        prog="trainerctl run", description="Run the manager against a local cluster or a kubeconfig."
    )
    add_arguments(parser)
    chosen, rest = parser.parse_known_args(list(argv))
    if chosen.kubeconfig:
        return app.main([f"--kubeconfig={chosen.kubeconfig}", "--webhooks=false", *rest])
    cluster = Cluster(state_directory(chosen.name))
    if not cluster.kubeconfig.exists():
        sys.stderr.write(
            f"trainerctl: there is no cluster {chosen.name}; make one with "
            "`trainerctl cluster up --without-manager`, or name another with --kubeconfig\n"
        )
        return 1
    return app.main([*cluster.manager_arguments, *rest])
