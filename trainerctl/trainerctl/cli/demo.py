# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl demo``: a temporary cluster, one TrainJob, and its milestones as they are reached."""

from __future__ import annotations

import argparse
import time
from typing import Final

import anyio
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import file_lock
from rich.live import Live
from rich.text import Text

from trainerctl.cli import firstrun
from trainerctl.cli.progress import progress_on
from trainerctl.cli.terminal import Console, columns
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.milestones import (
    NAME,
    NAMESPACE,
    RUNTIME,
    Milestones,
    Observed,
    created,
    has_condition,
    observe,
    train_job,
)
from trainerctl.localcluster.names import DEMO_NAME, state_directory
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

_POLL: Final = 0.05


async def demo_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Run the demo; return 0 when the TrainJob completed."""
    began = time.monotonic()
    directory = state_directory(DEMO_NAME)

    def waiting() -> None:
        err.say("Another demo is running; waiting for it to end.")

    async with file_lock(directory.parent / f"{DEMO_NAME}.lock", waiting=waiting):
        nodes = max(4, parsed.nodes)
        options = Options(nodes=nodes, shape=NodeShape())
        if firstrun.announce(options.tools, err):
            await firstrun.preview(train_job(parsed.nodes), out)
        with progress_on(err) as progress:
            cluster = Cluster(directory, options, tied=True, progress=progress)
            await cluster.up()
        up = time.monotonic() - began
        try:
            async with cluster.supervisor.watching(), cluster.client() as client:
                completed = await _train(client, parsed, out, err)
        except Exception:  # raised again; a failed demo keeps its logs, a cancelled one keeps nothing
            cluster.kill(keep_logs=True)
            raise
        except BaseException:
            cluster.kill()
            raise
        if not completed:
            cluster.kill(keep_logs=True)
            err.say(f"Logs: {directory / 'logs'}")
            return 1
        cluster.kill()
    total = time.monotonic() - began
    out.say()
    out.say(f"Cluster up after {up:.1f} s, all done and cleaned up after {total:.1f} s.")
    return 0


async def _train(client: LiveClient, parsed: argparse.Namespace, out: Console, err: Console) -> bool:
    milestones = Milestones(parsed.nodes)
    out.say()
    out.say(f"TrainJob {NAMESPACE}/{NAME}: {parsed.nodes} nodes, runtime {RUNTIME}")
    out.say()
    milestones.begin()
    await client.create(train_job(parsed.nodes))
    observed = Observed()
    with Live(_table(milestones), console=out, refresh_per_second=10) as live:
        with anyio.move_on_after(parsed.timeout):
            while not has_condition(observed.train_job, "Complete") and not observed.failure:
                observed = await observe(client)
                milestones.see(observed)
                live.update(_table(milestones))
                await anyio.sleep(_POLL)
    out.say()
    out.table(("KIND", "NAME", "STATE", "NODE"), created(observed))
    if has_condition(observed.train_job, "Complete"):
        took = milestones.taken["TrainJob complete"]
        out.say()
        out.say(f"TrainJob {NAME} is ", ("Complete", "green"), f", {took:.1f} s after it was created.")
        return True
    why = observed.failure or f"not Complete after {parsed.timeout:g} s"
    err.say()
    err.say((f"TrainJob {NAME} did not complete: {why}", "red"))
    for event in await client.list(Event, namespace=NAMESPACE):
        err.say(f"  event {event.reason}: {event.message}")
    return False


def _table(milestones: Milestones) -> Text:
    rows = [
        (f"{'·' if at is None else '✓'} {step}", "" if at is None else f"{at:6.2f} s")
        for step, at in milestones.times().items()
    ]
    lines = Text("\n").join(columns(("STEP", "AFTER"), rows))
    lines.highlight_regex(r"(?m)^✓", "green")
    lines.highlight_regex(r"(?m)^·", "dim")
    return lines
