# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Identify the processes that an earlier run started.

A pid alone is not enough, because the system reuses pids. A component's pid file therefore also records the
command line and the start time, and a process is considered ours only if all three match. Of the command line, the
arguments have to match: a script runs as an interpreter, or replaces itself with another program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from controller_runtime.envtest.files import write_private

_PROC: Final = Path("/proc/self/stat")
_PAUSES: Final = (0.0, 0.005, 0.02)
"""Seconds before each look at a command line: a process that replaces itself has none for a moment."""


@dataclass(frozen=True)
class Identity:
    """A started process: its name, pid, command line and the start time that the system reports."""

    component: str
    pid: int
    argv: list[str]
    started: str

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
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def write(directory: Path, identity: Identity) -> None:
    """Record ``identity`` in ``directory``."""
    write_private(directory / f"{identity.component}.pid", json.dumps(asdict(identity)) + "\n")


def remove(directory: Path, component: str) -> None:
    """Remove a component's pid file."""
    (directory / f"{component}.pid").unlink(missing_ok=True)


def read(directory: Path) -> list[Identity]:
    """Return the processes recorded in ``directory``, oldest first; undecodable files are skipped."""
    found: list[tuple[float, Identity]] = []
    for file in directory.glob("*.pid"):
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            found.append((file.stat().st_mtime, Identity(**json.loads(file.read_bytes()))))
    # Two that are started one right after the other may have the same time: file systems have a coarse clock.
    return [identity for _, identity in sorted(found, key=lambda pair: (pair[0], pair[1].pid))]


def end_leftovers(directory: Path) -> list[str]:
    """Kill the processes recorded in ``directory`` that are still ours; return their names.

    Another process that has reused a recorded pid is left alone.
    """
    left = read(directory)
    running = [identity for identity in left if identity.alive()]
    for identity in reversed(running):
        identity.signal(signal.SIGKILL)
    _await_end(running)
    for identity in left:
        remove(directory, identity.component)
    return [identity.component for identity in running]


def command_line(pid: int) -> str:
    """Return a running process's arguments, joined by spaces, or "" if it has exited or is a zombie."""
    if _PROC.exists():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return " ".join(raw.decode(errors="surrogateescape").split("\0")[:-1])
    return _ps(pid, "command=")


def start_time(pid: int) -> str | None:
    """Return a process's start time in the system's own format, which is constant while the process lives."""
    if _PROC.exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return stat.rpartition(")")[2].split()[19]
    return _ps(pid, "lstart=") or None


def identify(component: str, pid: int, argv: Sequence[str]) -> Identity:
    """Return the identity of a process that was just started with ``argv``."""
    return Identity(component, pid, list(argv), start_time(pid) or "")


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
