# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Thousands of TrainJobs run on the local cluster and are deleted; the manager must not grow meanwhile.

SOAK_JOBS is their number (2000), SOAK_MINUTES the time limit (20), SOAK_WAVE the number at a time (50).
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Namespace, Pod, ServiceAccount
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import Object
from controller_runtime.rest import Config, Request, Transport
from prometheus_client.parser import text_string_to_metric_families
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.components import MANAGER
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.state import State

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.builders import written_runtime, written_train_job

pytestmark = pytest.mark.soak
JOBS = int(os.environ.get("SOAK_JOBS", "2000"))
MINUTES = float(os.environ.get("SOAK_MINUTES", "20"))
WAVE = int(os.environ.get("SOAK_WAVE", "50"))
NAMESPACE = "soak"
GROWTH = 5.0
CONFLICT = "the object has been modified; please apply your changes to the latest version and try again"
MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """The manager's resources after a wave has been deleted."""

    rss: float
    files: int
    threads: int
    tasks: int
    depth: float


@dataclass
class Soak:
    """A run with its cluster, its manager and the samples."""

    cluster: Cluster
    client: LiveClient
    process: psutil.Process
    samples: list[Sample] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)

    async def sample(self) -> Sample:
        """Return the resources of the manager, which should be idle now."""
        depth, tasks = await self._series()
        with self.process.oneshot():
            return Sample(
                self.process.memory_info().rss / MIB,
                self.process.num_fds(),
                self.process.num_threads(),
                int(tasks),
                depth,
            )

    async def _series(self) -> tuple[float, float]:
        state = State.read(self.cluster.directory)
        assert state is not None
        server, _, path = state.metrics.rpartition("/")
        async with Transport(Config(server)) as transport:
            response = await transport.send(Request("GET", f"/{path}"))
            text = (await response.read()).decode()
        found = {family.name: family.samples for family in text_string_to_metric_families(text)}
        return sum(each.value for each in found["workqueue_depth"]), found["python_asyncio_tasks"][0].value

    async def wave(self, number: int) -> None:
        """Create TrainJobs, wait until they end, and delete them; one in ten fails, and one in ten starts suspended."""
        names = [f"job-{number}-{index}" for index in range(min(WAVE, JOBS - number * WAVE))]
        fates = {name: index % 10 for index, name in enumerate(names)}
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(self.client.create, train_job(name, fates[name]))

        async def suspended() -> bool:
            return all([self._is(await self._get(name), "Suspended") for name in names if fates[name] == 1])

        await eventually(
            suspended,
            timeout=120,
            interval=0.5,
            reason="the TrainJobs that start suspended have the condition",
        )
        for name in names:
            if fates[name] == 1:
                await self.client.patch(
                    await self._get(name), raw_patch(MERGE, b'{"spec":{"suspend":false}}')
                )
        left = set(names)

        async def ended() -> bool:
            for job in await self.client.list(TrainJob, namespace=NAMESPACE):
                wanted = "Failed" if fates.get(job.name) == 0 else "Complete"
                if job.name in left and self._is(job, wanted):
                    left.discard(job.name)
                    self.lives.append(time.monotonic() - began)
            return not left

        await eventually(ended, timeout=300, interval=0.5, reason=f"wave {number} ended")
        await self.client.delete_all_of(TrainJob, namespace=NAMESPACE)
        await eventually(
            self._gone, timeout=300, interval=0.5, reason=f"every object of wave {number} is deleted"
        )

        async def idle() -> bool:
            return (await self._series())[0] == 0

        await eventually(idle, timeout=60, interval=0.5, reason="the manager's queues are empty")

    async def _gone(self) -> bool:
        kinds: tuple[type[Object], ...] = (TrainJob, JobSet, Job, Pod)
        return not any([await self.client.list(kind, namespace=NAMESPACE) for kind in kinds])

    async def _get(self, name: str) -> TrainJob:
        return await self.client.get(TrainJob, (NAMESPACE, name))

    @staticmethod
    def _is(job: TrainJob, condition: str) -> bool:
        return any(each.type == condition and each.status == "True" for each in job.status.conditions or ())


