# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cluster: the whole control plane with JobSet, simulated nodes and our manager, as processes on loopback."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from controller_runtime.apis.core.v1 import Node, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import (
    Binaries,
    Component,
    EnvtestError,
    Progress,
    SilentProgress,
    Supervisor,
    Tool,
    apply_manifests,
    eventually,
)
from controller_runtime.envtest.binaries import Binary
from controller_runtime.envtest.controlplane import ControlPlane
from controller_runtime.envtest.crds import install_crds, wait_established
from controller_runtime.envtest.files import private_directory
from controller_runtime.envtest.ports import HOST
from controller_runtime.envtest.probe import answer
from controller_runtime.rest import RESTMapper, Transport, load_config

from pkg.localcluster import contents, kai, state
from pkg.localcluster.components import MANAGER, Parts, Ports
from pkg.localcluster.nodes import NodeShape, is_usable, node
from pkg.localcluster.restart import ACCOUNTS, restart, write_tokens
from pkg.localcluster.tools import ALL, COSCHEDULER, JOBSET, KUBE_SCHEDULER, KWOK

FIELD_OWNER: Final = "trainerctl"
NEEDED_BYTES: Final = 256 << 20
# Controllers are stopped first, concurrently, then the API server, then its store.
_LAST: Final = ("kube-apiserver", "etcd")


@dataclass(frozen=True)
class Options:
    """The size and the components of a cluster."""

    nodes: int = 4
    shape: NodeShape = field(default_factory=NodeShape)
    manager: bool = True
    timeout: float = 120
    coscheduling: bool = False
    """Use the scheduler of scheduler-plugins, which schedules gangs, instead of kube-scheduler."""
    kai: kai.Programs | None = None
    """Run KAI-Scheduler beside it, and the pod grouper in the manager."""

    @property
    def tools(self) -> list[Tool]:
        """The programs that the cluster needs."""
        if not self.coscheduling:
            return list(ALL)
        return [COSCHEDULER if tool is KUBE_SCHEDULER else tool for tool in ALL]


