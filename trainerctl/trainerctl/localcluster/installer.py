# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fills a cluster whose API server runs: RBAC, CRDs, nodes, controllers, webhooks and runtimes, in that order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from controller_runtime.apis.core.v1 import Node, ServiceAccount
from controller_runtime.client import LiveClient
from controller_runtime.envtest import (
    HOST,
    Component,
    Progress,
    Supervisor,
    apply_manifests,
    eventually,
    install_crds,
    wait_established,
)

from trainerctl.localcluster import imagewarnings, kai, manifests, prometheus
from trainerctl.localcluster.components import Parts
from trainerctl.localcluster.nodes import is_usable, node
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.restart import ACCOUNTS, write_tokens
from trainerctl.localcluster.tools import COSCHEDULER, JOBSET, KWOK

FIELD_OWNER: Final = "trainerctl"


@dataclass(frozen=True)
class Installer:
    """Starts all components except etcd and the API server, and creates the objects that they need."""

    client: LiveClient
    supervisor: Supervisor
    parts: Parts
    options: Options
    progress: Progress

    async def run(self) -> None:
        """Fill the cluster. Return when it accepts TrainJobs and its nodes accept pods.

        Raises:
            ComponentError: a component failed; the error names its log.
        """
        scheduler = self.parts.coscheduler() if self.options.coscheduling else self.parts.scheduler()
        kubernetes = [self.parts.controller_manager(), scheduler]
        # The coscheduling scheduler watches PodGroups: they must be served before it starts.
        early = 1 if self.options.coscheduling else len(kubernetes)
        for component in kubernetes[:early]:
            self.supervisor.start(component)
        await self._install()
        for component in kubernetes[early:]:
            self.supervisor.start(component)
        if self.options.kai is not None:
            await apply_manifests(self.client, kai.queues(), owner=FIELD_OWNER)
        components = [*kubernetes, *self.parts.nodes(), *await self._start_controllers()]
        async with self._step(task := "start the controllers"):
            for done, component in enumerate(components):
                self.progress.update(task, done=done, total=len(components), detail=component.name)
                await self.supervisor.wait_ready(component, timeout=self.options.timeout)
            await apply_manifests(self.client, self._webhooks(), owner=FIELD_OWNER)
            if self.options.run_processes:
                policy = imagewarnings.objects(self.options.images)
                await apply_manifests(self.client, policy, owner=FIELD_OWNER)
        async with self._step(f"wait for {self.options.nodes} nodes"):
            await self._wait_usable()
            await apply_manifests(
                self.client, [*manifests.runtimes(), *manifests.volumes()], owner=FIELD_OWNER
            )

    async def _install(self) -> None:
        """Create the namespaces, the permissions of the components, the CRDs and the nodes."""
        jobset, kwok = self.parts.binaries[JOBSET.name], self.parts.binaries.get(KWOK.name)
        async with self._step("install RBAC and CRDs"):
            await apply_manifests(self.client, manifests.namespaces(), owner=FIELD_OWNER)
            rights = manifests.rights(jobset, kwok, gated=self.options.gated_roles)
            await apply_manifests(self.client, rights, owner=FIELD_OWNER)
            if not self.options.run_processes:
                self._start_nodes()
            crds = manifests.crds(jobset)
            if self.options.coscheduling:
                await apply_manifests(self.client, manifests.gang_rights(), owner=FIELD_OWNER)
                crds += manifests.crds_of(self.parts.binaries[COSCHEDULER.name])
            if self.options.kai is not None:
                await apply_manifests(self.client, kai.objects(manifests.TRAINER_SUBJECT), owner=FIELD_OWNER)
                crds += kai.crds(self.options.kai)
            names = await install_crds(self.client, crds)
            for number in range(self.options.nodes):
                await self.client.create(self._node(number))
            if self.options.run_processes:
                self._start_nodes()
            await wait_established(self.client, names, timeout=self.options.timeout)

    def _start_nodes(self) -> None:
        for each in self.parts.nodes():
            self.supervisor.start(each)

    def _node(self, number: int) -> Node:
        processes, ports = self.options.run_processes, self.parts.ports
        return node(
            number,
            self.options.shape,
            ports.processes if processes else ports.pod_logs,
            processes=processes,
            cluster=self.parts.directory.name,
        )

    async def _start_controllers(self) -> list[Component]:
        """Start the JobSet controller and the manager. The kinds that they watch must already be served."""
        await write_tokens(self.parts.directory, self.parts.plane.url, ACCOUNTS)
        if self.options.serves_status:
            authority = self.parts.plane.authority.certificate
            secret = manifests.certificates(self.parts.webhook_certificates, authority)
            await apply_manifests(self.client, [secret], owner=FIELD_OWNER)
        manager = self.parts.manager()  # the configuration is written even if the manager is not started
        components = [self.parts.jobset(), *([manager] if self.options.manager else [])]
        if self.options.kai is not None:
            ports, kubeconfig = self.parts.ports, self.parts.kubeconfig(kai.SCHEDULER)
            components += kai.components(self.options.kai, kubeconfig, ports.kai_metrics, ports.kai_binder)
        if self.options.prometheus:
            program, ports = self.parts.binaries[prometheus.NAME].path, self.parts.ports
            components.append(
                prometheus.component(program, self.parts.directory, ports.prometheus, ports.manager_metrics)
            )
        for each in components:
            self.supervisor.start(each)
        return components

    def _webhooks(self) -> list[manifests.Manifest]:
        """Return the webhook configurations. They refer to the webhook servers by their loopback ports."""
        url, authority = f"https://{HOST}:", self.parts.plane.authority.certificate
        ports = self.parts.ports
        hooks = manifests.jobset_webhooks(
            self.parts.binaries[JOBSET.name], f"{url}{ports.jobset_webhook}", authority
        )
        if self.options.manager:
            hooks += manifests.trainer_webhooks(f"{url}{ports.manager_webhook}", authority)
        return hooks

    async def _wait_usable(self) -> None:
        """Wait until pods can be created and scheduled: nodes are ready, and the default service account exists."""

        async def usable() -> bool:
            nodes = await self.client.list(Node)
            return sum(is_usable(each.to_dict()) for each in nodes) == self.options.nodes

        async def accounts() -> bool:
            found = await self.client.list(ServiceAccount, namespace="default")
            return any(account.name == "default" for account in found)

        await eventually(usable, timeout=self.options.timeout, reason="the simulated nodes are schedulable")
        await eventually(accounts, timeout=self.options.timeout, reason="the default service account exists")

    @asynccontextmanager
    async def _step(self, task: str) -> AsyncIterator[None]:
        self.progress.start(task)
        try:
            yield
        except BaseException:
            self.progress.fail(task)
            raise
        self.progress.finish(task)
