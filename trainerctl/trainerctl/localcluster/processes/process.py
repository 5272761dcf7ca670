# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The process of a container. A shim runs the process, and kills it when this program ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from controller_runtime.apis.core.v1 import ContainerStateTerminated
from controller_runtime.machinery.meta import format_time

from trainerctl.localcluster.processes.shim import END_FILE, tree
from trainerctl.localcluster.processes.shim import IDENTITY as IDENTITY
from trainerctl.localcluster.processes.status import ended

_SHIM: Final = "trainerctl.localcluster.processes.shim"
_LONGEST_REPORT: Final = 1 << 20
_LONGEST_OUTPUT: Final = 4096
_LONGEST_END: Final = 4096
_LOST: Final = 137
_TIMED_OUT: Final = 124


@dataclass(frozen=True)
class Plan:
    """Everything that a shim needs to run a container."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    log: str
    scratch: str
    hostname: str
    mounts: Sequence[Mapping[str, object]]
    isolated: bool
    """False if the machine does not permit mounts."""
    message: str = ""
    """The file to which the container may write its termination message."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Maps ports that are taken to the ports that the container uses instead."""


class StartError(Exception):
    """The program of a container cannot be run."""


class _End(msgspec.Struct):
    """The content of the file in which the shim records how one run of a container ended."""

    code: int
    began: float
    ended: float


class ProcessID(NamedTuple):
    """Identifies a process so that a later process with the same PID is not mistaken for it."""

    number: int
    began: int
    """The time at which the process started, in clock ticks since the machine booted."""


class Process:
    """A process that has started."""

    def __init__(
        self, shim: anyio.abc.Process, reports: BufferedByteReceiveStream, id_: ProcessID, identity: str
    ) -> None:
        self.id = id_
        self._identity = identity
        self._shim = shim
        self._reports = reports
        self._alone = False

    async def wait(self) -> int:
        """Wait until the process has ended, kill the other processes of its container, and return the exit code."""
        report = await _report(self._reports)
        await self._shim.wait()
        # A shim that was killed leaves its processes, and the container's hooks may have started daemons.
        await end_all(self._identity)
        self._alone = True
        code: int = report.get("ended", _LOST)  # a killed shim reports nothing
        return code

    async def signal(self, name: str) -> None:
        """Send the signal ``name`` to the process group. Do nothing if the process has ended."""
        if self._shim.stdin is not None:
            try:
                await self._shim.stdin.send(f"{name}\n".encode())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                return

    async def close(self) -> None:
        """Close the pipes. If the process still runs, it is killed, and the shim does not write an end file."""
        with anyio.CancelScope(shield=True):
            await _release(self._shim)
            if not self._alone:
                await end_all(self._identity)


async def start(plan: Plan) -> Process:
    """Start a process.

    Raises:
        OSError: the machine does not permit another process. Nothing was started.
        StartError: the program cannot be run.
    """
    shim = await anyio.open_process(_command(), stdin=subprocess.PIPE, stderr=None, env=_environment())
    if shim.stdin is None or shim.stdout is None:
        raise StartError("the shim has no pipes")
    reports, identity = BufferedByteReceiveStream(shim.stdout), plan.env[IDENTITY]
    try:
        with suppress(anyio.BrokenResourceError):  # the shim has ended, and reports nothing
            await shim.stdin.send(msgspec.json.encode(asdict(plan)) + b"\n")
        id_ = await _started(reports)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await _release(shim)
            await end_all(identity)
        raise
    return Process(shim, reports, id_, identity)


async def _started(reports: BufferedByteReceiveStream) -> ProcessID:
    report = await _report(reports)
    if "started" not in report:
        raise StartError(report.get("failed", "the shim ended"))
    return ProcessID(*report["started"])


async def _release(shim: anyio.abc.Process) -> None:
    """Close a shim's standard input and wait until the shim has ended. It kills its container before it ends."""
    if shim.stdin is not None:
        await shim.stdin.aclose()
    await shim.wait()
    await shim.aclose()


async def end_all(identity: str) -> None:
    """Kill all processes of one run of a container. They have ``identity`` in their environment."""
    await anyio.to_thread.run_sync(tree.kill_marked, identity)


def read_end(folder: Path) -> ContainerStateTerminated | None:
    """Return how the run whose log is in ``folder`` ended, or None if this is not known.

    The shim does not write an end file if the kubelet ends first. The file may also be invalid, because a container
    without its own mounts can overwrite it.
    """
    try:
        with (folder / END_FILE).open("rb") as file:
            found = msgspec.json.decode(file.read(_LONGEST_END), type=_End)
        began, at = (datetime.fromtimestamp(each, UTC) for each in (found.began, found.ended))
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError, OSError):
        return None
    return ended(found.code, format_time(began), at)


async def run_beside(process: ProcessID, plan: Plan, timeout: float) -> tuple[int, str]:
    """Run the plan's command with the mounts of a running container. Return the exit code and the output.

    After ``timeout`` seconds the command is killed, and the exit code is 124.
    """
    command = [*_command(), "--enter", str(process.number), str(process.began)]
    shim = await anyio.open_process(command, stderr=None, env=_environment(), start_new_session=True)
    output = b""
    try:
        with anyio.fail_after(timeout):
            if shim.stdin is not None:
                await shim.stdin.send(msgspec.json.encode(asdict(plan)) + b"\n")
                await shim.stdin.aclose()
            if shim.stdout is not None:
                async for chunk in shim.stdout:
                    output = (output + chunk)[:_LONGEST_OUTPUT]
            code = await shim.wait()
    except TimeoutError:
        return _TIMED_OUT, f"timed out after {timeout:g} s"
    finally:
        with anyio.CancelScope(shield=True):
            if shim.returncode is None:
                with suppress(ProcessLookupError):  # the shim has ended, and the event loop does not know yet
                    os.killpg(shim.pid, signal.SIGKILL)
            await shim.aclose()
    return code, output.decode(errors="replace").strip()


async def open_beside(
    process: ProcessID, plan: Plan, *, stdin: int, stdout: int, stderr: int
) -> anyio.abc.Process:
    """Start the plan's command with the mounts of a running container, in a session of its own.

    The streams are as in :func:`subprocess.Popen`. If ``stdin`` is a terminal, it becomes that of the command.

    Raises:
        OSError: the machine does not permit another process.
    """
    file = os.memfd_create("plan")
    try:
        with os.fdopen(os.dup(file), "wb") as opened:
            opened.write(msgspec.json.encode(asdict(plan)))
        os.lseek(file, 0, os.SEEK_SET)
        command = [*_command(), "--exec", str(process.number), str(process.began), str(file)]
        return await anyio.open_process(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=_environment(),
            start_new_session=True,
            pass_fds=[file],
        )
    finally:
        os.close(file)


async def mount_problem() -> str:
    """Return why containers cannot have their own mounts on this machine, or an empty text if they can."""
    done = await anyio.run_process([*_command(), "--check"], check=False, env=_environment())
    return done.stdout.decode(errors="replace").strip() if done.returncode else ""


async def _report(reports: BufferedByteReceiveStream) -> dict[str, Any]:
    try:
        line = await reports.receive_until(b"\n", _LONGEST_REPORT)
        return msgspec.json.decode(line, type=dict[str, Any])
    except (anyio.IncompleteRead, anyio.ClosedResourceError, anyio.EndOfStream, anyio.DelimiterNotFound):
        return {}
    except (msgspec.MsgspecError, RecursionError):  # a program of the same user can write to the pipe
        return {}


def _command() -> list[str]:
    return [sys.executable, "-S", "-P", "-m", _SHIM]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
