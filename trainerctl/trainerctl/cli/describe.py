# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl describe``: one page about a TrainJob, with its objects, the reasons for its state, and its events."""

from __future__ import annotations

import argparse
import dataclasses

from pkg.why import Snapshot, diagnose, runtime_of

from trainerctl.cli import events, get, live, trainerstatus, why
from trainerctl.cli.terminal import Console


async def describe_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the page; the exit code does not depend on the state of the TrainJob.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        snapshot = await cluster.snapshot(arguments.name)
    print_page(snapshot, out)
    return 0


def print_page(snapshot: Snapshot, out: Console) -> None:
    """Print the state, the progress, the objects and the events of a TrainJob."""
    why.print_text(diagnose(snapshot), out)
    out.say()
    out.say(("Runtime", "bold"), f"  {runtime_of(snapshot.train_job)}")
    if (report := trainerstatus.report_of(snapshot.train_job)) is not None:
        out.say()
        out.say(("Progress", "bold"), f"  {dataclasses.replace(report, metrics=()).aged(snapshot.now)}")
        if report.metrics:
            out.table(("  METRIC", "VALUE"), [(f"  {name}", value) for name, value in report.metrics])
    out.say()
    out.say(("Objects", "bold"))
    get.print_tree(snapshot, out)
    if found := events.of_all(snapshot):
        out.say()
        out.say(("Events", "bold"))
        events.print_table(snapshot, found, out)
