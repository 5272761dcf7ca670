# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run the shipped manager as a process whose requests pass the proxy, and measure it from outside."""

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Authority, eventually, free_ports, kubeconfig
from controller_runtime.rest import Config, Request, Transport, TransportError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_train_job

ROOT = Path(__file__).parents[3]


class Ours:
    """The manager as a process of its own, with its log, memory and health."""

    def __init__(self, server: str, folder: Path, **configuration: Any) -> None:
        self.log = folder / "manager.log"
        self.folder = folder
        self.webhook_port, health = free_ports(2)
        self.health_url = f"http://127.0.0.1:{health}"
        self.authority = Authority.create("test")
        self.authority.server("webhook", ["127.0.0.1"]).write(folder)
        config = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "clientConnection": {"qps": -1},
            "certManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": self.webhook_port, "certDir": str(folder)},
            **configuration,
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(server, user="u")))
        (folder / "kubeconfig").chmod(0o600)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the process with ``more`` arguments, also after it has ended."""
        program = ROOT / "cmd" / "trainer-controller-manager" / "main.py"
        arguments = [
            f"--config={self.folder / 'config.yaml'}",
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            *more,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    async def ready(self) -> None:
        """Wait until it reports that it is ready."""
        await eventually(
            lambda: self.health("readyz"), timeout=60, reason=f"the manager is ready (see {self.log})"
        )

    async def health(self, name: str) -> bool:
        """Return True if a probe succeeds."""
        async with Transport(Config(self.health_url)) as transport:
            try:
                answer = await transport.send(Request("GET", f"/{name}"))
                await answer.read()
            except TransportError:
                return False
            return answer.status == 200

    @asynccontextmanager
    async def lag(self) -> AsyncIterator[list[float]]:
        """Probe ``/healthz`` on a new connection every 50 ms during the block; yield the list of the probes' delays.

        See :meth:`delay`.
        """
        latencies: list[float] = []

        async def probe() -> None:
            while True:
                delay = self.delay()
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", int(self.health_url.rpartition(":")[2])
                )
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
        return self._process is not None and self._process.poll() is None

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

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        assert self._process is not None
        self._process.terminate()

    def wait(self) -> int:
        """Wait until the process has ended; return its exit code."""
        assert self._process is not None
        return self._process.wait(timeout=60)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


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


@pytest.fixture
async def ours(new_manager: Callable[..., Ours], proxy: Any) -> Ours:
    """Start a manager behind the proxy; return it once it is ready."""
    manager = new_manager(proxy.url)
    manager.start()
    await manager.ready()
    return manager


@pytest.fixture
def train(
    client: LiveClient, namespace: str, make_runtime: Callable[..., Awaitable[str]]
) -> Callable[..., Awaitable[TrainJob]]:
    """Return a function that creates a TrainJob of a runtime that only this test uses."""
    runtime: list[str] = []

    async def create(name: str, **spec: Any) -> TrainJob:
        if not runtime:
            runtime.append(f"torch-{namespace}")
            await make_runtime("torch-distributed", runtime[0])
        return await client.create(
            written_train_job(namespace, runtime[0], name=name, kind="ClusterTrainingRuntime", **spec)
        )

    return create


@pytest.fixture
def served(client: LiveClient, namespace: str) -> Callable[[], Awaitable[bool]]:
    """Return a function that returns True if every TrainJob of the namespace has its JobSet."""

    async def check() -> bool:
        jobs = {each.name for each in await client.list(TrainJob, namespace=namespace)}
        return bool(jobs) and jobs == {each.name for each in await client.list(JobSet, namespace=namespace)}

    return check


@dataclasses.dataclass(frozen=True)
class World:
    """A ready manager, the namespace of its TrainJobs, and the proxy between it and the API server."""

    client: LiveClient
    namespace: str
    proxy: Any
    ours: Ours
    train: Callable[..., Awaitable[TrainJob]]
    served: Callable[[], Awaitable[bool]]

    async def begin(self, *names: str) -> list[TrainJob]:
        """Create TrainJobs and wait until each has its JobSet."""
        jobs = [await self.train(name) for name in names]
        await self.settled(timeout=30)
        return jobs

    async def settled(self, *, timeout: float) -> None:
        """Wait until every TrainJob has its JobSet."""
        await eventually(self.served, timeout=timeout, reason="every TrainJob has its JobSet")


@pytest.fixture
def world(
    client: LiveClient,
    namespace: str,
    proxy: Any,
    ours: Ours,
    train: Callable[..., Awaitable[TrainJob]],
    served: Callable[[], Awaitable[bool]],
) -> World:
    return World(client, namespace, proxy, ours, train, served)
