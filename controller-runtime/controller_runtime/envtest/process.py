# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Components as processes: each has a log and a pid file; they are supervised and stopped in order.

A `Supervisor` owns the components of one directory. Each component runs in its own session, so that Ctrl-C in
the terminal reaches only this process, which decides the order of shutdown. Tied components end with this
process, even if it is killed; untied ones outlive it, and the directory's next supervisor finds them by their
pid files.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from controller_runtime.envtest import pidfile
from controller_runtime.envtest.errors import ComponentError
from controller_runtime.envtest.files import private_directory
from controller_runtime.envtest.probe import Probe, answer

_POLL: Final = 0.05
_TAIL_LINES: Final = 12
# Sets the signal that this process receives when its parent dies, checks that the parent has not died meanwhile,
# and executes the component. (A hook between fork and exec would also work, but is unsafe with threads.)
_TIE: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True)
class Component:
    """A program to run: its name, its command line (starting with an absolute path) and its readiness probe."""

    name: str
    argv: Sequence[str]
    ready: Probe | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Process:
    """A started component: our child process, or one that an earlier run left running."""

    def __init__(self, identity: pidfile.Identity, log: Path, *, child: bool) -> None:
        self.identity = identity
        self.log = log
        self.stopping = False
        self._child = child
        self._exit: int | None = None

    @property
    def name(self) -> str:
        """The component's name."""
        return self.identity.component

    def poll(self) -> int | None:
        """Return the exit code (the negative signal number if it was killed), or None while it runs.

        The exit code of a process that is not our child is unknown; -1 is returned.
        """
        if self._exit is not None:
            return self._exit
        if self._child:
            try:
                pid, status = os.waitpid(self.identity.pid, os.WNOHANG)
            except ChildProcessError:
                self._exit = -1
            else:
                self._exit = os.waitstatus_to_exitcode(status) if pid else None
        elif not self.identity.alive():
            self._exit = -1
        return self._exit

    def signal(self, number: signal.Signals) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is not None:
            return
        if self._child:  # not waited for yet, so the pid is still its own
            with suppress(ProcessLookupError):
                os.kill(self.identity.pid, number)
        else:
            self.identity.signal(number)

    async def wait(self, timeout: float) -> bool:
        """Wait until the process has ended; return True if it did in time."""
        with anyio.move_on_after(timeout):
            while self.poll() is None:  # noqa: ASYNC110 another process sets no event here
                await anyio.sleep(_POLL)
        return self.poll() is not None

    def reap(self) -> None:
        """Block until a killed process has ended."""
        if self._child and self._exit is None:
            with suppress(ChildProcessError):
                self._exit = os.waitstatus_to_exitcode(os.waitpid(self.identity.pid, 0)[1])

    def death(self, what: str = "") -> ComponentError:
        """Return the error that describes the failure, with the log's name and last lines."""
        code = self.poll()
        ended = "did not become ready" if code is None else _ending(code)
        text = f"{self.name} {what or ended}; log: {self.log}"
        lines = tail(self.log)
        return ComponentError(self.name, text + "".join(f"\n  | {line}" for line in lines))


