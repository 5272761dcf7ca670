# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the process of a container until it ends, then kills the processes that it has left behind."""

import json
import os
import selectors
import signal
import sys
import time
from typing import Any, Final, NoReturn

from trainerctl.localcluster.processes.shim import END_FILE, IDENTITY, mounts, tree
from trainerctl.localcluster.processes.shim.output import LogWriter

_FLUSH_SECONDS: Final = 0.25
_REAP_SECONDS: Final = 5.0
_READ_BYTES: Final = 1 << 18
_DRAIN_SECONDS: Final = 2.0
_NOT_FOUND: Final = 127


def run(plan: dict[str, Any]) -> int:
    """Run a container and report its exit code. If it cannot be started, report the error. Return 0."""
    os.makedirs(plan["log"], mode=0o700, exist_ok=True)
    log = LogWriter(plan["log"])
    tree.adopt_orphans()
    output, child_output = os.pipe()
    failure, child_failure = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(output)
        os.close(failure)
        _execute(plan, shim, child_output, child_failure)
    os.close(child_output)
    os.close(child_failure)
    with open(failure, "rb") as file:
        message = file.read().decode(errors="replace")
    if message:
        os.waitpid(pid, 0)
        _report(failed=message)
        return 0
    began = time.time()
    _report(started=[pid, tree.start_time(pid)])
    container = _Container(pid, output, log)
    code = container.watch()
    if container.abandoned:
        tree.kill_marked(plan["env"][IDENTITY])
    else:
        _write_end(plan["log"], code=code, began=began, ended=time.time())
    _report(ended=code)
    return 0


class _Container:
    def __init__(self, pid: int, output: int, log: LogWriter) -> None:
        self.abandoned = False
        """True if the process was killed because the kubelet has ended."""
        self._pid = pid
        self._output = output
        self._log = log
        self._selector = selectors.DefaultSelector()
        os.set_blocking(output, False)
        os.set_blocking(0, False)
        self._selector.register(output, selectors.EVENT_READ, self._copy)
        self._selector.register(0, selectors.EVENT_READ, self._command)
        self._commands = b""

    def watch(self) -> int:
        """Wait until the process has ended, kill the processes that it has left behind, and return its exit code."""
        self._selector.register(os.pidfd_open(self._pid), selectors.EVENT_READ, lambda: None)
        since = time.monotonic()  # the beginning of the present part
        while (status := tree.reap(self._pid)) is None:
            ready = self._selector.select(_FLUSH_SECONDS if self._log.has_part else _REAP_SECONDS)
            for key, _ in ready:
                key.data()
            if not ready or time.monotonic() - since >= _FLUSH_SECONDS:
                self._log.flush()
            if not self._log.has_part:
                since = time.monotonic()
        self._finish()
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _finish(self) -> None:
        """Kill the remaining processes, and write the rest of the output."""
        tree.kill_descendants()
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._output in self._selector.get_map() and time.monotonic() < deadline:
            if not self._copy():
                break
        self._log.flush()

    def _copy(self) -> bool:
        """Copy output into the log. Return False if there is no output."""
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(self._output)
            return False
        self._log.write(data)
        return True

    def _command(self) -> None:
        data = os.read(0, 4096)
        if not data:  # the kubelet has ended
            self._selector.unregister(0)
            self.abandoned = True
            self._signal(signal.SIGKILL)
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            self._signal(signal.Signals[line.decode()])

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its group. Processes outside of it are killed once the process has ended."""
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            return


def _execute(plan: dict[str, Any], shim: int, output: int, failure: int) -> None:
    """Become the container's process.

    An error is written to the pipe ``failure``. If ``exec`` succeeds, it closes this pipe.
    """
    try:
        os.setsid()
        tree.end_with_parent(shim)
        if plan["isolated"]:
            mounts.prepare(plan)
        os.chdir(plan["cwd"])
        null = os.open(os.devnull, os.O_RDONLY)
        for source, to in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, to)
        try:
            become(plan)
        except (FileNotFoundError, NotADirectoryError):
            place = "" if "/" in plan["argv"][0] else " in $PATH"
            os.write(failure, f'exec: "{plan["argv"][0]}": executable file not found{place}'.encode())
    except (OSError, ValueError) as error:
        os.write(failure, str(error).encode())
    os._exit(_NOT_FOUND)


def become(plan: dict[str, Any]) -> NoReturn:
    """Replace this process by the plan's command. No signal is ignored or blocked, as after the start of a container.

    Python ignores SIGPIPE and SIGXFSZ. A shell ignores SIGINT and SIGQUIT for the commands that it starts in the
    background, and nohup ignores SIGHUP.
    """
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(plan["argv"][0], plan["argv"], plan["env"])


def _write_end(folder: str, **fields: float) -> None:
    """Write the result of a run to a file in the folder of its log. If the disk is full, write nothing."""
    path = os.path.join(folder, END_FILE)
    try:
        with open(f"{path}.new", "w") as file:
            json.dump(fields, file)
        os.replace(f"{path}.new", path)
    except OSError:
        return


def _report(**fields: object) -> None:
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the kubelet has ended; standard input ends then, too
        return
