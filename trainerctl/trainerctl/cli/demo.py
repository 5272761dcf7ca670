# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl demo``: starts a temporary cluster, runs one TrainJob and prints each step that it reaches."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import file_lock
from controller_runtime.machinery import JSON, Object
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.why import LiveObject
from rich.live import Live
from rich.text import Text

from trainerctl.cli.cluster import announce
from trainerctl.cli.progress import progress_on
from trainerctl.cli.terminal import Console, columns
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.names import DEMO_NAME, state_directory
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

NAMESPACE: Final = "default"
NAME: Final = "hello-torch"
RUNTIME: Final = "torch-distributed"
_POLL: Final = 0.05


@dataclass(frozen=True)
class Observed:
    """The objects of the demo's TrainJob at one moment."""

    train_job: dict[str, JSON] = field(default_factory=dict)
    job_sets: list[dict[str, JSON]] = field(default_factory=list)
    jobs: list[dict[str, JSON]] = field(default_factory=list)
    pods: list[dict[str, JSON]] = field(default_factory=list)

    def steps(self, nodes: int) -> dict[str, bool]:
        """Return the steps in order. The value of a step is True if it has been reached."""
        phases = [(pod.get("status") or {}).get("phase") for pod in self.pods]
        return {
            "TrainJob created": bool(self.train_job),
            "JobSet created": bool(self.job_sets),
            "Job created": bool(self.jobs),
            f"{nodes} pods created": len(phases) >= nodes,
            f"{nodes} pods running": sum(phase in {"Running", "Succeeded"} for phase in phases) >= nodes,
            f"{nodes} pods succeeded": phases.count("Succeeded") >= nodes,
            "Job complete": bool(self.jobs) and all(LiveObject(job).is_true("Complete") for job in self.jobs),
            "JobSet completed": bool(self.job_sets)
            and all(LiveObject(job_set).is_true("Completed") for job_set in self.job_sets),
            "TrainJob complete": LiveObject(self.train_job).is_true("Complete"),
        }

    @property
    def failure(self) -> str:
        """The reason why the TrainJob failed. The text is empty if it has not failed."""
        job = LiveObject(self.train_job)
        failed = job.condition("Failed")
        return f"{failed.get('reason')}: {failed.get('message')}" if job.is_true("Failed") else ""

    @property
    def objects(self) -> list[dict[str, JSON]]:
        """All objects, from the TrainJob down."""
        return [each for each in [self.train_job, *self.job_sets, *self.jobs, *self.pods] if each]


@dataclass
class Milestones:
    """The time at which each step was first seen."""

    nodes: int
    clock: Callable[[], float] = time.monotonic
    taken: dict[str, float] = field(default_factory=dict)
    began: float = 0.0

    def begin(self) -> None:
        """Start the clock. Call this just before the TrainJob is created."""
        self.began = self.clock()

    def see(self, observed: Observed) -> None:
        """Record the current time for each step that ``observed`` shows as reached for the first time.

        The kinds are listed one after another, so ``observed`` may have the pods and not yet the JobSet: a step has
        been reached if a later one has.
        """
        now, reached = self.clock() - self.began, False
        for step, taken in reversed(observed.steps(self.nodes).items()):
            reached = reached or taken
            if reached:
                self.taken.setdefault(step, now)

    def times(self) -> dict[str, float | None]:
        """Return when each step was first seen, in seconds since :meth:`begin`. The order is that of the steps."""
        return {step: self.taken.get(step) for step in Observed().steps(self.nodes)}


def train_job(nodes: int) -> TrainJob:
    """Return the demo's TrainJob."""
    spec = {
        "runtimeRef": {"name": RUNTIME},
        "trainer": {
            "numNodes": nodes,
            "command": ["torchrun", "train.py"],
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}},
        },
    }
    return TrainJob.from_dict({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})


async def observe(client: LiveClient) -> Observed:
    """Return the objects of the TrainJob now."""

    async def listed(kind: type[Object]) -> list[dict[str, JSON]]:
        return [each.to_dict() for each in await client.list(kind, namespace=NAMESPACE)]

    found = await listed(TrainJob)
    return Observed(found[0] if found else {}, await listed(JobSet), await listed(Job), await listed(Pod))


def object_rows(observed: Observed) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, name, state and node of each object."""
    for each in observed.objects:
        obj = LiveObject(each)
        found = obj.maps("status", "conditions")
        true = [str(condition["type"]) for condition in found if condition.get("status") == "True"]
        state = obj.text("status", "phase") or (true[-1] if true else "")
        yield obj.kind, obj.name, state, obj.text("spec", "nodeName")


async def demo_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Run the demo; return 0 if the TrainJob completed, else 1."""
    began = time.monotonic()
    directory = state_directory(DEMO_NAME)

    def waiting() -> None:
        err.say("Another demo is running; waiting for it to end.")

    async with file_lock(directory.parent / f"{DEMO_NAME}.lock", waiting=waiting):
        nodes = max(4, parsed.nodes)
        options = Options(nodes=nodes, shape=NodeShape())
        if announce(options.tools, err):
            await preview(train_job(parsed.nodes), out)
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
            while not LiveObject(observed.train_job).is_true("Complete") and not observed.failure:
                observed = await observe(client)
                milestones.see(observed)
                live.update(_table(milestones))
                await anyio.sleep(_POLL)
    out.say()
    out.table(("KIND", "NAME", "STATE", "NODE"), object_rows(observed))
    if LiveObject(observed.train_job).is_true("Complete"):
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


async def preview(train_job: TrainJob, out: Console) -> None:
    """Print the output of ``trainerctl explain`` and ``trainerctl render`` for a TrainJob, without a cluster."""
    from trainerctl.cli import explain, render  # here: only a first run needs them
    from trainerctl.offline import inputfiles, rendering, trainjobs
    from trainerctl.offline.trace.trainjob import reviewed

    given = await trainjobs.prepare(inputfiles.read(["-"], stdin=json.dumps(train_job.to_dict()).encode()))
    out.say()
    out.say("Offline, as trainerctl explain and trainerctl render print it:")
    out.say()
    for subject in given.subjects:
        explain.print_text(await reviewed(given, subject), out)
        render.print_tables(await rendering.render(given, subject), out)
    out.file.flush()
