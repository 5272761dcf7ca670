# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A program under test as a child process: its start, its readiness, its use of resources, and its end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import psutil
import yaml
from controller_runtime.envtest import Probe, free_ports, select_namespaces
from controller_runtime.machinery.errors import StatusError
from harness import objects
from harness.cluster import Cluster, empty
from harness.interpreter import ROOT
from harness.plan import Entrant
from trainerctl.localcluster import manifests

_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_REFUSAL: Final = "must be created before"
_MIB: Final = 1024.0
_LOOK: Final = 0.25
_BUSY: Final = 0.1
"""CPU seconds within ``_LOOK`` that count as work; garbage collections and upkeep need less."""
Answer = TypeVar("Answer")


class ManagerError(Exception):
    """A program under test ended by itself, or did not do its work in time."""


class Memory:
    """Resident memory in MiB: the current amount and the peak."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        self.now = self.peak = 0.0
        for each in processes:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for line in Path(f"/proc/{each.pid}/status").read_text(encoding="ascii").splitlines():
                    name, _, value = line.partition(":")
                    if name == "VmRSS":
                        self.now += int(value.split()[0]) / _MIB
                    elif name == "VmHWM":
                        self.peak += int(value.split()[0]) / _MIB


class Manager:
    """A manager, or a pod grouper, that :func:`running` started."""

    def __init__(self, entrant: Entrant, cluster: Cluster, folder: Path, *, grouper: bool) -> None:
        self.name = entrant.name
        self.cluster = cluster
        self._folder = folder
        self.port, self._health, metrics = free_ports(3)
        health = f"127.0.0.1:{self._health}"
        config = folder / "config.yaml"
        config.write_text(
            yaml.safe_dump(_configuration(self.port, health, metrics, entrant, grouper=grouper))
        )
        cluster.authority.server("webhooks", ["127.0.0.1"]).write(
            folder / "k8s-webhook-server" / "serving-certs"
        )
        filled = {"{config}": str(config), "{health}": health, "{metrics}": f"127.0.0.1:{metrics}"}
        argv = shlex.split(entrant.command)
        for what, value in filled.items():
            argv = [each.replace(what, value) for each in argv]
        python_path = map(str, (ROOT, ROOT / "controller-runtime", ROOT / "trainerctl"))
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(python_path),
            "KUBECONFIG": str(cluster.kubeconfig),
            "TMPDIR": str(folder),
        }
        with self._log.open("ab") as log:
            self.began = time.perf_counter()
            self._process = psutil.Popen(
                argv, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def processes(self) -> list[psutil.Process]:
        """Return the process and its children."""
        return [self._process, *self._process.children(recursive=True)]

    def memory(self) -> Memory:
        """Return the resident memory."""
        return Memory(self.processes())

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        return sum(cpu_of(each) for each in self.processes())

    async def ready(self) -> float:
        """Wait until the program reports that it is ready; return the seconds since its start.

        Raises:
            ManagerError: it is not ready within a minute, or has ended.
        """
        health = Probe(f"http://127.0.0.1:{self._health}/readyz")

        async def asked() -> float:
            while await health.answer(None) != "200":  # noqa: ASYNC110 a process has no event
                await anyio.sleep(0.01)
            return time.perf_counter() - self.began

        return await self.within(60, asked())

    async def within(self, seconds: float, waited_for: Awaitable[Answer]) -> Answer:
        """Return the result of ``waited_for``.

        Raises:
            ManagerError: it takes longer than ``seconds``, or the program ends before.
        """
        answer: list[Answer] = []
        ended = False

        async def watch() -> None:
            nonlocal ended
            while self._process.poll() is None:  # noqa: ASYNC110 a process has no event
                await anyio.sleep(0.25)
            ended = True
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            with anyio.move_on_after(seconds):
                answer.append(await waited_for)
            tasks.cancel_scope.cancel()
        if answer:
            return answer[0]
        why = f"ended with {self._process.returncode}" if ended else f"was not done within {seconds:.0f} s"
        raise ManagerError(f"{self.name} {why}:\n{self._tail()}")

    async def settled(self, quiet: float) -> float:
        """Wait until the program has been idle for ``quiet`` seconds; return the time of its last work or request."""
        last, cpu, sent = time.perf_counter(), self.cpu(), self.cluster.audited()
        while time.perf_counter() - last < quiet:
            await anyio.sleep(_LOOK)
            new_cpu, new_sent = self.cpu(), self.cluster.audited()
            if new_cpu - cpu > _BUSY or new_sent != sent:
                last = time.perf_counter()
            cpu, sent = new_cpu, new_sent
        return last

    async def alive(self) -> None:
        """Send a liveness probe, and wait for the answer."""
        await Probe(f"http://127.0.0.1:{self._health}/healthz").answer(None)

    def pause(self) -> None:
        """Suspend the processes until :meth:`resume`."""
        for each in self.processes():
            each.suspend()

    def resume(self) -> None:
        """Resume the processes."""
        for each in self.processes():
            each.resume()

    @asynccontextmanager
    async def asked(self, namespaces: Sequence[str] = (objects.NAMESPACE,)) -> AsyncIterator[None]:
        """During the body, let the API server call this manager's webhooks for objects of the namespaces.

        Both webhooks are configured, but no TrainJob meets the condition of the mutating one: Trainer v2.1 has no
        mutating webhook.
        """
        url = f"https://127.0.0.1:{self.port}"
        api, made = self.cluster.api, list[str]()
        try:
            for each in manifests.trainer_webhooks(url, self.cluster.authority.certificate):
                hooks, kind = select_namespaces(each, list(namespaces)), f"{each['kind'].lower()}s"
                await api.send("POST", f"{_HOOKS}/{kind}", hooks)
                made.append(f"{_HOOKS}/{kind}/{hooks['metadata']['name']}")
            await self.within(30, self._refuses(True))
            yield
        finally:
            with anyio.CancelScope(shield=True):
                for path in made:
                    await api.send("DELETE", path)
                await self.within(30, self._refuses(False))

    async def _refuses(self, wanted: bool) -> None:
        bad = objects.train_job("refused", "nowhere")
        while True:
            refused: bool | None = False
            try:
                await self.cluster.api.send("POST", objects.TRAIN_JOBS, bad, query={"dryRun": "All"})
            except StatusError as error:
                refused = True if _REFUSAL in str(error) else None
            if refused is wanted:
                return
            await anyio.sleep(0.05)

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    async def stop(self) -> None:
        """End the program by SIGTERM, and by SIGKILL if it has not ended after 30 s."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(30):
            while self._process.poll() is None:  # noqa: ASYNC110 a process has no event
                await anyio.sleep(0.05)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@asynccontextmanager