class Cluster:
    """The cluster whose files are in ``directory``.

    A ``tied`` cluster ends with this process; another one keeps running until `down`.
    """

    def __init__(
        self,
        directory: Path,
        options: Options | None = None,
        *,
        tied: bool = False,
        binaries: Binaries | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.directory = directory
        self.options = options or Options()
        self._progress = progress or SilentProgress()
        self._binaries = binaries or Binaries(progress=self._progress)
        self._tied = tied
        self._supervisor: Supervisor | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "admin.kubeconfig"

    @property
    def manager_arguments(self) -> list[str]:
        """The flags with which a manager works in this cluster under its shipped rights."""
        config, kubeconfig = self.directory / f"{MANAGER}.yaml", self.directory / f"{MANAGER}.kubeconfig"
        return [f"--config={config}", f"--kubeconfig={kubeconfig}"]

    @property
    def supervisor(self) -> Supervisor:
        """The owner of the processes, including those that an earlier run left."""
        if self._supervisor is None:
            private_directory(self.directory)
            self._supervisor = Supervisor(self.directory, tied=self._tied)
            self._supervisor.adopt()
        return self._supervisor

    async def up(self) -> None:
        """Replace the directory's content with a new cluster, and return when it accepts TrainJobs.

        On an error all processes are stopped and only the logs are kept; on cancellation nothing is kept.

        Raises:
            ToolError: a program is missing and cannot be built.
            ComponentError: a component failed; names its log.
        """
        _require_space(self.directory)
        if self.options.kai is not None:
            self.options.kai.check()
        located = await self._binaries.locate(*self.options.tools)
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
        except Exception:
            self.kill(keep_logs=True)
            raise
        except BaseException:
            self.kill()
            raise

    async def restart(self) -> list[str]:
        """Restart the components that have ended, and return their names. The objects are kept.

        On any error or cancellation, the components started by this call are stopped again.

        Raises:
            ComponentError: a component does not start; names its log.
            EnvtestError: the cluster's state cannot be read, or it is not up in time.
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
        """Stop the cluster in order and remove its files; return the names of the components that ran.

        On cancellation, the remaining components are killed.
        """
        if not self.directory.exists():
            return []
        try:
            return await self.stop()
        finally:
            self.kill()

    async def stop(self) -> list[str]:
        """Stop the components in order, and return the names of those that ran. Objects and files are kept."""
        running = [name for name, process in self.supervisor.processes.items() if process.poll() is None]
        for group in _stop_order(list(self.supervisor.processes)):
            await self.supervisor.stop(*group)
        return running

    def kill(self, *, keep_logs: bool = False) -> None:
        """End the cluster at once and remove its files, except the logs if they are to be kept."""
        if self.directory.exists():
            self.supervisor.kill()
            for path in self.directory.iterdir():
                if not (keep_logs and path.name == "logs"):
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        if not keep_logs:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._supervisor = None

    async def health(self) -> dict[str, str]:
        """Return the answer of each component's health endpoint: ``200`` if healthy, ``ended`` without a process."""
        kept = state.State.read(self.directory)
        probes = {each.name: each.ready for each in kept.components} if kept else {}
        answers: dict[str, str] = {}
        for name, process in self.supervisor.processes.items():
            probe = probes.get(name)
            if process.poll() is not None:
                answers[name] = "ended"
            else:
                answers[name] = await answer(probe, probe.tls()) if probe else "200"
        return answers

    async def is_up(self) -> bool:
        """Return True if every component runs and is healthy."""
        kept = state.State.read(self.directory)
        if kept is None:
            return False
        answers = await self.health()
        return set(answers) == set(kept.names) and set(answers.values()) == {"200"}

    @asynccontextmanager
    async def client(self) -> AsyncIterator[LiveClient]:
        """Give an administrator's client."""
        async with Transport(await load_config(str(self.kubeconfig))) as transport:
            yield LiveClient(transport, RESTMapper(transport))

    async def _start(self, binaries: dict[str, Binary]) -> None:
        task = "start etcd and kube-apiserver"
        self._progress.start(task)
        data = private_directory(self.directory / "etcd")
        plane = ControlPlane(self.directory, binaries, self.supervisor, data=data)
        parts = Parts(self.directory, plane, binaries, Ports.choose(), self.options.kai is not None)
        parts.write_certificates()
        try:
            await plane.start(timeout=self.options.timeout)
        except BaseException:
            self._progress.fail(task)
            raise
        self._progress.finish(task, plane.url)
        async with self.client() as client, self.supervisor.watching():
            await self._fill(client, parts)

    async def _fill(self, client: LiveClient, parts: Parts) -> None:
        """Start all components above the API server."""
        jobset, kwok = parts.binaries[JOBSET.name], parts.binaries[KWOK.name]
        gangs = [parts.binaries[COSCHEDULER.name]] if self.options.coscheduling else []
        scheduler = parts.coscheduler() if gangs else parts.scheduler()
        kubernetes = [parts.controller_manager(), scheduler]
        # A scheduler of gangs watches PodGroups: they must be served before it starts.
        for component in kubernetes[: 1 if gangs else None]:
            self.supervisor.start(component)
        async with self._step("install RBAC and CRDs"):
            await apply_manifests(client, contents.namespaces(), owner=FIELD_OWNER)
            await apply_manifests(client, contents.rights(jobset, kwok), owner=FIELD_OWNER)
            self.supervisor.start(parts.kwok())
            if gangs:
                await apply_manifests(client, contents.gang_rights(), owner=FIELD_OWNER)
            crds = [*contents.crds(jobset), *(crd for tool in gangs for crd in contents.crds_of(tool))]
            if self.options.kai is not None:
                await apply_manifests(client, kai.objects(contents.TRAINER_SUBJECT), owner=FIELD_OWNER)
                crds += kai.crds(self.options.kai)
            names = await install_crds(client, crds)
            shape = self.options.shape
            for number in range(self.options.nodes):
                await client.create(node(number, shape))
            await wait_established(client, names, timeout=self.options.timeout)
        if gangs:
            self.supervisor.start(scheduler)
        if self.options.kai is not None:
            await apply_manifests(client, kai.queues(), owner=FIELD_OWNER)
        components = [*kubernetes, parts.kwok(), *await self._controllers(parts)]
        async with self._step(task := "start the controllers"):
            for done, component in enumerate(components):
                self._progress.update(task, done=done, total=len(components), detail=component.name)
                await self.supervisor.wait_ready(component, timeout=self.options.timeout)
            url, authority = f"https://{HOST}:", parts.plane.authority.certificate
            hooks = contents.jobset_webhooks(jobset, f"{url}{parts.ports.jobset_webhook}", authority)
            if self.options.manager:
                hooks += contents.trainer_webhooks(f"{url}{parts.ports.manager_webhook}", authority)
            await apply_manifests(client, hooks, owner=FIELD_OWNER)
        async with self._step(f"wait for {self.options.nodes} nodes"):
            await self._wait_usable(client)
            filling = [*contents.runtimes(), *contents.volumes()]
            await apply_manifests(client, filling, owner=FIELD_OWNER)
        self._record(parts)

    async def _controllers(self, parts: Parts) -> list[Component]:
        """Start the JobSet controller and the manager; the kinds that both watch must be served by now."""
        await write_tokens(self.directory, parts.plane.url, ACCOUNTS)
        manager = parts.manager()  # its configuration is written even if it is not started
        components = [parts.jobset(), *([manager] if self.options.manager else [])]
        if self.options.kai is not None:
            components += parts.kai_components(self.options.kai)
        for each in components:
            self.supervisor.start(each)
        return components

    async def _wait_usable(self, client: LiveClient) -> None:
        """Return when pods can be created and scheduled: nodes have no taint, the default service account exists."""

        async def usable() -> bool:
            nodes = await client.list(Node)
            return sum(is_usable(each.to_dict()) for each in nodes) == self.options.nodes

        async def accounts() -> bool:
            found = await client.list(ServiceAccount, namespace="default")
            return any(account.name == "default" for account in found)

        await eventually(usable, timeout=self.options.timeout, reason="the simulated nodes are schedulable")
        await eventually(accounts, timeout=self.options.timeout, reason="the default service account exists")

    @asynccontextmanager
    async def _step(self, task: str) -> AsyncIterator[None]:
        self._progress.start(task)
        try:
            yield
        except BaseException:
            self._progress.fail(task)
            raise
        self._progress.finish(task)

    def _record(self, parts: Parts) -> None:
        metrics = f"http://{HOST}:{parts.ports.manager_metrics}/metrics" if self.options.manager else ""
        components = list(self.supervisor.components.values())
        state.State(parts.plane.url, metrics, self.options.nodes, components).write(self.directory)


def _require_space(directory: Path) -> None:
    """Raise EnvtestError unless the disk has space for a cluster; without space etcd fails late with many errors."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if (free := shutil.disk_usage(there).free) < NEEDED_BYTES:
        least = f"{NEEDED_BYTES >> 20} MiB"
        raise EnvtestError(f"{there} has {free >> 20} MiB of free space; a cluster needs {least}")


def _stop_order(running: Sequence[str]) -> list[list[str]]:
    first = [name for name in running if name not in _LAST]
    return [first, *([name] for name in _LAST if name in running)]
