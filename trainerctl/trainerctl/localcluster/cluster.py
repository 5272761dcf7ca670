# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Starts and stops a cluster. The control plane, JobSet, simulated nodes and our manager are processes on loopback."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from controller_runtime.client import LiveClient
from controller_runtime.envtest import (
    HOST,
    Binaries,
    Binary,
    ControlPlane,
    EnvtestError,
    Progress,
    Supervisor,
    apply_manifests,
    private_directory,
)
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import RESTMapper, Transport, load_config

from trainerctl.localcluster import manifests, state
from trainerctl.localcluster.components import MANAGER, Parts, Ports, api_server_flags
from trainerctl.localcluster.installer import FIELD_OWNER, Installer
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.restart import restart

NEEDED_BYTES: Final = 256 << 20
# The controllers are stopped first, concurrently, then the API server, then etcd.
_LAST: Final = ("kube-apiserver", "etcd")


class Cluster:
    """The cluster whose files are in ``directory``.

    A ``tied`` cluster ends when this process ends. Other clusters keep running until `stop` or `down` is called.
    """

    def __init__(
        self,
        directory: Path,
        options: Options | None = None,
        *,
        tied: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.directory = directory
        self.options = options or Options()
        self._progress = progress or Progress()
        self._tied = tied
        self._supervisor: Supervisor | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    @property
    def manager_arguments(self) -> list[str]:
        """The manager's flags for this cluster. With them, the manager has the permissions of the shipped roles."""
        config, kubeconfig = self.directory / f"{MANAGER}.yaml", self.directory / f"{MANAGER}.kubeconfig"
        return [f"--config={config}", f"--kubeconfig={kubeconfig}"]

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the cluster's processes.

        It also supervises processes that an earlier command has started.
        """
        if self._supervisor is None:
            private_directory(self.directory)
            self._supervisor = Supervisor(self.directory, tied=self._tied)
            self._supervisor.adopt()
        return self._supervisor

    async def up(self) -> None:
        """Replace the directory's content with a new cluster, and return when it accepts TrainJobs.

        An existing cluster is not changed until all programs are built. If the new cluster then fails to start, its
        processes are ended and only the logs are kept. If the start is cancelled, nothing is kept.

        Raises:
            EnvtestError: the options contradict each other, the disk has too little space, or the cluster is not up
                in time.
            ToolError: a program is missing and cannot be built.
            ComponentError: a component failed; the error names its log.
        """
        self.options.check()
        _require_space(self.directory)
        located = await Binaries(progress=self._progress).locate(*self.options.tools)
        left = self.supervisor.end_leftovers() if self.directory.exists() else []
        if left:
            self._progress.update("leftovers", detail=f"ended {', '.join(left)}")
        shutil.rmtree(self.directory, ignore_errors=True)
        self._supervisor = Supervisor(private_directory(self.directory), tied=self._tied)
        try:
            with anyio.fail_after(self.options.timeout):
                await self._start(located)
        except TimeoutError as error:
            self.kill(keep_logs=True)
            raise EnvtestError(
                f"the cluster is not ready after {self.options.timeout:g} s; logs: {self.directory / 'logs'}"
            ) from error
        except Exception:  # raised again; a failed start keeps its logs, a cancelled one keeps nothing
            self.kill(keep_logs=True)
            raise
        except BaseException:
            self.kill()
            raise

    async def restart(self) -> list[str]:
        """Restart the components that have ended, and return their names. The objects are kept.

        If this call fails or is cancelled, the components that it has started are killed.

        Raises:
            ComponentError: a component does not start; the error names its log.
            EnvtestError: the cluster's state cannot be read, or the cluster is not up in time.
        """
        kept = state.State.read(self.directory)
        if kept is None:
            raise EnvtestError(f"{self.directory} was written by another version and cannot be started again")
        try:
            with anyio.fail_after(self.options.timeout):
                return await restart(self.directory, kept, self.supervisor, timeout=self.options.timeout)
        except TimeoutError as error:
            raise EnvtestError(f"the cluster is not ready after {self.options.timeout:g} s") from error

    async def down(self) -> list[str]:
        """Stop the components in order and remove the files of the cluster. Return which components ran.

        If this call is cancelled, the components that still run are killed.
        """
        if not self.directory.exists():
            return []
        try:
            return await self.stop()
        finally:
            self.kill()

    async def stop(self) -> list[str]:
        """Stop the components in order, and return which components ran. Objects and files are kept."""
        running = [name for name, process in self.supervisor.processes.items() if process.poll() is None]
        await self.supervisor.stop(*(name for name in self.supervisor.processes if name not in _LAST))
        for name in _LAST:
            await self.supervisor.stop(name)
        return running

    def kill(self, *, keep_logs: bool = False) -> None:
        """Kill the cluster's processes and remove its files. With ``keep_logs``, the logs are not removed."""
        if self.directory.exists():
            self.supervisor.kill()
            for path in self.directory.iterdir():
                if not (keep_logs and path.name == "logs"):
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        if not keep_logs:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._supervisor = None

    async def health(self) -> dict[str, str]:
        """Return the state of each component that was started: the HTTP status of its health endpoint, or ``ended``.

        ``200`` means healthy. Any other text describes the problem.
        """
        kept = state.State.read(self.directory)
        probes = {each.name: each.ready for each in kept.components} if kept else {}
        answers: dict[str, str] = {}
        for name, process in self.supervisor.processes.items():
            probe = probes.get(name)
            if process.poll() is not None:
                answers[name] = "ended"
            else:
                answers[name] = await probe.answer(probe.tls()) if probe else "200"
        return answers

    async def is_up(self) -> bool:
        """Return True if the cluster exists and every component runs and is healthy."""
        kept = state.State.read(self.directory)
        if kept is None:
            return False
        answers = await self.health()
        return set(answers) == set(kept.names) and set(answers.values()) == {"200"}

    async def set_webhooks(self, port: int | None) -> None:
        """Install the webhooks of a manager that serves them on ``port``, or remove them if it is None.

        Raises:
            RestError: the API server does not answer.
        """
        authority = (self.directory / "pki" / "ca.crt").read_bytes()
        hooks = manifests.trainer_webhooks(f"https://{HOST}:{port}", authority)
        async with self.client() as client:
            if port is not None:
                await apply_manifests(client, hooks, owner=FIELD_OWNER)
                return
            for each in hooks:
                with suppress(NotFoundError):
                    await client.delete(Unstructured.wrap(each))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[LiveClient]:
        """Yield a client with the administrator's rights."""
        async with Transport(await load_config(str(self.kubeconfig))) as transport:
            yield LiveClient(transport, RESTMapper(transport))

    async def _start(self, binaries: dict[str, Binary]) -> None:
        task = "start etcd and kube-apiserver"
        self._progress.start(task)
        data = private_directory(self.directory / "etcd")
        flags = [*api_server_flags(self.directory), *self.options.api_server_flags]
        plane = ControlPlane(self.directory, binaries, self.supervisor, data=data, flags=flags)
        parts = Parts(self.directory, plane, binaries, Ports.choose(), self.options)
        parts.write_certificates()
        try:
            await plane.start(timeout=self.options.timeout)
        except BaseException:
            self._progress.fail(task)
            raise
        self._progress.finish(task, plane.url)
        async with self.client() as client, self.supervisor.watching():
            await Installer(client, self.supervisor, parts, self.options, self._progress).run()
        self._record(parts)

    def _record(self, parts: Parts) -> None:
        metrics = f"http://{HOST}:{parts.ports.manager_metrics}/metrics" if self.options.manager else ""
        components = list(self.supervisor.components.values())
        state.State(parts.plane.url, metrics, self.options.nodes, components).write(self.directory)


def _require_space(directory: Path) -> None:
    """Raise EnvtestError if the disk has too little space for a cluster: etcd would fail late, with many errors."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if (free := shutil.disk_usage(there).free) < NEEDED_BYTES:
        least = f"{NEEDED_BYTES >> 20} MiB"
        raise EnvtestError(f"{there} has {free >> 20} MiB of free space; a cluster needs {least}")
