# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl demo``: a throwaway cluster, one TrainJob, and its way to Complete as it happens."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client import LiveClient
from controller_runtime.envtest.locks import file_lock
from rich.live import Live
from rich.text import Text

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.cli.progress import progress_on
from pkg.cli.terminal import Console, columns
from pkg.localcluster.cluster import Cluster, Options
from pkg.localcluster.names import DEMO_NAME, state_directory
from pkg.localcluster.nodes import NodeShape

NAMESPACE: Final = "default"
NAME: Final = "hello-torch"
RUNTIME: Final = "torch-distributed"
_POLL: Final = 0.05


@dataclass(frozen=True)
class Sight:
    """What is there of a TrainJob at one moment."""

    train_job: dict[str, Any] = field(default_factory=dict)
    job_sets: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)

    def steps(self, nodes: int) -> dict[str, bool]:
        """Return the steps from TrainJob to Complete, in order, and whether each has been taken."""
        phases = [(pod.get("status") or {}).get("phase") for pod in self.pods]
        return {
            "TrainJob created": bool(self.train_job),
            "JobSet created": bool(self.job_sets),
            "Job created": bool(self.jobs),
            f"{nodes} pods created": len(phases) >= nodes,
            f"{nodes} pods running": sum(phase in {"Running", "Succeeded"} for phase in phases) >= nodes,
            f"{nodes} pods succeeded": phases.count("Succeeded") >= nodes,
            "Job complete": bool(self.jobs) and all(has_condition(job, "Complete") for job in self.jobs),
            "JobSet completed": bool(self.job_sets)
            and all(has_condition(job_set, "Completed") for job_set in self.job_sets),
            "TrainJob complete": has_condition(self.train_job, "Complete"),
        }

    @property
    def failure(self) -> str:
        """Why the TrainJob failed; empty while it has not."""
        for condition in conditions(self.train_job):
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                return f"{condition.get('reason')}: {condition.get('message')}"
        return ""

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Everything that was made, from the TrainJob down."""
        return [each for each in [self.train_job, *self.job_sets, *self.jobs, *self.pods] if each]


@dataclass
class Walk:
    """When each step was first seen taken."""

    nodes: int
    clock: Callable[[], float] = time.monotonic
    taken: dict[str, float] = field(default_factory=dict)
    began: float = 0.0

    def begin(self) -> None:
        """Start the clock: the TrainJob is about to be created."""
        self.began = self.clock()

    def see(self, sight: Sight) -> None:
        """Note the steps that are new in ``sight``."""
        for step, taken in sight.steps(self.nodes).items():
            if taken:
                self.taken.setdefault(step, self.clock() - self.began)

    def table(self) -> Text:
        """Return the steps with their times."""
        steps = Sight().steps(self.nodes)
        times = {step: f"{self.taken[step]:6.2f} s" if step in self.taken else "" for step in steps}
        rows = [(f"{'✓' if times[step] else '·'} {step}", times[step]) for step in steps]
        lines = Text("\n").join(columns(("STEP", "AFTER"), rows))
        lines.highlight_regex(r"(?m)^✓", "green")
        lines.highlight_regex(r"(?m)^·", "dim")
        return lines


def conditions(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an object's conditions."""
    return (manifest.get("status") or {}).get("conditions") or []


def has_condition(manifest: dict[str, Any], kind: str) -> bool:
    """Tell whether a condition is True."""
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions(manifest))


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


async def demo_command(parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Run the demo; return 0 when the TrainJob completed."""
    began = time.monotonic()
    directory = state_directory(DEMO_NAME)

    def waiting() -> None:
        err.say("Another demo is running; waiting for it to end.")

    async with file_lock(directory.parent / f"{DEMO_NAME}.lock", waiting=waiting):
        nodes = max(4, parsed.nodes)
        options = Options(nodes=nodes, shape=NodeShape())
        with progress_on(err) as progress:
            cluster = Cluster(directory, options, tied=True, progress=progress)
            await cluster.up()
        up = time.monotonic() - began
        try:
            async with cluster.supervisor.watching(), cluster.client() as client:
                completed = await _train(client, parsed, out, err)
        except Exception:
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
    out.say(f"\nCluster up after {up:.1f} s, all done and cleaned up after {total:.1f} s.")
    return 0


async def _train(client: LiveClient, parsed: argparse.Namespace, out: Console, err: Console) -> bool:
    walk = Walk(parsed.nodes)
    out.say(f"\nTrainJob {NAMESPACE}/{NAME}: {parsed.nodes} nodes, runtime {RUNTIME}\n")
    walk.begin()
    await client.create(train_job(parsed.nodes))
    sight = Sight()
    with Live(walk.table(), console=out, refresh_per_second=10) as live:
        with anyio.move_on_after(parsed.timeout):
            while not has_condition(sight.train_job, "Complete") and not sight.failure:
                sight = await look(client)
                walk.see(sight)
                live.update(walk.table())
                await anyio.sleep(_POLL)
    out.say()
    out.table(("KIND", "NAME", "STATE", "NODE"), created(sight))
    if has_condition(sight.train_job, "Complete"):
        took = walk.taken["TrainJob complete"]
        out.say(f"\nTrainJob {NAME} is ", ("Complete", "green"), f", {took:.1f} s after it was created.")
        return True
    why = sight.failure or f"it is not Complete after {parsed.timeout:g} s"
    err.say((f"\nTrainJob {NAME} did not complete: {why}", "red"))
    for event in await client.list(Event, namespace=NAMESPACE):
        err.say(f"  event {event.reason}: {event.message}")
    return False


async def look(client: LiveClient) -> Sight:
    """Return what is there of the TrainJob now."""

    async def listed(kind: type[Object]) -> list[dict[str, Any]]:
        return [each.to_dict() for each in await client.list(kind, namespace=NAMESPACE)]

    found = await listed(TrainJob)
    return Sight(found[0] if found else {}, await listed(JobSet), await listed(Job), await listed(Pod))


def created(sight: Sight) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, name, state and node of each object."""
    for each in sight.objects:
        status = each.get("status") or {}
        true = [str(condition["type"]) for condition in conditions(each) if condition.get("status") == "True"]
        state = status.get("phase") or (true[-1] if true else "")
        yield each["kind"], each["metadata"]["name"], state, (each.get("spec") or {}).get("nodeName", "")
