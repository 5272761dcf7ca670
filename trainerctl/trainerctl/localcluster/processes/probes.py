# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Startup, liveness and readiness probes of a running container. They use a command, HTTP or a TCP connection."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread
from controller_runtime.apis.core.v1 import (
    Container,
    ContainerPort,
    HTTPGetAction,
    LifecycleHandler,
    Pod,
    Probe,
)

from trainerctl.localcluster.processes import process
from trainerctl.localcluster.processes.status import ContainerRecord

_Kill = Callable[[str, int | None], Awaitable[None]]


@dataclass(frozen=True)
class ProbeTarget:
    """A running container, with everything that probes and hooks need to reach it."""

    id: process.ProcessID
    plan: process.Plan
    address: str
    ports: Sequence[ContainerPort]

    async def check(self, handler: Probe | LifecycleHandler, timeout: float) -> tuple[bool, str]:
        """Run the check. Return True if it succeeds, otherwise False and the reason."""
        try:
            with anyio.fail_after(timeout):
                if handler.exec is not None:
                    plan = replace(self.plan, argv=handler.exec.command or [])
                    code, output = await process.run_beside(self.id, plan, timeout)
                    return code == 0, output or f"exit code {code}"
                if handler.http_get is not None:
                    ask, get = self._http, handler.http_get
                    code = await anyio.to_thread.run_sync(ask, get, timeout, abandon_on_cancel=True)
                    return 200 <= code < 400, f"HTTP probe failed with statuscode: {code}"
                host, port = self.address, None
                if handler.tcp_socket is not None:
                    host, port = handler.tcp_socket.host or host, handler.tcp_socket.port
                elif isinstance(handler, Probe) and handler.grpc is not None:
                    port = handler.grpc.port  # only a connection is tried: the health service is not called
                if port is not None:
                    await (await anyio.connect_tcp(host, self._port(port))).aclose()
                    return True, ""
        except TimeoutError:
            return False, f"timed out after {timeout:g} s"
        except (OSError, ValueError, http.client.HTTPException) as error:
            return False, str(error)
        return False, "this kind of probe is not supported by local processes"

    def _http(self, action: HTTPGetAction, timeout: float) -> int:
        """Send the request and return the HTTP status of the response.

        Raises:
            OSError, HTTPException: the server does not answer, or its answer is not HTTP.
        """
        host, port = action.host or self.address, self._port(action.port)
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        if (action.scheme or "HTTP").upper() == "HTTPS":
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # as a kubelet does
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
        given = {each.name.title(): each.value or "" for each in action.http_headers or []}
        headers = {"User-Agent": "kube-probe", "Accept": "*/*", **given, "Connection": "close"}
        try:
            connection.request("GET", f"/{(action.path or '/').removeprefix('/')}", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def _port(self, port: object) -> int:
        """Return a port that is given as a number, or as the name of a port of the container.

        Raises:
            ValueError: the container has no port with this name.
        """
        text = str(port)
        if text.isdecimal():
            number = int(text)
            return self.plan.ports.get(number, number)
        found = next((each.container_port for each in self.ports if each.name == text), None)
        if found is None:
            raise ValueError(f"port {text} not found")
        return self.plan.ports.get(found, found)


@dataclass(frozen=True)
class Probes:
    """The probes of one run of a container. They write their results into the container's record."""

    pod: Pod
    container: Container
    record: ContainerRecord
    target: ProbeTarget
    report: Callable[[Pod, str, str], None]
    changed: Callable[[], None]
    is_stopping: Callable[[], bool]
    """Returns True if the container is being stopped. In this case, only its readiness is probed."""

    async def run(self, kill: _Kill) -> None:
        """Probe until cancelled, or until the startup or liveness probe fails.

        If the startup or liveness probe fails, ``kill`` is called with a reason and the grace period of this probe.
        """
        startup, liveness = self.container.startup_probe, self.container.liveness_probe
        if startup is not None:
            if not await self._until(startup, "Startup", wanted=True):
                await kill("failed startup probe", startup.termination_grace_period_seconds)
                return
            self.record.started = True
            self.record.ready = self.container.readiness_probe is None
            self.changed()
        async with anyio.create_task_group() as tasks:
            if self.container.readiness_probe is not None:
                tasks.start_soon(self._readiness, self.container.readiness_probe)
            if liveness is not None:
                await self._until(liveness, "Liveness", wanted=False)
                await kill("failed liveness probe", liveness.termination_grace_period_seconds)
                tasks.cancel_scope.cancel()

    async def _until(self, probe: Probe, kind: str, *, wanted: bool) -> bool:
        """Probe until the failure threshold is reached, and return False.

        If ``wanted`` is True, return True at the first success. If the container is being stopped, this call waits
        until it is cancelled.
        """
        await anyio.sleep(probe.initial_delay_seconds or 0)
        failures = 0
        while not self.is_stopping():
            ok = await self._once(probe, kind)
            failures = 0 if ok else failures + 1
            if ok and wanted:
                return True
            if failures >= (probe.failure_threshold or 3) and not self.is_stopping():
                return False
            await anyio.sleep(probe.period_seconds or 10)
        while True:
            await anyio.sleep_forever()

    async def _readiness(self, probe: Probe) -> None:
        await anyio.sleep(probe.initial_delay_seconds or 0)
        same = 0
        last: bool | None = None
        while True:
            ok = await self._once(probe, "Readiness")
            same = same + 1 if ok == last else 1
            last = ok
            needed = (probe.success_threshold or 1) if ok else (probe.failure_threshold or 3)
            if same >= needed and ok != self.record.ready:
                self.record.ready = ok
                self.changed()
            await anyio.sleep(probe.period_seconds or 10)

    async def _once(self, probe: Probe, kind: str) -> bool:
        ok, message = await self.target.check(probe, float(probe.timeout_seconds or 1))
        if not ok:
            self.report(self.pod, "Unhealthy", f"{kind} probe failed: {message}")
        return ok