class Supervisor:
    """Starts and stops the components whose logs and pid files are in ``directory``.

    ``tied`` components end with this process, even after SIGKILL (on Linux); others run until they are stopped.
    A tied component is tied to the thread that starts it, which must live as long as the component.
    """

    def __init__(self, directory: Path, *, tied: bool) -> None:
        self._logs = private_directory(directory / "logs")
        self._pids = private_directory(directory / "pids")
        self._tied = tied and sys.platform == "linux"
        self.processes: dict[str, Process] = {}
        self.components: dict[str, Component] = {}
        """The components that this supervisor started, in order."""

    def end_leftovers(self) -> list[str]:
        """End the components that an earlier run left running here, by their pid files; return their names."""
        return pidfile.end_leftovers(self._pids)

    def adopt(self) -> dict[str, Process]:
        """Take over the components that an earlier run started here, in the order of their start."""
        for identity in pidfile.read(self._pids):
            self.processes[identity.component] = Process(identity, self._log(identity.component), child=False)
        return self.processes

    def start(self, component: Component) -> Process:
        """Start a component without waiting for its readiness; see `wait_ready`.

        Raises:
            ComponentError: the program cannot be run.
        """
        log = self._log(component.name)
        argv = list(map(str, component.argv))
        try:
            pid = _spawn(argv, {**os.environ, **component.env}, log, tied=self._tied)
        except OSError as error:
            raise ComponentError(component.name, f"{component.name} cannot be run: {error}") from error
        identity = pidfile.identify(component.name, pid, argv)
        pidfile.write(self._pids, identity)
        process = self.processes[component.name] = Process(identity, log, child=True)
        self.components[component.name] = component
        return process

    async def wait_ready(self, component: Component, *, timeout: float) -> None:
        """Return once the component's probe returns 200.

        Raises:
            ComponentError: the component ended, or was not ready in time.
        """
        process = self.processes[component.name]
        if component.ready is None:
            return
        tls = component.ready.tls()
        said = "no answer"
        with anyio.move_on_after(timeout):
            while process.poll() is None:
                said = await answer(component.ready, tls)
                if said == "200":
                    return
                await anyio.sleep(_POLL)
        if process.poll() is not None:
            raise process.death()
        raise process.death(f"was not ready after {timeout:g} s ({component.ready.url}: {said})")

    def check(self) -> None:
        """Raise the error of a component that ended without being stopped."""
        for process in self.processes.values():
            if not process.stopping and process.poll() is not None:
                raise process.death()

    async def watch(self) -> None:
        """Run until a component ends without being stopped.

        Raises:
            ComponentError: always, naming that component.
        """
        while True:
            self.check()
            await anyio.sleep(0.25)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Cancel the body when a component ends unexpectedly, and raise that component's error instead."""
        died: ComponentError | None = None
        failed: Exception | None = None

        async def watch() -> None:
            nonlocal died
            try:
                await self.watch()
            except ComponentError as error:
                died = error
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                yield
            except Exception as error:
                failed = error
            tasks.cancel_scope.cancel()
        if died is not None or failed is not None:
            raise died or failed  # type: ignore[misc] # one of them is set

    async def stop(self, *names: str, grace: float = 10) -> list[str]:
        """Request the named components to end, all at once, and return when they have.

        A component that does not end within ``grace`` seconds is killed. The names of the killed are returned.
        """
        ending = [self.processes[name] for name in names if name in self.processes]
        for process in ending:
            process.stopping = True
            process.signal(signal.SIGTERM)
        with anyio.move_on_after(grace):
            for process in ending:
                await process.wait(grace)
        killed = [process.name for process in ending if process.poll() is None]
        self.kill(killed)
        for process in ending:
            self._forget(process.name)
        return killed

    def kill(self, names: Iterable[str] | None = None) -> None:
        """Kill components without waiting for an event loop: for a cluster that is not needed any more."""
        ending = [self.processes[name] for name in list(self.processes if names is None else names)]
        for process in ending:
            process.stopping = True
            process.signal(signal.SIGKILL)
        for process in ending:
            if process.poll() is None:
                process.reap()
            self._forget(process.name)

    def _forget(self, name: str) -> None:
        pidfile.remove(self._pids, name)
        self.processes.pop(name, None)

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def tail(log: Path, lines: int = _TAIL_LINES) -> list[str]:
    """Return the last lines of a log, each truncated to a readable length."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:300] for line in text.splitlines()[-lines:] if line.strip()]


def _spawn(argv: list[str], env: Mapping[str, str], log: Path, *, tied: bool) -> int:
    program = argv[0]
    if not os.access(program, os.X_OK):
        raise FileNotFoundError(f"{program} is not an executable file")
    if tied:
        argv = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *argv]
        program = sys.executable
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=[signal.SIGPIPE])


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}" if code != -1 else "is not running"
    return f"ended with {code}"
