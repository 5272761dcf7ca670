# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Start, probe and stop the processes of a control plane. Find processes that an earlier run left running.

A `Supervisor` owns the components of one directory. Each component runs in its own session, so that Ctrl-C in the
terminal reaches only this process, which then stops the components in the right order. On Linux, tied components end
with this process, even if this process is killed. Untied components outlive this process, and the directory's next
supervisor finds them by their pid files.

A pid alone is not enough, because the system reuses pids. A component's pid file therefore also records the command
line and the start time, and a process is considered ours only if all three match. The first word of the command line is
not compared: for a script, the system shows its interpreter, or the program with which it has replaced itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import anyio

from controller_runtime.envtest.errors import ComponentError
from controller_runtime.envtest.files import private_directory, write_private

_PROC: Final = Path("/proc/self/stat")
_PAUSES: Final = (0.0, 0.005, 0.02)
"""Seconds to wait before each attempt to read a command line; it is empty while a process replaces its program."""
_POLL: Final = 0.05
_TAIL_LINES: Final = 12
# Sets the signal that this process receives when its parent dies, checks that the parent has not died meanwhile,
# and executes the component. (A hook between fork and exec would also work, but is unsafe with threads.)
_TIE: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True)
class Probe:
    """A health endpoint. ``authority`` is the CA of its certificate, ``client`` is our client certificate and key."""

    url: str
    authority: Path | None = None
    client: tuple[Path, Path] | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Return the endpoint's TLS settings, or None for plain HTTP."""
        if self.authority is None:
            return None
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.client is not None:
            context.load_cert_chain(*map(str, self.client))
        return context

    async def answer(self, tls: ssl.SSLContext | None, *, timeout: float = 5) -> str:
        """Return the status code of the response (``200``), or a short reason why there is no response."""
        url = urlsplit(self.url)
        try:
            with anyio.fail_after(timeout):
                reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=tls)
                try:
                    writer.write(f"GET {url.path or '/'} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode())
                    await writer.drain()
                    words = (await reader.readline()).split()
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except TimeoutError:
            return "no answer"
        except ConnectionRefusedError:
            return "connection refused"
        except OSError as error:
            return error.strerror or str(error) or type(error).__name__
        except ValueError:  # another program listens there: asyncio reads lines of at most 64 KiB
            return "no status line"
        return words[1].decode(errors="replace") if len(words) > 1 else "no status line"


@dataclass(frozen=True)
class Identity:
    """A started process: its name, pid, command line and the start time that the system reports."""

    component: str
    pid: int
    argv: list[str]
    started: str

    @classmethod
    def of(cls, component: str, pid: int, argv: Sequence[str]) -> Self:
        """Return the identity of a process that was just started with ``argv``."""
        return cls(component, pid, list(argv), start_time(pid) or "")

    def alive(self) -> bool:
        """Return True if this process is still running."""
        if start_time(self.pid) != self.started:
            return False
        for pause in _PAUSES:
            time.sleep(pause)
            if line := command_line(self.pid):
                return line.endswith(" ".join(self.argv[1:] or self.argv))
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if this process is still running."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class PidFiles:
    """The records of the processes that were started for ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, identity: Identity) -> None:
        """Record a process."""
        write_private(self._file(identity.component), json.dumps(asdict(identity)) + "\n")

    def remove(self, component: str) -> None:
        """Remove a component's record."""
        self._file(component).unlink(missing_ok=True)

    def read(self) -> list[Identity]:
        """Return the recorded processes, oldest first. Files that cannot be decoded are skipped."""
        dated: list[tuple[float, Identity]] = []
        for file in self._directory.glob("*.pid"):
            with suppress(OSError, ValueError, TypeError, RecursionError):
                dated.append((file.stat().st_mtime, Identity(**json.loads(file.read_bytes()))))
        # Files written one right after the other may have the same time, because file systems have a coarse clock.
        return [identity for _, identity in sorted(dated, key=lambda pair: (pair[0], pair[1].pid))]

    def end_leftovers(self) -> list[str]:
        """Kill the recorded processes that are still ours; return their names.

        If another process has got a recorded pid, it is not killed.
        """
        left = self.read()
        running = [identity for identity in left if identity.alive()]
        for identity in reversed(running):
            identity.signal(signal.SIGKILL)
        _await_end(running)
        for identity in left:
            self.remove(identity.component)
        return [identity.component for identity in running]

    def _file(self, component: str) -> Path:
        return self._directory / f"{component}.pid"


def command_line(pid: int) -> str:
    """Return a running process's arguments, joined by spaces, or "" if the process has exited or is a zombie."""
    if _PROC.exists():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return " ".join(raw.decode(errors="surrogateescape").split("\0")[:-1])
    return _ps(pid, "command=")


def start_time(pid: int) -> str | None:
    """Return a process's start time as the system shows it. It does not change while the process lives."""
    if _PROC.exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return stat.rpartition(")")[2].split()[19]
    return _ps(pid, "lstart=") or None


def _ps(pid: int, column: str) -> str:
    result = subprocess.run(  # noqa: S603 fixed program, a number as its argument
        ["/bin/ps", "-o", column, "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return result.stdout.strip()


def _await_end(identities: Iterable[Identity], timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    waiting = list(identities)
    while waiting and time.monotonic() < deadline:
        waiting = [identity for identity in waiting if identity.alive()]
        time.sleep(0.02 if waiting else 0)


@dataclass(frozen=True)
class Component:
    """A program to run: its name, its command line (starting with an absolute path) and its readiness probe."""

    name: str
    argv: Sequence[str]
    ready: Probe | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Process:
    """A started component: our child process, or one that an earlier run left running."""

    def __init__(self, identity: Identity, log: Path, *, child: bool) -> None:
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

        If the process is not our child, its exit code is unknown, and -1 is returned.
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
        """Send a signal if the process is still running."""
        if self.poll() is not None:
            return
        if self._child:  # not waited for yet, so the pid still belongs to this process
            with suppress(ProcessLookupError):
                os.kill(self.identity.pid, number)
        else:
            self.identity.signal(number)

    async def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until the process has ended; return True if it has."""
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

    With ``tied``, components end with this process, even after SIGKILL. This works only on Linux; elsewhere, and
    without ``tied``, they run until they are stopped. A tied component also ends with the thread that started it, so
    that thread must live as long as the component.
    """

    def __init__(self, directory: Path, *, tied: bool) -> None:
        self._logs = private_directory(directory / "logs")
        self._pids = PidFiles(private_directory(directory / "pids"))
        self._tied = tied and sys.platform == "linux"
        self.processes: dict[str, Process] = {}
        self.components: dict[str, Component] = {}
        """The components that this supervisor started, in the order of their start."""

    def end_leftovers(self) -> list[str]:
        """End the components in ``directory`` that an earlier run left running; return their names."""
        return self._pids.end_leftovers()

    def adopt(self) -> dict[str, Process]:
        """Take over the components in ``directory`` that an earlier run started; return them, oldest first."""
        for identity in self._pids.read():
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
        identity = Identity.of(component.name, pid, argv)
        self._pids.write(identity)
        process = self.processes[component.name] = Process(identity, log, child=True)
        self.components[component.name] = component
        return process

    async def wait_ready(self, component: Component, *, timeout: float) -> None:
        """Wait until the component's probe returns 200.

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
                said = await component.ready.answer(tls)
                if said == "200":
                    return
                await anyio.sleep(_POLL)
        if process.poll() is not None:
            raise process.death()
        raise process.death(f"was not ready after {timeout:g} s ({component.ready.url}: {said})")

    def check(self) -> None:
        """Raise the error of a component that has ended although it was not stopped."""
        for process in self.processes.values():
            if not process.stopping and process.poll() is not None:
                raise process.death()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """If a component ends during the body although it was not stopped, cancel the body and raise its error."""
        died: ComponentError | None = None
        failed: Exception | None = None

        async def watch() -> None:
            nonlocal died
            try:
                while True:
                    self.check()
                    await anyio.sleep(0.25)
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
        """Stop the named components at the same time, and wait until all have ended.

        Kill the components that have not ended after ``grace`` seconds, and return their names.
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
        """Kill the named components, by default all, and block until they have ended. It needs no event loop."""
        ending = [self.processes[name] for name in list(self.processes if names is None else names)]
        for process in ending:
            process.stopping = True
            process.signal(signal.SIGKILL)
        for process in ending:
            if process.poll() is None:
                process.reap()
            self._forget(process.name)

    def _forget(self, name: str) -> None:
        self._pids.remove(name)
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
