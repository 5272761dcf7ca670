# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One container of a pod. Its process is started, watched, and restarted according to the restart policy."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
from controller_runtime.apis.core.v1 import (
    Container,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    Pod,
)
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.meta import format_time, parse_time
from controller_runtime.rest import RestError

from trainerctl.localcluster.processes import logs, process
from trainerctl.localcluster.processes.environment import ConfigError
from trainerctl.localcluster.processes.probes import Probes, ProbeTarget
from trainerctl.localcluster.processes.settings import Settings
from trainerctl.localcluster.processes.shim import nofollow
from trainerctl.localcluster.processes.status import UNKNOWN, ContainerRecord, PodRecord, ended, identity

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
_START_ERROR: Final = 128
_FROM_LOG: Final = "FallbackToLogsOnError"
_LONGEST_MESSAGE: Final = 4096
_LONGEST_FROM_LOG: Final = 2048
_LINES_FROM_LOG: Final = 80


class Host(Protocol):
    """The pod that the containers belong to."""

    pod: Pod
    settings: Settings
    record: PodRecord

    async def make_plan(self, container: Container, record: ContainerRecord) -> process.Plan: ...

    def ends(self) -> bool:
        """Return True if no container must be restarted, even if its policy permits it."""

    def changed(self) -> None:
        """Note a change of a container's record."""