async def running(entrant: Entrant, cluster: Cluster, *, grouper: bool = False) -> AsyncIterator[Manager]:
    """Run a program under test during the body; at first it may not be ready yet."""
    with tempfile.TemporaryDirectory(prefix=f"{entrant.name}-", dir=cluster.folder) as folder:
        manager = Manager(entrant, cluster, Path(folder), grouper=grouper)
        try:
            yield manager
        finally:
            with anyio.CancelScope(shield=True):
                await manager.stop()


@asynccontextmanager
async def started(entrant: Entrant, cluster: Cluster) -> AsyncIterator[Manager]:
    """Run a program on an empty cluster as :func:`running` does; it is ready when the body begins."""
    await empty(cluster)
    async with running(entrant, cluster) as manager:
        await manager.ready()
        yield manager


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used; 0 if the process does not exist any more."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _configuration(
    port: int, health: str, metrics: int, entrant: Entrant, *, grouper: bool
) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}", "secureServing": False},
        "webhook": {"host": "127.0.0.1", "port": port},
        "leaderElection": {"leaderElect": False},
        "controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5}},
        "certManagement": {"enable": False},
        "clientConnection": {"qps": 1000, "burst": 2000},  # limits that no manager reaches
    }
    if entrant.ours:
        configuration["notStartedAfter"] = (
            "1h"  # JobSets never start here, and on a slow machine events would report that
        )
    if grouper:
        configuration["podGrouper"] = {
            "enable": True,
            "schedulerName": "kai-scheduler",
            "maxConcurrentReconciles": 10,
            "rules": "v0.13",  # the rules of the Go grouper that is measured beside it
        }
    return configuration