def train_job(name: str, fate: int) -> TrainJob:
    annotations = {"sim.local/run-for": "200ms", **({"sim.local/exit-code": "1"} if fate == 0 else {})}
    overrides = [{"targetJobs": [{"name": "node"}], "metadata": {"annotations": annotations}}]
    return written_train_job(
        NAMESPACE, "runtime", name=name, podTemplateOverrides=overrides, suspend=fate == 1
    )


def runtime() -> TrainingRuntime:
    """Return a runtime like torch-distributed whose Jobs fail at once."""
    policy = {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}
    return written_runtime(NAMESPACE, job={"backoffLimit": 0}, mlPolicy=policy)


def errors(log: Path) -> list[str]:
    """Return the errors of the log, and lines that are not log records."""
    found = []
    for line in log.read_text().splitlines():
        try:
            level = json.loads(line)["level"]
        except (json.JSONDecodeError, KeyError, TypeError):
            level = "error"
        if level not in {"info", "debug"}:
            found.append(line)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", Options(nodes=8), tied=True)
    anyio.run(made.up)
    yield made
    made.supervisor.check()
    made.kill()


@pytest.mark.timeout(MINUTES * 60 + 180)
async def test_the_manager_is_the_same_after_thousands_of_train_jobs(
    cluster: Cluster, figure: Callable[..., None], pytestconfig: Any
) -> None:
    pid = cluster.supervisor.processes[MANAGER].identity.pid
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    began = time.monotonic()
    async with cluster.client() as client:
        await client.create(Namespace.from_dict({"metadata": {"name": NAMESPACE}}))
        await eventually(
            lambda: client.get(ServiceAccount, (NAMESPACE, "default")), reason="pods can be made"
        )
        await client.create(runtime())
        soak = Soak(cluster, client, psutil.Process(pid))
        with anyio.fail_after(MINUTES * 60):
            for number in range(-(-JOBS // WAVE)):
                await soak.wave(number)
                soak.samples.append(await soak.sample())
                reporter.write_line(
                    f"{(number + 1) * WAVE:5} {soak.samples[-1]} {time.monotonic() - began:6.0f} s"
                )
    took = time.monotonic() - began
    count = len(soak.samples)
    assert count >= 3, "there must be at least three waves"
    around = slice(max(0, count // 2 - 2), count // 2 + 2)
    middle, end = soak.samples[around], soak.samples[-4:]

    def of(samples: list[Sample], name: str) -> float:
        return float(statistics.median(getattr(each, name) for each in samples))

    growth = 100 * (of(end, "rss") / of(middle, "rss") - 1)
    figure(f"{JOBS} TrainJobs through their whole life", took, at_most=MINUTES * 60)
    figure("median TrainJob from create to its end, in a wave", statistics.median(soak.lives), at_most=300)
    figure("RSS in the middle", of(middle, "rss"), at_most=200, unit="MiB")
    figure("RSS at the end", of(end, "rss"), at_most=200, unit="MiB")
    figure("RSS, the end above the middle", growth, at_most=GROWTH, unit="%")
    for name in ("files", "threads", "tasks"):
        figure(f"{name} at the end above the middle", of(end, name) - of(middle, name), at_most=0, unit=name)
    logged = errors(cluster.directory / "logs" / f"{MANAGER}.log")
    found = [line for line in logged if CONFLICT not in line]
    figure(
        "conflicts with another's write, tried again",
        len(logged) - len(found),
        at_most=JOBS / 20,
        unit="lines",
    )
    figure(
        "unhandled errors in the log", len(found), at_most=0, unit=f"lines {found[:3]}" if found else "lines"
    )