@dataclass(eq=False)
class ContainerRunner:
    """Runs one container until it is stopped, or until it ends and is not restarted."""

    host: Host
    container: Container
    record: ContainerRecord
    policy: str
    _process: process.Process | None = None
    _stopping: anyio.Event = field(default_factory=anyio.Event)
    _grace: float = 0.0
    _target: ProbeTarget | None = None
    _failures: int = 0
    _must_restart: bool = False
    _started: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> bool:
        """Run until the container has ended and is not restarted. Return True if it succeeded."""
        while not self._stopping.is_set():
            if isinstance(self.record.state, ContainerStateTerminated) and self._is_over(self.record.state):
                break
            if self.record.identity:
                await self._wait_to_restart()
                if self._stopping.is_set() or self.host.ends():
                    break
            await self._run_once()
        self._started.set()
        state = self.record.state
        if isinstance(state, ContainerStateWaiting) and self.record.last is not None:
            self.record.state = self.record.last  # the container was stopped while it waited to be restarted
        elif isinstance(state, ContainerStateWaiting):
            now = self.host.settings.now()
            message = "The container was stopped before it started"
            self.record.state = ended(_START_ERROR + 9, format_time(now), now, message, UNKNOWN)
        self.host.changed()
        return isinstance(self.record.state, ContainerStateTerminated) and self.record.state.exit_code == 0

    @property
    def target(self) -> ProbeTarget | None:
        """The process of the container while it runs."""
        return self._target

    async def wait_started(self) -> None:
        """Wait until the container has started and passed its startup probe, or has ended and is not restarted."""
        await self._started.wait()

    async def stop(self, grace: float) -> None:
        """Stop the container and do not restart it. Send SIGTERM and, after ``grace`` seconds, SIGKILL.

        While this call waits, a second call may set a shorter time. The preStop hook runs only once.
        """
        first = not self._stopping.is_set()
        self._grace = grace
        self._stopping.set()
        await self._end(grace, hook=first)

    async def kill(self, reason: str, grace: int | None = None) -> None:
        """End the process. The restart policy decides whether it is then restarted.

        Do nothing if the container is already being stopped. If ``grace`` is None, use the pod's grace period.
        """
        if self._stopping.is_set():
            return
        restarted = "" if self.policy == NEVER else ", will be restarted"
        self.host.settings.record(
            self.host.pod, "Killing", f"Container {self.container.name} {reason}{restarted}"
        )
        if grace is None:
            grace = self.host.pod.spec.termination_grace_period_seconds
        await self._end(30.0 if grace is None else float(grace), hook=True)

    async def _restart(self, reason: str, grace: int | None) -> None:
        """End the process, because a probe has failed. It is restarted even if it ends with the exit code 0."""
        self._must_restart = True
        await self.kill(reason, grace)

    async def _end(self, grace: float, *, hook: bool) -> None:
        running = self._process
        if running is None:
            return
        with anyio.move_on_after(grace):
            if hook and grace > 0:
                await self._pre_stop()
            await running.signal(signal.SIGTERM.name)
            while self._process is running:  # noqa: ASYNC110 several tasks wait for it
                await anyio.sleep(0.02)
        await running.signal(signal.SIGKILL.name)

    async def _pre_stop(self) -> None:
        lifecycle = self.container.lifecycle
        if lifecycle is not None and lifecycle.pre_stop is not None and self._target is not None:
            if lifecycle.pre_stop.sleep is not None:
                await anyio.sleep(lifecycle.pre_stop.sleep.seconds or 0)
                return
            ok, message = await self._target.check(lifecycle.pre_stop, timeout=3600)
            if not ok:
                self.host.settings.record(self.host.pod, "FailedPreStopHook", message)

    def _is_over(self, last: ContainerStateTerminated) -> bool:
        """Return True if the container must not be restarted after it has ended with ``last``."""
        succeeded = last.exit_code == 0 and not self._must_restart
        over = self.policy == NEVER or (self.policy == ON_FAILURE and succeeded)
        return over or self.host.ends()

    async def _wait_to_restart(self) -> None:
        """Wait before the next run, longer each time. After a long run, start again with the shortest delay."""
        last = self.record.state
        if not isinstance(last, ContainerStateTerminated):
            return
        if last.started_at and last.finished_at:
            ran = parse_time(last.finished_at) - parse_time(last.started_at)
            if ran.total_seconds() >= self.host.settings.back_off.reset:
                self._failures = 0
        delay = self.host.settings.back_off.delay(self._failures)
        self._failures += 1
        self.record.last = last
        name = self.container.name
        pod = f"{self.host.pod.name}_{self.host.pod.namespace}"
        message = f"back-off {delay:g}s restarting failed container={name} pod={pod}"
        self.record.state = ContainerStateWaiting(reason="CrashLoopBackOff", message=message)
        self.host.changed()
        if self._failures > 1:
            self.host.settings.record(
                self.host.pod, "BackOff", f"Back-off restarting failed container {name}"
            )
        with anyio.move_on_after(delay):
            await self._stopping.wait()

    async def _run_once(self) -> None:
        """Run the process once and return when it has ended, or when it cannot be started."""
        plan = await self._plan()
        if plan is None:
            return
        self._must_restart = False
        began = format_time(self.host.settings.now())
        self.record.starting = self.record.next_run
        try:
            self._process = await process.start(plan)
        except OSError as error:  # the machine has too many processes or open files, for example
            await self._wait_to_create("CreateContainerError", error)
            return
        except process.StartError as error:
            self._count_run()
            self.host.settings.record(self.host.pod, "Failed", f"Error: {error}")
            self._ended(ended(_START_ERROR, began, self.host.settings.now(), str(error), "StartError"))
            return
        finally:
            self.record.starting = None
        self._count_run()
        try:
            await self._watch(self._process, plan, began)
        finally:
            running, self._process, self._target = self._process, None, None
            await running.close()

    def _count_run(self) -> None:
        self.record.restarts = self.record.next_run
        self.record.identity = identity(self.host.pod, self.container.name, self.record.restarts)

    async def _watch(self, running: process.Process, plan: process.Plan, began: str) -> None:
        self.record.state = ContainerStateRunning(started_at=began)
        self._target = target = ProbeTarget(
            running.id, plan, self.host.record.address, self.container.ports or []
        )
        stopping = self._stopping.is_set
        report = self.host.settings.record
        probes = Probes(self.host.pod, self.container, self.record, target, report, self._probed, stopping)
        if self.container.startup_probe is None:
            self.record.started = True
            self._started.set()
        if self.container.readiness_probe is None:
            self.record.ready = self.record.started
        self.host.changed()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(probes.run, self._restart)
            tasks.start_soon(self._post_start, target)
            if self._stopping.is_set():  # the container was stopped while it started
                tasks.start_soon(partial(self._end, self._grace, hook=False))
            code = await running.wait()
            tasks.cancel_scope.cancel()
        self._ended(ended(code, began, self.host.settings.now(), self._message(plan, failed=bool(code))))

    def _message(self, plan: process.Plan, *, failed: bool) -> str:
        """Return the termination message that the process wrote to its file.

        If the file is empty and the process failed, the termination message policy may require the end of the log
        instead.
        """
        message = ""
        if plan.message:
            flags = (
                os.O_RDONLY | os.O_NONBLOCK
            )  # the file may be in a volume, and the container may replace it there
            with suppress(OSError), os.fdopen(nofollow.opened(plan.message, flags), "rb") as file:
                message = file.read(_LONGEST_MESSAGE).decode(errors="replace")
        if not message and failed and self.container.termination_message_policy == _FROM_LOG:
            return logs.tail(Path(plan.log), _LINES_FROM_LOG)[-_LONGEST_FROM_LOG:].decode(errors="replace")
        return message

    async def _post_start(self, target: ProbeTarget) -> None:
        lifecycle = self.container.lifecycle
        if lifecycle is not None and lifecycle.post_start is not None:
            ok, message = await target.check(lifecycle.post_start, timeout=3600)
            if not ok:
                self.host.settings.record(self.host.pod, "FailedPostStartHook", message)
                await self.kill("failed its postStart hook")

    def _probed(self) -> None:
        if self.record.started:
            self._started.set()
        self.host.changed()

    def _ended(self, state: ContainerStateTerminated) -> None:
        self.record.ready = self.record.started = False
        self.record.state = state
        self.host.changed()

    async def _plan(self) -> process.Plan | None:
        """Wait until everything that the plan needs exists, and return the plan.

        Return None if the container is stopped.
        """
        while not self._stopping.is_set():
            try:
                return await self.host.make_plan(self.container, self.record)
            except ConfigError as error:
                await self._wait_to_create("CreateContainerConfigError", error)
            except (StatusError, RestError, OSError) as error:
                await self._wait_to_create("CreateContainerError", error)
        return None

    async def _wait_to_create(self, reason: str, error: Exception) -> None:
        """Report why the container cannot be started, and wait until the next attempt."""
        if not isinstance(self.record.state, ContainerStateWaiting) or self.record.state.message != str(
            error
        ):
            self.host.settings.record(self.host.pod, "Failed", f"Error: {error}")
            self.record.state = ContainerStateWaiting(reason=reason, message=str(error))
            self.host.changed()
        with anyio.move_on_after(self.host.settings.retry):
            await self._stopping.wait()
