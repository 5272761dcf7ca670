# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One pod. We make its volumes, run its containers in the same order as a kubelet, and update its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
from controller_runtime.apis.core.v1 import Container, ContainerStateTerminated, ContainerStateWaiting, Pod
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.meta import parse_time
from controller_runtime.rest import RestError

from trainerctl.localcluster.processes import logs, names, process, status
from trainerctl.localcluster.processes.container import ALWAYS, NEVER, ON_FAILURE, ContainerRunner
from trainerctl.localcluster.processes.environment import ConfigError, Environment, References
from trainerctl.localcluster.processes.plans import Plans
from trainerctl.localcluster.processes.probes import ProbeTarget
from trainerctl.localcluster.processes.process import Plan
from trainerctl.localcluster.processes.settings import Settings
from trainerctl.localcluster.processes.status import ContainerRecord, PodRecord
from trainerctl.localcluster.processes.volumes import Volumes

DEADLINE: Final = "DeadlineExceeded"
_RENEW_AFTER: Final = 0.4
"""A token is renewed after this fraction of its lifetime."""

_LEAST_GRACE: Final = 2.0
"""If the other containers have used up the pod's grace period, each sidecar still has this many seconds to end."""


class PodRunner:
    """Runs a pod. ``changed`` is called when the pod's record may have changed."""

    def __init__(
        self,
        pod: Pod,
        settings: Settings,
        changed: Callable[[], None],
        ports: Mapping[int, int] | None = None,
    ) -> None:
        self.pod = pod
        self._ports = ports or {}
        self.finished = anyio.Event()
        """Set when all processes of the pod have ended."""
        self.settings = settings
        self._note_change = changed
        self._stopping = anyio.Event()
        self._only_sidecars = False
        """True if all containers except the sidecars have ended and are not restarted."""
        self._grace: float = 30.0
        now = settings.now()
        started = parse_time(pod.status.start_time) if pod.status.start_time else now
        spec = pod.spec
        self._init = [self._runner(each) for each in spec.init_containers or []]
        self._containers = [self._runner(each) for each in spec.containers or []]
        self._sidecars = [runner for runner in self._init if runner.policy == ALWAYS]
        self.record = PodRecord(names.address(pod, settings.cluster), started, [], [])
        for runners, into, init in (
            (self._init, self.record.init, True),
            (self._containers, self.record.containers, False),
        ):
            containers = [each.container for each in runners]
            runs = self._last_runs(containers)
            ends = self._ends(runs)
            into.extend(status.records(pod, containers, runs, ends, init=init, now=now))
            for runner, record in zip(runners, into, strict=True):
                runner.record = record

    async def run(self) -> None:
        """Run until all containers have ended and are not restarted.

        If this call is cancelled, all processes are killed.
        """
        try:
            await self._end_earlier()
            await self._run()
        finally:
            self.finished.set()
            self.changed()

    def stop(self, grace: float) -> None:
        """Stop the pod. Its containers receive SIGTERM and, after ``grace`` seconds, SIGKILL.

        A later call can only shorten the time.
        """
        self._grace = min(grace, self._grace) if self._stopping.is_set() else grace
        self._stopping.set()

    def target(self, container: str) -> ProbeTarget | None:
        """Return the process of a container, or None if the container does not exist or does not run."""
        found = (each.target for each in self._init + self._containers if each.container.name == container)
        return next(found, None)

    @property
    def is_stopping(self) -> bool:
        """True after `stop`."""
        return self._stopping.is_set()

    async def _end_earlier(self) -> None:
        """End processes that are left from an earlier kubelet. It may have been killed together with its shims."""
        for record in (*self.record.init, *self.record.containers):
            if record.identity:
                await process.end_all(record.identity)

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_asked)
            if self.pod.spec.active_deadline_seconds is not None:
                tasks.start_soon(self._stop_at_deadline, float(self.pod.spec.active_deadline_seconds))
            if await self._prepare():
                tasks.start_soon(self._renew_tokens)
                await self._run_containers()
            tasks.cancel_scope.cancel()
        for runner in self._init + self._containers:
            if not isinstance(runner.record.state, ContainerStateTerminated) and self._stopping.is_set():
                await runner.stop(0)  # the pod may have been stopped before this container ran
                await runner.run()  # the container is stopped, so this only records that it has ended

    async def _prepare(self) -> bool:
        """Make the volumes. Return False if the pod is stopped before they exist."""
        settings, spec = self.settings, self.pod.spec
        folder = settings.pod(self.pod.metadata.uid or "")
        reported = ""
        while not self._stopping.is_set():
            references = References(settings.reader, self.pod.namespace)
            claims, address = settings.claims, self.record.address
            volumes = Volumes(self.pod, folder / "volumes", claims, address, references, settings.new_token)
            try:
                settings.hosts.add(self.pod, settings.cluster)
                made = await volumes.make()
                self._volumes = volumes
                self._plans = Plans(self.pod, settings, made, self._environment, self._ports)
            except (ConfigError, StatusError, RestError, OSError) as error:
                if reported != str(error):
                    reported = str(error)
                    settings.record(self.pod, "FailedMount", f"MountVolume.SetUp failed: {error}")
                with anyio.move_on_after(settings.retry):
                    await self._stopping.wait()
                continue
            self.record.sandboxed = True
            self.record.initialized = not spec.init_containers
            self.changed()
            return True
        return False

    def _environment(self) -> Environment:
        """Return an environment that reads all references again, because values may change between two runs."""
        references = References(self.settings.reader, self.pod.namespace)
        return Environment(self.pod, self.record.address, references)

    async def _renew_tokens(self) -> None:
        """Renew the tokens of service accounts before they expire."""
        life, reported = self._volumes.token_seconds, ""
        while life is not None:
            await self._let_pass(life * _RENEW_AFTER if not reported else self.settings.retry)
            try:
                await self._volumes.renew_tokens()
                reported = ""
            except (StatusError, RestError, OSError) as error:
                if reported != str(error):
                    reported = str(error)
                    self.settings.record(self.pod, "FailedMount", f"a token cannot be renewed: {error}")

    async def _let_pass(self, seconds: float) -> None:
        """Wait until ``seconds`` have passed on the event loop's clock or on the wall clock.

        While the machine sleeps, only the wall clock continues.
        """
        began, end = self.settings.now(), anyio.current_time() + seconds
        while anyio.current_time() < end and (self.settings.now() - began).total_seconds() < seconds:  # noqa: ASYNC110
            await anyio.sleep(min(self.settings.retry, max(0.0, end - anyio.current_time())))

    async def _run_containers(self) -> None:
        """Run the init containers one after the other, then the containers.

        Sidecars run until the other containers have ended.
        """
        async with anyio.create_task_group() as sidecars:
            for runner in self._init:
                if self._stopping.is_set():
                    break
                if runner.policy == ALWAYS:
                    sidecars.start_soon(runner.run)
                    await runner.wait_started()
                elif not await runner.run():
                    break
            else:
                self.record.initialized = True
                self.changed()
                async with anyio.create_task_group() as containers:
                    for runner in self._containers:
                        containers.start_soon(runner.run)
            self._only_sidecars = True
            for runner in reversed(self._sidecars):
                if not self._stopping.is_set():  # a pod that is stopping stops its sidecars itself
                    await runner.stop(self._own_grace)

    async def _stop_when_asked(self) -> None:
        await self._stopping.wait()
        while True:
            grace = self._grace
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_in_order, grace)
                while self._grace == grace:  # noqa: ASYNC110 a second call may shorten it
                    await anyio.sleep(0.1)
                tasks.cancel_scope.cancel()

    async def _stop_in_order(self, grace: float) -> None:
        """Stop the containers, and then the sidecars one by one, in reverse order.

        A sidecar has the rest of ``grace`` to end, or a minimum time if the rest is shorter.
        """
        end = anyio.current_time() + grace
        async with anyio.create_task_group() as tasks:
            for runner in self._containers + self._init:
                if runner not in self._sidecars:
                    tasks.start_soon(runner.stop, grace)
        for runner in reversed(self._sidecars):
            await runner.stop(max(end - anyio.current_time(), min(grace, _LEAST_GRACE)))

    async def _stop_at_deadline(self, seconds: float) -> None:
        passed = (self.settings.now() - self.record.started_at).total_seconds()
        await self._let_pass(seconds - passed)
        self.record.reason = DEADLINE
        self.record.message = "Pod was active on the node longer than the specified deadline"
        self.stop(self._own_grace)

    @property
    def _own_grace(self) -> float:
        grace = self.pod.spec.termination_grace_period_seconds
        return 30.0 if grace is None else float(grace)

    def _last_runs(self, containers: Sequence[Container]) -> dict[str, int]:
        """Return the number of each container's last run. Only containers with a log on this machine are included."""
        uid = self.pod.metadata.uid or ""
        found = {each.name: logs.runs(self.settings.logs(uid, each.name)) for each in containers}
        return {name: runs[-1] for name, runs in found.items() if runs}

    def _ends(self, runs: Mapping[str, int]) -> dict[str, ContainerStateTerminated]:
        """Return how the ``runs`` ended, by container. Runs whose shims did not write this to disk are left out."""
        uid = self.pod.metadata.uid or ""
        found = {
            name: process.read_end(self.settings.logs(uid, name) / str(run)) for name, run in runs.items()
        }
        return {name: end for name, end in found.items() if end is not None}

    def _runner(self, container: Container) -> ContainerRunner:
        policy = self.pod.spec.restart_policy or ALWAYS
        if any(each is container for each in self.pod.spec.init_containers or []):
            own = container.restart_policy
            policy = ALWAYS if own == ALWAYS else NEVER if policy == NEVER else ON_FAILURE
        record = ContainerRecord(
            container.name, container.image or "", ContainerStateWaiting(reason="ContainerCreating")
        )
        return ContainerRunner(self, container, record, policy)

    async def make_plan(self, container: Container, record: ContainerRecord) -> Plan:
        return await self._plans.make(container, record)

    def ends(self) -> bool:
        return self._only_sidecars or self.is_stopping

    def changed(self) -> None:
        self.record.phase = self._phase()
        self._note_change()

    def _phase(self) -> str:
        """Return the phase. It becomes terminal only after all processes have ended."""
        ends = [each.record.state for each in self._containers]
        codes = [end.exit_code for end in ends if isinstance(end, ContainerStateTerminated)]
        if self.finished.is_set():
            succeeded = len(codes) == len(ends) and not any(codes) and not self.record.reason
            return status.SUCCEEDED if succeeded else status.FAILED
        begun = any(each.record.identity for each in self._containers)
        return status.RUNNING if self.record.initialized and begun else status.PENDING
