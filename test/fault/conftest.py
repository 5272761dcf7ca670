# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Trainer's kinds on a real API server that the tests break on purpose, and the manager as a process."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import (
    HOST,
    Authority,
    Binaries,
    Environment,
    eventually,
    free_ports,
    kubeconfig,
)
from controller_runtime.machinery import GVK, unstructured
from ctrl_testkit.faults import audit_log as audit_log
from ctrl_testkit.faults import client as client
from ctrl_testkit.faults import control_plane as control_plane
from ctrl_testkit.faults import namespace as namespace
from ctrl_testkit.faults import new_proxy as new_proxy
from ctrl_testkit.faults import outage_seconds as outage_seconds
from ctrl_testkit.faults import proxy as proxy
from ctrl_testkit.faults import writes as writes
from ctrl_testkit.processes import Process
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from pkg import shipped
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit.builders import crd_without_schema
from testkit.processes import is_ready, manager_flags, start_manager

POD_GROUPS = crd_without_schema("scheduling.x-k8s.io", "v1alpha1", "PodGroup")


@pytest.fixture(scope="session")
def trainer_crds(control_plane: Environment) -> list[dict[str, Any]]:
    """Install Trainer's CRDs, JobSet's and that of coscheduling's PodGroups in ``control_plane``; return them."""

    async def install() -> list[dict[str, Any]]:
        binaries = await Binaries().locate(JOBSET)
        found = [*manifests.crds(binaries[JOBSET.name]), POD_GROUPS]
        await control_plane.install_crds(*found)
        return found

    return anyio.run(install)


@pytest.fixture
async def make_runtime(
    trainer_crds: list[dict[str, Any]], client: LiveClient, namespace: str
) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Yield a function that creates copies of shipped runtimes; they and all TrainJobs are deleted after the test."""
    made: list[ClusterTrainingRuntime] = []

    async def make(original: str, name: str, **policies: Any) -> str:
        (found,) = [each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == original]
        found["metadata"]["name"] = name
        found["spec"] |= policies
        made.append(await client.create(ClusterTrainingRuntime.from_dict(found)))
        return name

    yield make
    for crd in trainer_crds:
        spec = crd["spec"]
        if spec["scope"] == "Namespaced":
            gvk = GVK(spec["group"], spec["versions"][0]["name"], spec["names"]["kind"])
            await client.delete_all_of(unstructured(gvk), namespace=namespace)
    for each in made:
        stored = await client.get(ClusterTrainingRuntime, each.key)
        stored.metadata.finalizers = None
        await client.delete(await client.update(stored))


class Ours:
    """The manager as a process of its own, with its log, memory and health."""

    def __init__(self, server: str, folder: Path, **configuration: Any) -> None:
        self.log = folder / "manager.log"
        self.webhook_port, self._health = free_ports(2)
        self.authority = Authority.create("test")
        self.authority.server("webhook", [HOST]).write(folder)
        self._flags = manager_flags(
            folder,
            kubeconfig(server, user="u"),
            health={"healthProbeBindAddress": f"{HOST}:{self._health}"},
            certManagement={"enable": False},
            webhook={"host": HOST, "port": self.webhook_port, "certDir": str(folder)},
            **configuration,
        )
        self._process: Process | None = None

    def start(self, *more: str) -> None:
        """Start the process with ``more`` arguments, also after it has ended."""
        self._process = start_manager([*self._flags, *more], self.log)

    async def ready(self) -> None:
        """Wait until it reports that it is ready."""
        await eventually(
            lambda: is_ready(self._health), timeout=60, reason=f"the manager is ready (see {self.log})"
        )

    @asynccontextmanager
    async def lag(self) -> AsyncIterator[list[float]]:
        """Probe ``/healthz`` on a new connection every 50 ms during the block; yield the list of the probes' delays.

        See :meth:`delay`.
        """
        latencies: list[float] = []

        async def probe() -> None:
            while True:
                delay = self.delay()
                reader, writer = await asyncio.open_connection(HOST, self._health)
                try:
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    await reader.read()
                finally:
                    writer.transport.abort()
                    with anyio.CancelScope(shield=True), suppress(OSError):
                        await writer.wait_closed()
                latencies.append(delay())
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(probe)
            yield latencies
            tasks.cancel_scope.cancel()

    def delay(self) -> Callable[[], float]:
        """Return a function that returns the seconds since now, less the time spent waiting for a processor.

        The event loops of the manager and of this process wait for a processor when the machine has other work. They
        may wait at the same time, so only the longer wait is subtracted.
        """
        assert self._process is not None
        loops = [Path("/proc/thread-self/schedstat").resolve(), Path(f"/proc/{self._process.pid}/schedstat")]
        began, before = time.monotonic(), [*map(waiting, loops)]

        def elapsed() -> float:
            waited = max(waiting(loop) - then for loop, then in zip(loops, before, strict=True))
            return time.monotonic() - began - waited

        return elapsed

    @property
    def running(self) -> bool:
        """True if the process runs."""
        return self._process is not None and self._process.runs

    def memory(self, what: str = "VmRSS") -> float:
        """Return the process's memory in MiB: ``VmRSS`` is the present value, ``VmHWM`` the largest so far."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith(f"{what}:")) / 1024

    def lines(self, text: str = "") -> int:
        """Return how many lines of the log contain ``text``."""
        return sum(text in line for line in self.log.read_text().splitlines())

    @property
    def errors(self) -> int:
        """Return the number of failed reconciles."""
        return self.lines("Reconciler error")

    def terminate(self) -> int:
        """Send SIGTERM to the process; return its exit code once it has ended."""
        assert self._process is not None
        return self._process.terminate()

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()


def waiting(schedstat: Path) -> float:
    """Return how long a thread has waited for a processor, in seconds."""
    return int(schedstat.read_text().split()[1]) / 1e9


@pytest.fixture
def new_manager(tmp_path: Path, trainer_crds: Any) -> Iterator[Callable[..., Ours]]:
    """Yield a function that creates managers for an API server's URL; they are killed after the test."""
    del trainer_crds
    made: list[Ours] = []

    def make(server: str, **configuration: Any) -> Ours:
        folder = tmp_path / f"manager-{len(made)}"
        folder.mkdir()
        made.append(Ours(server, folder, **configuration))
        return made[-1]

    yield make
    for each in made:
        each.kill()
